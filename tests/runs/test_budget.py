"""A budget is used as far as whole units go, and never overdrawn."""

import dataclasses

import pytest

from scorebed.bench.presets import preset_values
from scorebed.errors import InvalidValueError
from scorebed.runs.budget import policy_cost, within
from scorebed.runs.config import RunConfig, from_values
from scorebed.tasks import make_task

TASK = make_task("pendulum")


def configured(method: str, **values) -> RunConfig:
    return from_values(preset_values("quick", "pendulum", TASK, method=method) | values)


def total(config: RunConfig) -> int:
    """What the parts of a run cost, written out."""
    score, T = config.score, 50
    points = score.particles * score.cloud
    stage_1 = score.seeds * (1024 * T + score.steps * score.batch * T * (1 + points))
    policies = config.policies * config.repeats * policy_cost(config, TASK)
    return policies + (stage_1 if config.method in ("score", "jointscore") else 0)


@pytest.mark.parametrize("policies", [1, 3])
@pytest.mark.parametrize("method", ["score", "jointscore", "pce", "nmc"])
def test_one_unit_more_would_not_fit(method, policies):
    config = configured(method, policies=policies, repeats=2)
    found = within(config, TASK, 10**10)
    assert found.budget == 10**10
    assert total(found) <= 10**10
    if method in ("score", "jointscore"):
        more = dataclasses.replace(found, score=dataclasses.replace(found.score, steps=found.score.steps + 1))
    else:
        training = found.policy_training
        more = dataclasses.replace(found, policy_training=dataclasses.replace(training, inner=training.inner + 1))
    assert total(more) > 10**10


def test_the_costs_of_a_policy_are_those_of_the_paper():
    T, steps, batch = 50, 300, 256
    assert policy_cost(configured("pce"), TASK) == steps * batch * 16 * T
    assert policy_cost(configured("score"), TASK) == steps * batch * 65 * T
    assert policy_cost(configured("jointscore"), TASK) == steps * 2 * batch * 65 * T


@pytest.mark.parametrize("method", ["score", "jointscore", "pce"])
def test_a_budget_below_the_smallest_run_is_refused_with_what_it_takes(method):
    with pytest.raises(InvalidValueError, match="at least") as caught:
        within(configured(method), TASK, 10**6)
    least = int(str(caught.value).split("at least ")[1].split(" for")[0].replace(",", ""))
    within(configured(method), TASK, least)
    with pytest.raises(InvalidValueError, match="at least"):
        within(configured(method), TASK, least - 1)
