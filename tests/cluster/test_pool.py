"""Pieces of work: each is done once, a failing one three times, and the others go on."""

import os
import signal
import time
from pathlib import Path

import pytest

from scorebed.cluster import pool as pools
from scorebed.cluster.pool import PiecesFailedError, Pool, TlsFiles, dask_pool, local_pool
from scorebed.errors import InvalidValueError, ScorebedError

distributed = pytest.importorskip("distributed")


@pytest.fixture(scope="module")
def cluster():
    """Two workers that are threads of this process."""
    with distributed.LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        processes=False,
        dashboard_address="127.0.0.1:0",
    ) as found:
        yield found


@pytest.fixture
def pool(cluster):
    with distributed.Client(cluster) as client:
        yield Pool(client)


def noted(folder: str, name: str, result: int) -> int:
    """A piece that leaves a mark for every try, and fails if its result is below zero."""
    path = Path(folder) / name
    path.write_text(path.read_text() + "x" if path.exists() else "x")
    if result < 0:
        raise RuntimeError("poison\nof two lines")
    return result


def refused(number: int) -> int:
    """A piece that fails with an error of ours, which no pickle can bring back."""
    raise InvalidValueError("the piece", got=number, expected="another", fix="choose one.")


def noted_and_killed(folder: str, name: str, deaths: int) -> int:
    """A piece that kills its worker so many times."""
    path = Path(folder) / name
    tries = int(path.read_text()) if path.exists() else 0
    path.write_text(str(tries + 1))
    if tries < deaths:
        os.kill(os.getpid(), signal.SIGKILL)
    return tries


def test_every_piece_is_done_once_and_a_poisonous_one_tried_three_times(pool, tmp_path):
    pieces = {str(n): (str(tmp_path), str(n), n) for n in (0, 1, -2, 3, 4)}
    done = []
    found = pool.run(noted, pieces, on_done=done.append)
    assert found.results == {"0": 0, "1": 1, "3": 3, "4": 4}
    assert found.failed == {"-2": "RuntimeError: poison of two lines"}
    assert sorted(done) == ["0", "1", "3", "4"]
    tries = {name: len((tmp_path / name).read_text()) for name in pieces}
    assert tries == {"0": 1, "1": 1, "-2": 3, "3": 1, "4": 1}
    with pytest.raises(PiecesFailedError, match=r"1 piece .* \(-2: RuntimeError: poison"):
        pool.run_all(noted, pieces)


def test_errors_of_ours_arrive_as_sentences(pool):
    found = pool.run(refused, {"one": (1,)})
    assert found.failed == {"one": "the piece, got 1, expected another. Fix: choose one."}


def test_a_scheduler_that_is_not_there_is_said_so(monkeypatch):
    monkeypatch.setattr(pools, "REACHED_WITHIN", 0.5)
    with (
        pytest.raises(InvalidValueError, match="start one: dask scheduler"),
        dask_pool("tcp://127.0.0.1:9"),
    ):
        pass


def test_a_scheduler_is_found_by_its_file(cluster, tmp_path):
    import json

    file = tmp_path / "scheduler.json"
    file.write_text(json.dumps({"address": cluster.scheduler_address}))
    with dask_pool(str(file)) as found:
        assert found.workers == 2


def test_half_of_an_encrypted_connection_is_refused(tmp_path):
    cert = tmp_path / "cert.pem"
    cert.touch()
    with (
        pytest.raises(InvalidValueError, match=r"--dask-tls-key.*expected three files"),
        dask_pool("tls://127.0.0.1:9", TlsFiles(cert, cert, tmp_path / "missing")),
    ):
        pass


@pytest.mark.slow
def test_a_killed_worker_is_replaced_and_its_piece_done_again(tmp_path):
    pieces = {
        f"{n}-{deaths}": (str(tmp_path), f"{n}-{deaths}", deaths)
        for n, deaths in enumerate((0, 1, 2, 9, 0, 0))
    }
    with local_pool(2) as pool:
        found = pool.run(noted_and_killed, pieces)
    # A result that is lost with the worker that holds it is computed again.
    assert all(tries >= int(name[-1]) for name, tries in found.results.items())
    assert {*found.results} == {*pieces} - {"3-9"}
    assert found.failed == {"3-9": "its workers died"}
    assert (tmp_path / "3-9").read_text() == "3"


@pytest.mark.slow
def test_a_scheduler_that_dies_is_one_sentence():
    cluster = distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, host="127.0.0.1", dashboard_address="127.0.0.1:0"
    )
    client = distributed.Client(cluster, timeout=5)
    pool = Pool(client)
    with pytest.raises(ScorebedError, match="the Dask scheduler, got"):
        pool.run(time.sleep, {"short": (0.1,), "long": (60.0,)}, on_done=lambda _: cluster.close())
    client.close()
