"""One run for all tests of this folder; every test has a file of experiments of its own."""

import contextlib
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "session"))  # for live_runs

from live_runs import make_run

from scorebed.runs.load import Run, load

TOKEN = "".join(chr(ord("A") + i % 26) for i in range(43))  # no part of it repeats the whole
PORT = 8321
BASE = f"http://127.0.0.1:{PORT}"


@pytest.fixture(scope="session")
def folder(tmp_path_factory) -> Path:
    """A run of the linear-Gaussian task (three steps, one covariate within ±2) with an adaptive
    policy.
    """
    return make_run(tmp_path_factory.mktemp("web") / "run")


@pytest.fixture(scope="session")
def run(folder) -> Run:
    return load(folder)


@pytest.fixture
def hub(run, tmp_path):
    pytest.importorskip("fastapi", reason="the web page needs fastapi: pip install 'scorebed[web]'")
    from scorebed.web.hub import Hub

    made = Hub(run, db=tmp_path / "live.sqlite")
    yield made
    made.close()


@pytest.fixture
def client(hub):
    """client(**headers) → a client of the application without any right of its own."""
    pytest.importorskip("httpx", reason="these tests need httpx: pip install 'scorebed[dev]'")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about the name of the package that it wants
        from starlette.testclient import TestClient
    from scorebed.web.app import make_app
    from scorebed.web.guard import Door

    app = make_app(hub, Door(TOKEN, PORT, frozenset({"127.0.0.1", "localhost", "[::1]"})))
    return lambda **headers: TestClient(
        app, base_url=BASE, headers=headers, raise_server_exceptions=True
    )


@pytest.fixture
def instrument(client):
    """A client with the token in its header, as an instrument has it."""
    return client(Authorization=f"Bearer {TOKEN}")


@pytest.fixture
def page(client):
    """A client with the cookie, which sends what a browser sends."""
    made = client(Origin=BASE)
    made.cookies.set(f"scorebed-{PORT}", TOKEN)
    return made


@pytest.fixture
def begun(instrument):
    """The address of a new experiment."""
    answer = instrument.post("/api/experiments", json={"name": "bench", "seed": 3})
    assert answer.status_code == 201
    return f"/api/experiments/{answer.json()['experiment']}"


@pytest.fixture
def busy_cores():
    """with busy_cores(): both cores of a small machine are at work on something else."""

    @contextlib.contextmanager
    def busy():
        with contextlib.ExitStack() as stack:
            for _ in range(2):
                command = [sys.executable, "-S", "-c", "while True: pass"]
                process = stack.enter_context(subprocess.Popen(command))
                stack.callback(process.kill)
            yield

    return busy
