"""A small configuration, and Python processes that can be killed."""

import fcntl
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from tiny_runs import CODE, Command, finish, train

from scorebed.runs.config import RunConfig, from_values

VALUES = {
    "task": "pendulum",
    "method": "score",
    "preset": "quick",
    "policy": "gru",
    "score": {
        "kind": "particles",
        "width": 64,
        "steps": 100,
        "batch": 32,
        "learning_rate": 1e-3,
        "clip": 600.0,
    },
    "policy_training": {
        "steps": 50,
        "batch": 32,
        "learning_rate": 1e-3,
        "schedule": "cosine",
        "monitor_every": 10,
        "monitor_inner": 100,
    },
    "evaluation": {"outer": 8, "inner": 100, "select_outer": 4, "select_inner": 50},
}


@pytest.fixture
def values() -> dict:
    return VALUES


@pytest.fixture
def config() -> RunConfig:
    return from_values(VALUES)


@pytest.fixture
def start_python():
    """Start a script in another process; its stdout can be read line by line. Nothing outlives the
    test.
    """
    processes = []

    def start(
        script: str, *arguments: object, environment: Mapping[str, str] = {}
    ) -> subprocess.Popen:
        command = [sys.executable, "-c", script, *map(str, arguments)]
        processes.append(
            subprocess.Popen(
                command, stdout=subprocess.PIPE, text=True, env={**os.environ, **environment}
            )
        )
        return processes[-1]

    yield start
    for process in processes:
        process.kill()
        process.communicate()


@pytest.fixture(scope="session")
def shared(tmp_path_factory) -> Path:
    """A folder for all processes of the test run."""
    own = tmp_path_factory.getbasetemp()
    return own.parent if "PYTEST_XDIST_WORKER" in os.environ else own


@pytest.fixture(scope="session")
def command() -> Command:
    """Start `scorebed` as a user does, in a process of its own.

    `first` is Python that the process runs before anything else.
    """

    def start(arguments: list[str], *, first: str = "") -> subprocess.Popen[str]:
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        return subprocess.Popen([sys.executable, "-c", f"{first}\n{CODE}", *arguments], **pipes)

    return start


@pytest.fixture(scope="session")
def finished(command, shared) -> Path:
    """One finished run of two restarts, made by the first process that asks for it."""
    path = shared / "whole"
    with (shared / "whole.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            finish(command(train("--policies", "2", "--out", path)))
    return path
