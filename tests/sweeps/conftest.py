"""A trained score of a closed-form task, and studies on it that take seconds."""

import contextlib
import itertools
import os
import pwd
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from scorebed.sweeps.creation import create_study
from scorebed.sweeps.worker import Worker

RUN = Path(__file__).parents[1] / "fixtures" / "runs-v1" / "score"
TRAINING = {"steps": 10, "batch": 4, "monitor_every": 5, "monitor_inner": 8}
SPACE = {
    "policy": "static",
    "policy_training": {
        "learning_rate": {"low": 1e-3, "high": 1e-1, "log": True},
        "schedule": ["constant", "cosine"],
        "final_rate": {"low": 0.0, "high": 1e-3},
        **TRAINING,
    },
    "evaluation": {"outer": 16, "inner": 32},
}


@pytest.fixture(scope="session")
def score_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sweeps") / "run"
    shutil.copytree(RUN, folder)
    return folder


@pytest.fixture
def make(score_run, tmp_path):
    """A new study in a folder of its own."""

    def made(name="study", **options):
        given = {"space": SPACE, "trials": 3, "sampler": "random"} | options
        return create_study(tmp_path / name, score_run, **given)

    return made


@pytest.fixture(scope="session")
def finished(score_run, tmp_path_factory):
    """A study whose trials were all carried out, by one worker."""
    folder = tmp_path_factory.mktemp("sweeps") / "finished"
    study = create_study(folder, score_run, space=SPACE, trials=2, sampler="random")
    assert Worker(study).work() == 2
    return study


class Postgres:
    """A server of its own, reached by a socket in its folder: nothing else can reach it."""

    def __init__(self, binaries, folder, user):
        self.binaries, self.folder, self.user = binaries, folder, user
        self._names = (f"sweep{number}" for number in itertools.count())

    def run(self, program, *options):
        """A program of PostgreSQL's, as the user who owns the folder."""
        found = subprocess.run(
            [self.binaries / program, *options],
            user=self.user.pw_uid,
            group=self.user.pw_gid,
            extra_groups=[] if os.geteuid() == 0 else None,
            cwd=self.folder,
            env={"PATH": os.environ["PATH"], "LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=120,
            check=False,
        )
        assert found.returncode == 0, found.stdout.decode()

    def start(self):
        """Start it, and wait until it answers."""
        options = f"-k {self.folder} -c listen_addresses= -c fsync=off"
        log = self.folder / "log"
        self.run("pg_ctl", "start", "-w", "-D", self.folder / "data", "-o", options, "-l", log)

    def stop(self):
        """End it at once, as a crash would."""
        self.run("pg_ctl", "stop", "-m", "immediate", "-D", self.folder / "data")

    def database(self):
        """The URL of a new database."""
        name = next(self._names)
        self.run("createdb", "-h", self.folder, "-U", "scorebed", name)
        return f"postgresql+psycopg://scorebed@/{name}?host={self.folder}"


@pytest.fixture(scope="session")
def postgres():
    """Debian's PostgreSQL, where it is installed."""
    pytest.importorskip("psycopg", reason="the driver of PostgreSQL: pip install psycopg[binary]")
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if not found:
        pytest.skip("PostgreSQL is not installed here: apt install postgresql")
    # It refuses to run as root.
    user = pwd.getpwnam("nobody") if os.geteuid() == 0 else pwd.getpwuid(os.geteuid())
    folder = Path(tempfile.mkdtemp(prefix="scorebed-"))  # the path of a socket has to be short
    server = Postgres(found[-1].parent, folder, user)
    try:
        os.chown(folder, user.pw_uid, user.pw_gid)
        options = ("-A", "trust", "-U", "scorebed", "-E", "UTF8", "--no-sync")
        server.run("initdb", "-D", folder / "data", *options)
        server.start()
        yield server
    finally:
        with contextlib.suppress(AssertionError):  # it may not run
            server.stop()
        shutil.rmtree(folder, ignore_errors=True)
