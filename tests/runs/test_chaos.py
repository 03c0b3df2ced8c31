"""A run killed twenty times, in every stage and in the middle of its writes, ends as the one that
was never stopped.
"""

import json
import random
import signal
from pathlib import Path

import pytest
from tiny_runs import finish, same_parameters, train

# Where the lives end: at some write whose path has this in it. Twenty in all.
MARKS = (
    *["checkpoints/score-0"] * 5,
    "score-0.safetensors",
    *["checkpoints/policy-0-0"] * 5,
    "choice-0.json",
    "policy-0.safetensors",
    "bounds-0.json",
    "bounds-random.json",
    *["checkpoints/static"] * 3,
    "static.safetensors",
    "record.json",
)

# Everything that a run keeps passes through fsync. A life that comes to its record is ended there:
# none ends by itself.
DEATH = """
import os, signal, threading
real, seen = os.fsync, 0
def die():
    os.kill(os.getpid(), signal.SIGKILL)
def fsync(descriptor):
    global seen
    path = os.readlink(f"/proc/self/fd/{{descriptor}}")
    seen += {mark!r} in path
    last = "record.json" in path
    if last or ({mark!r} in path and seen == {count}):
        with open({log!r}, "a") as log:
            log.write(path + "\\n")
        if last or {delay} < 0:
            die()
        threading.Timer({delay}, die).start()
    real(descriptor)
os.fsync = fsync
"""


@pytest.mark.slow
def test_twenty_kills_change_nothing(finished, command, tmp_path):
    path, log, dice = tmp_path / "killed", tmp_path / "deaths", random.Random(0)
    assert len(MARKS) == 20
    for number, mark in enumerate(MARKS):
        training = mark.startswith("checkpoints")
        count = dice.randint(1, 6) if training else 1
        # Before the write is on the disk, or some time after it.
        delay = dice.choice((-1.0, dice.uniform(0, 0.01)))
        death = DEATH.format(mark=mark, count=count, delay=delay, log=str(log))
        started = (path / "config.toml").exists()
        arguments = ["resume", str(path)] if started else train("--policies", "2", "--out", path)
        process = command(arguments, first=death)
        _, err = process.communicate(timeout=120)
        assert process.returncode == -signal.SIGKILL, (
            f"life {number + 1}, to be ended at {mark}: {err}"
        )
        assert not (path / "record.json").exists()
    deaths = log.read_text()
    for mark in set(MARKS):
        assert mark in deaths, f"no life ended at {mark}"

    finish(command(["resume", str(path)]))
    assert same_parameters(path, finished)
    for name in ("score-0", "policy-0", "static"):
        assert (path / f"{name}.safetensors").read_bytes() == (
            finished / f"{name}.safetensors"
        ).read_bytes()
    assert figures(path) == figures(finished)
    assert curves(path) == curves(finished)
    assert not list(path.rglob(".tmp-*"))


def figures(run: Path) -> dict:
    """The record without what may differ: its name and its times."""
    record = json.loads((run / "record.json").read_text())
    return {
        name: value for name, value in record.items() if name not in ("run", "seconds", "sha256")
    }


def curves(run: Path) -> list[dict]:
    """The lines of the training stages, in order, without their times: none is lost and none comes
    twice.
    """
    lines = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return [
        {k: v for k, v in line.items() if k not in ("seconds", "sha256")}
        for line in lines
        if not line["stage"].startswith("bounds")
    ]
