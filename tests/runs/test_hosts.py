"""One training over two hosts: what one host gives, up to the order of sums; a host that is lost
ends the other with a sentence, and the run goes on from its checkpoints.

Two processes that meet at a loopback address stand for hosts, and where root may make them two
network namespaces. Their imports alone take seconds: all of it is slow.
"""

import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file
from tiny_runs import CODE, finish, train

from namespaces import two_namespaces
from scorebed.errors import InvalidValueError
from scorebed.runs import host_team
from scorebed.runs.host_team import Hosts, join

# Host 0 waits after its third checkpoint, so that its partner is killed in the midst of training.
PAUSE = """
import os, time
real, seen = os.fsync, 0
def fsync(descriptor):
    global seen
    path = os.readlink(f"/proc/self/fd/{descriptor}")
    seen += path.endswith("manifest.json")
    real(descriptor)
    if seen == 3:
        open(%r, "w").close()
        time.sleep(3)
        seen += 1
os.fsync = fsync
"""


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def meeting(rank: int, port: int) -> list[str]:
    return ["--hosts", "2", "--rank", str(rank), "--coordinator", f"127.0.0.1:{port}"]


def assert_same_score(ours: Path, theirs: Path) -> None:
    one, other = (load_file(run / "score-0.safetensors") for run in (ours, theirs))
    for name, value in one.items():
        np.testing.assert_allclose(value, other[name], rtol=1e-4, atol=1e-6)


@pytest.fixture
def pair(command):
    """Two hosts with the same command; nothing of them outlives the test."""
    started = []

    def start(arguments, out, *, first=""):
        port = free_port()
        for rank, before in ((0, first), (1, "")):
            given = [*arguments, "--out", str(out), *meeting(rank, port)]
            started.append(command(given, first=before))
        return started[-2:]

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.mark.slow
def test_two_hosts_learn_the_score_of_one(finished, pair, tmp_path):
    leader, other = pair(train("--policies", "2", "--json"), tmp_path / "two")
    assert finish(leader).startswith("{"), "results alone on stdout"
    assert finish(other) == ""
    assert_same_score(tmp_path / "two", finished)
    assert (tmp_path / "two" / "record.json").exists()


@pytest.mark.slow
def test_a_host_that_is_killed_ends_the_other_and_the_run_goes_on(
    finished, pair, command, tmp_path
):
    out, mark = tmp_path / "two", tmp_path / "now"
    leader, other = pair(train("--policies", "2"), out, first=PAUSE % str(mark))
    while not mark.exists():
        assert leader.poll() is None, leader.communicate()[1]
        time.sleep(0.05)
    other.kill()
    _, said = leader.communicate(timeout=100)
    assert leader.returncode == 2
    (line,) = [each for each in said.splitlines() if each.startswith("error:")]
    assert "expected all hosts to go on" in line
    assert "scorebed resume" in line
    assert "Traceback" not in said
    assert not (out / "score-0.safetensors").exists()
    finish(command(["resume", str(out)]))
    assert_same_score(out, finished)


@pytest.mark.slow
def test_what_host_0_refuses_ends_all(pair, tmp_path):
    leader, other = pair(train("--policies", "2", method="pce"), tmp_path / "none")
    errors = [process.communicate(timeout=100)[1] for process in (leader, other)]
    assert [leader.returncode, other.returncode] == [2, 2]
    assert "error: --hosts, got the method pce" in errors[0]
    assert "error: the command of host 0" in errors[1]
    assert not (tmp_path / "none").exists()


def test_hosts_that_cannot_meet_are_refused():
    with pytest.raises(InvalidValueError, match=r"--rank, got 2, expected .* from 0 to 1"):
        join(Hosts(2, 2, "127.0.0.1:1"), 1, on_lost=lambda _: None)
    for wrong in ("127.0.0.1", ":5", "host:port", "host:99999"):
        with pytest.raises(InvalidValueError, match="--coordinator"):
            join(Hosts(2, 0, wrong), 1, on_lost=lambda _: None)


def test_a_silent_host_is_lost_after_a_while_and_a_lively_one_is_not():
    found = host_team._Watch(0, 3, lambda _: None)
    found.seen = {1: ("7", 0.0), 2: ("9", 25.0)}
    assert found._lost(29.0) == []
    assert found._lost(31.0) == [1]
    assert found._lost(60.0) == [1, 2]


@pytest.fixture
def namespaces():
    with two_namespaces() as names:
        yield names


@pytest.mark.slow
def test_two_network_namespaces_train_as_one_host(finished, namespaces, tmp_path):
    out = tmp_path / "two"
    processes = [
        subprocess.Popen(
            [
                *("ip", "netns", "exec", name, sys.executable, "-c", CODE),
                *train("--policies", "2", "--out", out),
                *("--hosts", "2", "--rank", str(rank), "--coordinator", "10.77.0.1:8476"),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank, name in enumerate(namespaces)
    ]
    try:
        for process in processes:
            finish(process)
    finally:
        for process in processes:
            process.kill()
            process.communicate()
    assert_same_score(out, finished)
