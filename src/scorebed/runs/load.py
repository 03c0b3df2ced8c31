"""A run read back: `run = load("RUN")` has `.task .score .policy .record`."""

from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx

from scorebed.errors import InvalidValueError, require
from scorebed.methods.base import Job, Method
from scorebed.policies.base import Policy
from scorebed.runs.artifacts import load_like, load_policy
from scorebed.runs.config import RunConfig, from_values, read_sealed_toml
from scorebed.runs.execution import RECORD, job_for
from scorebed.runs.folder import CONFIG, RunFolder
from scorebed.runs.record import Record
from scorebed.runs.stage_files import read_choice
from scorebed.runs.tables import bounds_table, ledger_table, metrics_table
from scorebed.runs.user_parts import UserParts, hand_over, hand_over_rest
from scorebed.runs.user_task import task_of
from scorebed.samplers.base import DesignSampler
from scorebed.scores.base import Score
from scorebed.tasks.base import Task


class Run(eqx.Module):
    """A finished run, as `load` reads it.

    Attributes:
        path: its folder.
        config: its configuration.
        task: its task.
        sampler: the designs that its score was trained on.
        score: its score; None if its method has none.
        policy: its best policy.
        record: its bounds, likelihood evaluations and seconds.

    Methods:
        metrics(): a pandas table of what was noted while training, with a row for every stage,
            step and policy.
        ledger(): one of its likelihood evaluations, by book and stage.
        bounds(): one of its bounds, with a row for every kind of designs; `pandas.concat` puts
            those of several runs together.

    Example:
        >>> run = sb.load("runs/linear-gaussian-score-1")
        >>> isinstance(run, sb.Run), run.config.method, run.task.horizon
        (True, 'score', 3)
    """

    path: Path
    config: RunConfig
    task: Task
    sampler: DesignSampler
    score: Score | None
    policy: Policy
    record: Record

    def metrics(self) -> Any:
        """What was noted while training, as a pandas table."""
        return metrics_table(RunFolder.open(self.path).read_metrics())

    def ledger(self) -> Any:
        """Likelihood evaluations, as a pandas table."""
        return ledger_table(self.record)

    def bounds(self) -> Any:
        """Bounds of the policy and of what it is compared with, as a pandas table."""
        return bounds_table(self.record)


class OpenRun(NamedTuple):
    """A run folder with its configuration and task, each read once."""

    folder: RunFolder
    config: RunConfig
    task: Task


def open_config(folder: RunFolder, parts: UserParts, *, strict: bool = False) -> RunConfig:
    """The configuration of a run whose method or kind of score may be the user's."""
    values = read_sealed_toml(folder.path / CONFIG)
    hand_over(values, parts, strict=strict)
    return from_values(values)


def open_run(path: Path, parts: UserParts, *, strict: bool = False) -> OpenRun:
    """A run that exists, with the user's parts of it."""
    folder = RunFolder.open(path)
    config = open_config(folder, parts, strict=strict)
    hand_over_rest(config, parts, strict=strict)
    return OpenRun(folder, config, task_of(config, parts.task, strict=strict))


def load(
    path: Path | str,
    *,
    task: Any = None,
    method: Any = None,
    policy: Any = None,
    score_kind: Any = None,
    sampler: Any = None,
    repeat: int = 0,
) -> Run:
    """Read a finished run.

    Arguments:
        path: its folder.
        task: the task, if the run has one of your own: `load("RUN", task=MyTask())`. A run's files
            hold no code.
        method, policy, score_kind, sampler: other parts of your own, as classes.
        repeat: the repeat whose policy is wanted, from 0.

    Returns:
        The run, with the policy of the repeat and the score that trained that policy last.

    Raises:
        InvalidValueError: if the run is not finished, has no such repeat, or a part of your own is
            missing.
        RunFolderError: if the folder is not a run, or cannot be read.

    Example:
        >>> run = sb.load("runs/linear-gaussian-score-1")
        >>> run.policy.adaptive, run.record.bounds.lower < run.record.bounds.upper
        (True, True)
    """
    parts = UserParts(task, method, policy, score_kind, sampler)
    folder, config, model = open_run(Path(path), parts)
    if not (folder.path / RECORD).exists():
        raise InvalidValueError(
            f"the run {path}",
            got="one that is not finished",
            expected=f"a {RECORD} in it",
            fix=f"finish it: scorebed resume {path}",
        )
    require(
        0 <= repeat < config.repeats,
        "the repeat",
        got=repeat,
        expected=f"a whole number from 0 to {config.repeats - 1}",
        fix="leave it out for the first.",
    )
    job, trained_by = job_for(config, model), config.trained_by
    values: Any = folder.read_json(RECORD)
    return Run(
        path=folder.path,
        config=config,
        task=model,
        sampler=job.sampler,
        score=_score(folder, trained_by, job, repeat),
        policy=_policy(folder.path, trained_by, job, repeat),
        record=Record.read(values),
    )


def _score(folder: RunFolder, method: Method, job: Job, repeat: int) -> Score | None:
    """The score of a repeat: the one made for its policy, or the one that trained it."""
    index = read_choice(folder, repeat, method, job).upfront
    name = method.score_file(repeat, index)
    if not name:
        return None
    file = folder.path / f"{name}.safetensors"
    if not file.exists():
        file = folder.path / f"{method.upfront_stem}-{index}.safetensors"
    score: Score = load_like(file, method.upfront_like(job), job.task)
    return score


def _policy(path: Path, method: Method, job: Job, repeat: int) -> Policy:
    file = path / f"policy-{repeat}.safetensors"
    return load_policy(file, job.make_policy, job.task) if file.exists() else method.untrained(job)
