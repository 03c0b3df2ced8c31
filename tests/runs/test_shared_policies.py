"""Policies by many workers: what a run leaves is that of the run alone, to the last bit, whoever
has trained which, and however often a worker died.
"""

import dataclasses

import numpy as np
import pytest
from safetensors.numpy import load_file
from tiny_runs import finish, train

from pools import Here
from scorebed.cluster.pool import PiecesFailedError
from scorebed.runs.begin import Request, plan
from scorebed.runs.execution import Execution
from scorebed.runs.load import load, open_run
from scorebed.runs.shared_policies import train_shared
from scorebed.runs.stage import Progress
from scorebed.runs.user_parts import BUILT_IN, PartNames
from scorebed.tasks import make_task

SETTINGS = (
    "policies=3",
    "policy_training.steps=12",
    "policy_training.batch=4",
    "policy_training.monitor_every=3",
    "policy_training.monitor_inner=8",
    "policy_training.patience=4",
    "policy_training.halvings=1",
    "evaluation.outer=16",
    "evaluation.inner=16",
    "evaluation.select_outer=16",
    "evaluation.select_inner=16",
    "evaluation.references=false",
    "evaluation.tight_outer=0",
    "pce.inner=3",
)


@pytest.fixture(scope="module")
def planned():
    task = make_task("linear-gaussian")
    return plan(
        Request(
            task_name="linear-gaussian",
            task=task,
            preset="quick",
            method="pce",
            policy="static",
            overrides=SETTINGS,
        )
    )


def execution_in(planned, path) -> Execution:
    run = open_run(path, BUILT_IN) if path.exists() else None
    folder = run.folder.acquire() if run else planned.create(path)
    return Execution(folder, planned.config, planned.task, progress=Progress())


def test_policies_trained_by_others_are_those_of_the_run_alone(planned, tmp_path):
    alone, shared = tmp_path / "alone", tmp_path / "shared"
    one = execution_in(planned, alone)
    record = one.run()
    with execution_in(planned, shared).folder as folder:
        execution = Execution(folder, planned.config, planned.task, progress=Progress())
        with pytest.raises(PiecesFailedError, match="policy 1 of stage policy-0-0: poison"):
            train_shared(execution, Here(poison="policy 1"), PartNames())
        others = Here()
        train_shared(execution, others, PartNames())
        again = execution.run()
    assert len(others.done) > 3, "policies learn of each other, so that there are rounds"
    assert not (shared / "pieces").exists()
    assert again.bounds == record.bounds
    assert again.nle == record.nle
    ours, theirs = (load_file(path / "policy-0.safetensors") for path in (alone, shared))
    for name, value in ours.items():
        np.testing.assert_array_equal(value, theirs[name])
    for name in ("policy-0-0.json", "choice-0.json"):
        assert (alone / name).read_text() == (shared / name).read_text()
    lines = [
        [{k: v for k, v in line.items() if k != "seconds"} for line in folder.read_metrics()]
        for folder in (one.folder, execution.folder)
    ]
    assert lines[0] == lines[1]


# A worker that is killed at its second checkpoint, once for every policy.
DEATH = """
import os, signal
import scorebed.runs.shared_policies as shared

shared.stages.CHECKPOINT_SECONDS = 0.0

class Deadly(shared.Checkpoints):
    def save(self, step, *rest):
        mark = {marks!r} + "/" + self.folder.parent.name
        super().save(step, *rest)
        if "pieces" in str(self.folder) and step > 4 and not os.path.exists(mark):
            open(mark, "w").close()
            os.kill(os.getpid(), signal.SIGKILL)

if shared.Checkpoints.__name__ != "Deadly":  # Dask loads this twice
    shared.Checkpoints = Deadly
"""


@pytest.mark.slow
def test_local_workers_that_are_killed_change_nothing(finished, command, tmp_path, monkeypatch):
    """`--workers 2` of the command line, with every policy's worker killed on its way."""
    marks, script = tmp_path / "marks", tmp_path / "die.py"
    marks.mkdir()
    script.write_text(DEATH.format(marks=str(marks)))
    monkeypatch.setenv("DASK_DISTRIBUTED__WORKER__PRELOAD", f"[{str(script)!r}]")
    out = tmp_path / "shared"
    finish(command(train("--policies", "2", "--out", out, "--workers", "2")))
    assert sorted(each.name for each in marks.iterdir()) == ["0", "1"]
    ours, theirs = load(out), load(finished)
    assert dataclasses.asdict(ours.record.bounds) == dataclasses.asdict(theirs.record.bounds)
    for name in ("score-0", "policy-0"):
        one, other = (load_file(path / f"{name}.safetensors") for path in (out, finished))
        for leaf, value in one.items():
            np.testing.assert_array_equal(value, other[leaf])
