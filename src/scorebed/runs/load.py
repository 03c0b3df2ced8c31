"""A run read back: `run = load("RUN")` has `.task .score .policy .record`."""

from pathlib import Path
from typing import Any

import equinox as eqx

from scorebed.errors import InvalidValueError
from scorebed.policies.base import Policy
from scorebed.runs.artifacts import JOINT_SCORE, load_policy, load_score, untrained_policy
from scorebed.runs.config import RunConfig
from scorebed.runs.folder import RunFolder
from scorebed.runs.methods import BY_SCORE, UNTRAINED
from scorebed.runs.user_task import UserTask, task_of
from scorebed.samplers.base import DesignSampler
from scorebed.samplers.paper import paper_sampler
from scorebed.scores.base import Score
from scorebed.tasks.base import Task


class Run(eqx.Module):
    """A trained run: its task, the sampler of its stage 1, its score if its method has one, its
    best policy, and its record.
    """

    path: Path
    config: RunConfig
    task: Task
    sampler: DesignSampler
    score: Score | None
    policy: Policy
    record: dict[str, Any]


def load(path: Path | str, *, task: UserTask | Task | None = None) -> Run:
    """Read a finished run. The policy is that of the first repeat; the score is the one that
    trained it last.

    A run of a task of your own needs that task again, `load("RUN", task=MyTask())`: a run's files
    hold no code and name none."""
    folder = RunFolder.open(Path(path))
    config = folder.config()
    if not (folder.path / "record.json").exists():
        raise InvalidValueError(
            f"the run {path}",
            got="one that is not finished",
            expected="a record.json in it",
            fix=f"finish it: scorebed resume {path}",
        )
    task = task_of(config, task)
    sampler = paper_sampler(task)
    joint = folder.path / JOINT_SCORE.format(0)
    path_score = joint if joint.exists() else folder.path / "score-0.safetensors"
    score = (
        load_score(path_score, config.score, task, sampler) if config.method in BY_SCORE else None
    )
    policy = (
        untrained_policy(config, task)
        if config.method in UNTRAINED
        else load_policy(folder.path / "policy-0.safetensors", config.policy, task)
    )
    record: dict[str, Any] = folder.read_json("record.json")  # type: ignore[assignment]
    return Run(folder.path, config, task, sampler, score, policy, record)
