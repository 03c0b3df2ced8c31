"""How many steps fit into a given time: a few steps of every stage are timed, in a folder that is
thrown away.

The answer is a configuration like any other, with its steps in it, so that a run that was stopped
goes on to the same end. A two-stage method spends `UPFRONT_SHARE` of its time on stage 1. Estimates
of the bound while training count, and so does compilation; the timing itself, and the bounds that a
run ends with, do not."""

import dataclasses
import itertools
import statistics
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from scorebed.errors import InvalidValueError
from scorebed.runs.budget import groups, parts
from scorebed.runs.config import RunConfig
from scorebed.runs.folder import RunFolder
from scorebed.runs.methods import UNTRAINED, UPFRONT
from scorebed.runs.rungs import stretched
from scorebed.runs.stage import Progress
from scorebed.runs.training import Execution
from scorebed.runs.user_task import UserTask

UPFRONT_SHARE = 0.6
TIMED, EVERY = 9, 3  # steps that are timed, and how often a bound is estimated among them


class Pace(NamedTuple):
    """Seconds before the first step, of a step, and of an estimate of the bound."""

    before: float
    step: float
    monitor: float

    def steps(self, seconds: float, *, every: int) -> int:
        """How many fit, with an estimate after `every` of them."""
        return int((seconds - self.before) / (self.step + self.monitor / every))


def within_minutes(config: RunConfig, minutes: float, task: UserTask | None = None) -> RunConfig:
    """The same run with as many steps as fit into `minutes` of training, over all policies and
    repeats.

    `task` is that of a run of the user's own one.
    """
    if config.method in UNTRAINED:
        return config
    training, learned = config.policy_training, UPFRONT.get(config.method)
    first, second = _timed(config, task)
    upfront = 60 * minutes * UPFRONT_SHARE if first else 0.0
    stages = [stage for stage, count in groups(config) if count]
    steps = second.steps((60 * minutes - upfront) / len(stages), every=training.monitor_every)
    _require_time(minutes, steps)
    steps = stretched(training, max(count for _, count in groups(config)), steps)
    found = dataclasses.replace(config, policy_training=dataclasses.replace(training, steps=steps))
    if first is None or learned is None:
        return found
    steps = first.steps(upfront / learned.count(config), every=1)
    _require_time(minutes, steps)
    return dataclasses.replace(
        found,
        **{learned.section: dataclasses.replace(getattr(config, learned.section), steps=steps)},
    )


def _timed(config: RunConfig, task: UserTask | None) -> tuple[Pace | None, Pace]:
    """The pace of stage 1, where there is one to train, and of stage 2."""
    learned = UPFRONT.get(config.method)
    training = dataclasses.replace(
        config.policy_training,
        steps=TIMED,
        monitor_every=EVERY,
        patience=0,
        halvings=0,
        keep="last",
    )
    evaluation = dataclasses.replace(config.evaluation, select_outer=2, select_inner=1)
    short: dict[str, Any] = {
        "policy_training": training,
        "evaluation": evaluation,
        "budget": 0,
        "score_run": "",
    }
    if learned:
        section = getattr(config, learned.section)
        short[learned.section] = dataclasses.replace(
            section, steps=TIMED, **_one_seed(learned.section)
        )
    with (
        TemporaryDirectory() as parent,
        RunFolder.create(
            Path(parent) / "timed", dataclasses.replace(config, repeats=1, **short)
        ) as folder,
    ):
        trial = Execution(folder, progress=Progress(), task=task)
        trial.choose(0, [trial.upfront(0)] if learned else [None] * parts(folder.config()))
        seconds: dict[str, list[float]] = {}
        for record in folder.read_metrics():
            seconds.setdefault(str(record["stage"]), []).append(float(record["seconds"]))  # type: ignore[arg-type]
    upfront = seconds.get(f"{learned.stem}-0") if learned and not config.score_run else None
    first = _pace(upfront, every=0) if upfront else None  # a Laplace score is not trained
    return first, _pace(seconds["policy-0-0"], every=EVERY)


def _one_seed(section: str) -> dict[str, int]:
    return {"seeds": 1} if section == "score" else {}


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


def _require_time(minutes: float, steps: int) -> None:
    if steps < 1:
        raise InvalidValueError(
            "--minutes",
            got=f"{minutes:g}",
            expected="enough for one step after compilation",
            fix="raise it, or lower policy_training.batch.",
        )
