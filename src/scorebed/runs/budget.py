"""What a run will spend, known before it starts, and the sizes that a budget allows.

A budget is likelihood evaluations (NLE) of training, over all policies and repeats. As in the paper, methods turn it into what
they need most: the score methods into steps of stage 1, PCE and NMC into contrastive parameters.
"""

import dataclasses

from scorebed.errors import InvalidValueError
from scorebed.runs.config import RunConfig
from scorebed.tasks.base import Task
from scorebed.train.score import PILOT

BY_SCORE = ("score", "jointscore")


def score_nle(config: RunConfig, task: Task) -> int:
    """NLE of one value of the score beside those of its target."""
    score = config.score
    return score.particles * score.cloud * task.horizon if score.kind == "particles" else 0


def policy_cost(config: RunConfig, task: Task) -> int:
    """NLE of training one policy: its own trajectories, and with `jointscore` those its score learns from."""
    training, T = config.policy_training, task.horizon
    if config.method in BY_SCORE:
        batch = training.batch + (config.score.batch if config.method == "jointscore" else 0)
        return training.steps * batch * (T + score_nle(config, task))
    return training.steps * training.batch * (training.inner + 1) * T


def within(config: RunConfig, task: Task, budget: int) -> RunConfig:
    """The same run with the largest sizes that a budget allows; refused if its smallest version costs more."""
    count, T = config.policies * config.repeats, task.horizon
    if config.method in BY_SCORE:
        pilot = 0 if config.score_run and config.method == "score" else PILOT * T
        step = config.score.seeds * config.score.batch * (T + score_nle(config, task))
        left = budget - count * policy_cost(config, task) - pilot * config.score.seeds
        if config.score_run:
            _require_room(budget, budget - left, left >= 0)
            return dataclasses.replace(config, budget=budget)
        _require_room(budget, budget - left + step, left >= step)
        return dataclasses.replace(config, budget=budget, score=dataclasses.replace(config.score, steps=left // step))
    training = config.policy_training
    each = count * training.steps * training.batch * T
    _require_room(budget, 2 * each, budget >= 2 * each)
    return dataclasses.replace(
        config, budget=budget, policy_training=dataclasses.replace(training, inner=budget // each - 1)
    )


def _require_room(budget: int, least: int, fits: bool) -> None:
    if not fits:
        raise InvalidValueError(
            "--budget",
            got=f"{budget:,} likelihood evaluations",
            expected=f"at least {least:,} for the other sizes of this run",
            fix="raise it, or lower policy_training.steps or policy_training.batch.",
        )
