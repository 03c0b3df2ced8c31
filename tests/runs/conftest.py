"""A small configuration, and Python processes that can be killed."""

import subprocess
import sys

import pytest

from scorebed.runs.config import RunConfig, from_values

VALUES = {
    "task": "pendulum",
    "method": "score",
    "preset": "quick",
    "policy": "gru",
    "score": {"kind": "particles", "width": 64, "steps": 100, "batch": 32, "learning_rate": 1e-3, "clip": 600.0},
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
    """Start a script in another process; its stdout can be read line by line. Nothing outlives the test."""
    processes = []

    def start(script: str, *arguments: object) -> subprocess.Popen:
        command = [sys.executable, "-c", script, *map(str, arguments)]
        processes.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        return processes[-1]

    yield start
    for process in processes:
        process.kill()
        process.communicate()
