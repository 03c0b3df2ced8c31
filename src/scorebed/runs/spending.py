"""What a run may spend: likelihood evaluations, or minutes of training.

A budget is likelihood evaluations (NLE) of the training of one repeat, over all of its policies,
with what repeats share counted in full in each; the method turns it into what it needs most
(`Method.within`). Minutes are those of all repeats.

How many steps fit into a given time is measured: a few steps of every stage are timed, in a folder
that is thrown away. The answer is a configuration like any other, with its steps in it, so that a
run that was stopped goes on to the same end. A two-stage method spends `UPFRONT_SHARE` of its time
on stage 1. Estimates of the bound while training count, and so does compilation. For `bench` the
timing itself, and the bounds that a run ends with, do not; for `train` all of it does, and the
clock is watched (`runs/watch.py`).
"""

import dataclasses
import itertools
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from scorebed.errors import InvalidValueError
from scorebed.methods.base import Job, Method
from scorebed.policies import STATIC
from scorebed.runs.config import RunConfig
from scorebed.runs.execution import Execution, job_for
from scorebed.runs.folder import RunFolder
from scorebed.runs.stage import Progress
from scorebed.runs.watch import EVALUATION_SHARE, STATIC_SHARE, UPFRONT_SHARE
from scorebed.tasks.base import Task

FEW = 20  # steps of a stage of a run in all, at least
TIMED, EVERY = 9, 3  # steps that are timed, and how often a bound is estimated among them


class Spending(NamedTuple):
    """One of the two."""

    budget: int | None = None
    minutes: float | None = None
    begun: float | None = None
    """When the command began, if minutes are those of a whole run, evaluation included
    (`runs/watch.py`), and not of training alone.
    """

    def apply(self, config: RunConfig, task: Task) -> RunConfig:
        """The same run with sizes that use what it is given."""
        if self.budget is not None:
            return within_budget(config, task, self.budget)
        if self.minutes is None:
            return config
        return within_minutes(config, task, self.minutes, begun=self.begun)

    def __str__(self) -> str:
        if self.budget is None:
            return f"{self.minutes:g} minutes"
        return f"{self.budget:,} likelihood evaluations"


def within_budget(config: RunConfig, task: Task, budget: int) -> RunConfig:
    """The same run with the largest sizes that a budget allows; refused if its smallest version
    costs more.
    """
    config = dataclasses.replace(config, budget=budget)
    method = config.trained_by.within(budget, job_for(config, task))
    return dataclasses.replace(config, trained_by=method)


class Pace(NamedTuple):
    """Seconds before the first step, of a step, and of an estimate of the bound."""

    before: float
    step: float
    monitor: float

    def steps(self, seconds: float, *, every: int) -> int:
        """How many fit, with an estimate after `every` of them."""
        return int((seconds - self.before) / (self.step + self.monitor / every))


def within_minutes(
    config: RunConfig, task: Task, minutes: float, *, begun: float | None = None
) -> RunConfig:
    """The same run with as many steps as fit into `minutes` of training, over all policies and
    repeats; into what the whole run leaves for training if it has `begun`.
    """
    method, job = config.trained_by, job_for(config, task)
    training = method.policy_settings
    config = dataclasses.replace(config, minutes=minutes)
    if training is None or not _trains(method, job):
        return config
    first, second = timed_paces(config, task)
    seconds, least = 60 * minutes, 1
    if begun is not None:
        # The clock ends what was forecast too long: a few steps at least, however little is left.
        seconds, least = (1 - EVALUATION_SHARE) * seconds - (time.monotonic() - begun), 0
    upfront = seconds * UPFRONT_SHARE if first else 0.0
    stages = [name for name, count in job.all_groups(method.parts(job)) if count]
    for_policies = (seconds - upfront) * (1 if begun is None else 1 - STATIC_SHARE)
    steps = second.steps(for_policies / len(stages), every=training.monitor_every)
    steps = _steps_for(minutes, steps, least)
    before = None
    if first is not None:
        before = first.steps(upfront / job.upfronts(method.parts(job)), every=1)
        before = _steps_for(minutes, before, least)
    return dataclasses.replace(config, trained_by=method.with_steps(job, before, steps))


# Of what has nothing to train: any number of steps will do.
UNTRAINED = Pace(0.0, 1.0, 0.0)


def _trains(method: Method, job: Job) -> bool:
    """Whether there is a pace to forecast by. Where nothing is trained but static designs to
    compare with, timing them would take as long to compile as they do: they have the steps of the
    preset, and the clock.
    """
    return method.trains(job) or method.upfront(job, 0) is not None


def timed_paces(config: RunConfig, task: Task) -> tuple[Pace | None, Pace]:
    """The pace of stage 1, where there is one to train, and of stage 2: a few steps of a run in a
    folder that is thrown away. Of a policy without parameters nothing is trained but the static
    designs that it is compared with.
    """
    short = dataclasses.replace(
        config,
        repeats=1,
        budget=0,
        score_run="",
        evaluation=dataclasses.replace(config.evaluation, select_outer=2, select_inner=1),
        trained_by=config.trained_by.timed(TIMED, EVERY),
    )
    seconds: dict[str, list[float]] = {}
    with (
        TemporaryDirectory() as parent,
        RunFolder.create(Path(parent) / "timed", short) as folder,
    ):
        trial = Execution(folder, short, task, progress=Progress())
        learned = trial.upfront(0)
        parts = short.trained_by.parts(trial.job)
        trial.choose(0, [learned] * parts)
        stage = "policy-0-0"
        if not trial.method.trains(trial.job):
            stage = STATIC
            if config.evaluation.references:
                trial.references(learned)
        metrics: Any = folder.read_metrics()
        for record in metrics:
            seconds.setdefault(str(record["stage"]), []).append(float(record["seconds"]))
    stem = short.trained_by.upfront_stem
    upfront = seconds.get(f"{stem}-0") if stem and not config.score_run else None
    first = _pace(upfront, every=0) if upfront else None
    return first, _pace(seconds[stage], every=EVERY) if stage in seconds else UNTRAINED


def _pace(seconds: Sequence[float], *, every: int) -> Pace:
    """From the time after each step; at multiples of `every` it includes an estimate of the bound,
    at first its compilation.
    """
    took = [b - a for a, b in itertools.pairwise(seconds)]  # took[i] is step i + 2
    monitored = [s for i, s in enumerate(took) if every and (i + 2) % every == 0]
    step = statistics.median(s for i, s in enumerate(took) if not every or (i + 2) % every)
    monitor = max(0.0, statistics.median(monitored[1:]) - step) if monitored else 0.0
    compiling = max(0.0, monitored[0] - monitor - step) if monitored else 0.0
    return Pace(max(0.0, seconds[0] - step) + compiling, step, monitor)


def _steps_for(minutes: float, steps: int, least: int) -> int:
    """The steps, or the few that a watched run takes at least; refused if none fit otherwise."""
    if least == 0:
        return max(steps, FEW)
    if steps < least:
        raise InvalidValueError(
            "--minutes",
            got=f"{minutes:g}",
            expected="enough for one step after compilation",
            fix="raise it, or lower policy_training.batch.",
        )
    return steps
