"""A budget is used as far as whole units go, and never overdrawn."""

import dataclasses

import pytest
from scorebed.runs.budget import group_cost, groups, within

from scorebed.errors import InvalidValueError
from scorebed.presets.reader import preset_values
from scorebed.runs.config import RunConfig, from_values
from scorebed.tasks import make_task

TASK = make_task("pendulum")


def configured(method: str, *, preset: str = "quick", **values) -> RunConfig:
    return from_values(preset_values(preset, "pendulum", TASK, method=method) | values)


def total(config: RunConfig) -> int:
    """What the parts of a run cost, written out."""
    score, T = config.score, 50
    points = score.particles * score.cloud
    stage_1 = score.seeds * (1024 * T + score.steps * score.batch * T * (1 + points))
    policies = config.repeats * policy_cost(config, config.policies)
    density = config.density.steps * config.density.batch * T
    upfront = {"score": stage_1, "jointscore": stage_1, "varmarg": density, "varpost": density}
    return policies + upfront.get(config.method, 0)


def policy_cost(config: RunConfig, count: int = 1) -> int:
    """Of `count` policies trained to the end, in one stage and one repeat."""
    return group_cost(config, TASK, "policy-0-0", count, config.policy_training.steps)


@pytest.mark.parametrize("policies", [1, 3])
@pytest.mark.parametrize(
    "method", ["score", "jointscore", "pce", "nmc", "static", "varmarg", "varpost", "jointvarpost"]
)
def test_one_unit_more_would_not_fit(method, policies):
    # The quick preset limits the steps of the variational methods as well.
    variational = method in ("varmarg", "varpost", "jointvarpost")
    config = configured(
        method, preset="paper" if variational else "quick", policies=policies, repeats=2
    )
    found = within(config, TASK, 10**10)
    assert found.budget == 10**10
    assert total(found) <= 10**10
    section, size = {
        "score": ("score", "steps"),
        "jointscore": ("score", "steps"),
        "varmarg": ("density", "steps"),
        "varpost": ("density", "steps"),
        "jointvarpost": ("policy_training", "steps"),
    }.get(method, ("policy_training", "inner"))
    values = getattr(found, section)
    more = dataclasses.replace(
        found, **{section: dataclasses.replace(values, **{size: getattr(values, size) + 1})}
    )
    assert total(more) > 10**10


def test_the_costs_of_a_policy_are_those_of_the_paper():
    T, steps, batch = 50, 150, 256
    assert policy_cost(configured("pce")) == steps * batch * 256 * T
    assert policy_cost(configured("score")) == steps * batch * 65 * T
    assert policy_cost(configured("jointscore")) == steps * 2 * batch * 65 * T


@pytest.mark.parametrize("method", ["score", "jointscore", "pce", "varpost", "jointvarpost"])
def test_a_budget_below_the_smallest_run_is_refused_with_what_it_takes(method):
    with pytest.raises(InvalidValueError, match="at least") as caught:
        within(configured(method), TASK, 10**4)
    least = int(str(caught.value).split("at least ")[1].split(" for")[0].replace(",", ""))
    within(configured(method), TASK, least)
    with pytest.raises(InvalidValueError, match="at least"):
        within(configured(method), TASK, least - 1)


@pytest.mark.slow
def test_mlmc_takes_the_steps_whose_realised_costs_fit():
    config = configured("mlmc", repeats=2)
    budget = 20_000_000
    found = within(config, TASK, budget)

    def spent(steps: int) -> int:
        return sum(group_cost(found, TASK, stage, count, steps) for stage, count in groups(found))

    assert spent(found.policy_training.steps) <= budget < spent(found.policy_training.steps + 1)


def test_a_tight_budget_shrinks_the_clouds_before_it_cuts_the_score_short():
    plenty, tight = (
        within(configured("score"), TASK, budget) for budget in (2_000_000_000, 200_000_000)
    )
    assert plenty.score.cloud == 8
    assert tight.score.cloud == 2
    assert total(tight) <= 200_000_000


@pytest.mark.parametrize("method", ["varmarg", "varpost", "jointvarpost"])
def test_variational_methods_leave_what_their_preset_has_no_steps_for(method):
    config = configured(method)
    found = within(config, TASK, 10**12)
    assert (found.density.steps, found.policy_training.steps) == (
        config.density.steps,
        config.policy_training.steps,
    )
    assert within(config, TASK, 10**7).density.steps <= config.density.steps


def test_every_policy_of_iosmc_has_a_stage_of_its_own():
    stages = groups(configured("iosmc", policies=3, repeats=2))
    assert stages == [
        (f"policy-{repeat}-{policy}", 1) for repeat in range(2) for policy in range(3)
    ]


def test_what_is_not_trained_spends_nothing():
    for method in ("random", "myopic"):
        assert within(configured(method), TASK, 1).budget == 1
