"""Real workers, stopped and killed: every trial once, with the result of an undisturbed study."""

import os
import signal
import subprocess
import sys

import pytest
from studies import outcome, wait_for

from scorebed.sweeps.study import RESULT
from scorebed.sweeps.worker import Worker

pytestmark = pytest.mark.slow

LEASE = "3"
CODE = (  # a checkpoint after every block
    "import scorebed.runs.stage as k; k.CHECKPOINT_SECONDS = 0.0; from scorebed.cli import main; "
    "main()"
)
STOPS_ITSELF_AT = 60  # a step: after two checkpoints
SLEEPER = f"""
import os, signal
import scorebed.runs.stage as k

on_block = k.StageCheckpointer._on_block

def stop_before(self, block):
    if block.step == {STOPS_ITSELF_AT}:
        os.kill(os.getpid(), signal.SIGSTOP)
    return on_block(self, block)

k.StageCheckpointer._on_block = stop_before
"""


def start(study, code=CODE):
    """A worker in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-c", code, "sweep", "work", str(study.folder), "--lease", LEASE],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.fixture(params=["journal", "sqlite", "postgres"])
def storage(request, tmp_path):
    urls = {"journal": lambda: "", "sqlite": lambda: f"sqlite:///{tmp_path}/trials.db"}
    if request.param in urls:
        return urls[request.param]()
    return request.getfixturevalue("postgres").database()


def test_a_killed_worker_is_replaced_and_the_results_are_those_of_a_serial_study(make, storage):
    serial, chaos = make("serial", trials=2), make("chaos", trials=2, storage=storage)
    Worker(serial).work()
    killed = start(chaos)
    checkpoints = chaos.trials_folder / "00000" / "checkpoints"
    wait_for(lambda: list(checkpoints.glob("*/step-*")))
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    other = start(chaos)
    out, _ = other.communicate(timeout=600)
    assert other.returncode == 0, out
    assert outcome(chaos) == outcome(serial)
    assert chaos.load().trials[0].user_attrs[RESULT]["attempts"] == 2
    assert sorted(path.name for path in chaos.trials_folder.iterdir()) == ["00000-2", "00001"]


def test_a_worker_that_slept_through_its_lease_stops_before_its_next_checkpoint(make, storage):
    study = make(
        trials=1,
        storage=storage,
        space={
            "policy": "static",
            "policy_training": {
                "learning_rate": [1e-3, 1e-2],
                "steps": 400,
                "batch": 4,
                "monitor_every": 20,
                "monitor_inner": 8,
            },
            "evaluation": {"outer": 16, "inner": 32},
        },
    )
    slept = start(study, SLEEPER + CODE)
    checkpoints = study.trials_folder / "00000" / "checkpoints" / "policy-0-0"
    stopped = os.WSTOPPED | os.WNOHANG | os.WNOWAIT
    wait_for(lambda: os.waitid(os.P_PID, slept.pid, stopped))
    other = start(study)
    wait_for(lambda: (study.trials_folder / "00000-2").exists())
    before = sorted(path.name for path in checkpoints.iterdir())
    other.send_signal(signal.SIGSTOP)  # so that the other does not clear the folder away
    slept.send_signal(signal.SIGCONT)
    wait_for(lambda: "another worker" in slept.stdout.readline())
    assert before == ["step-000000020", "step-000000040"]
    assert sorted(path.name for path in checkpoints.iterdir()) == before
    other.send_signal(signal.SIGCONT)
    for each in (slept, other):
        out, _ = each.communicate(timeout=600)
        assert each.returncode == 0, out
    (trial,) = study.load().trials
    assert trial.user_attrs[RESULT]["run"] == "00000-2"
    assert not (study.trials_folder / "00000").exists()
