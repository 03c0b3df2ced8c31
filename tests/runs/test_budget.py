"""A budget is used as far as whole units go, and never overdrawn."""

import dataclasses

import pytest

from scorebed.errors import InvalidValueError
from scorebed.presets.reader import preset_values
from scorebed.runs.config import RunConfig, from_values, make_config, to_values
from scorebed.runs.execution import job_for
from scorebed.runs.spending import within_budget
from scorebed.tasks import make_task

TASK = make_task("pendulum")


def configured(method: str, *overrides: str, preset: str = "quick", **values) -> RunConfig:
    trained = "plan" if preset != "paper" and method == "score" else None
    chosen = preset_values(preset, "pendulum", TASK, method=method, policy=trained) | values
    return make_config(chosen, overrides)


def within(config: RunConfig, budget: int) -> RunConfig:
    return within_budget(config, TASK, budget)


def total(config: RunConfig) -> int:
    """What the parts of one repeat cost, written out."""
    method, T = to_values(config), 50
    policies = policy_cost(config, config.policies)
    if "score" in method:
        score = method["score"]
        points = score["particles"] * score["cloud"]
        stage_1 = 1024 * T + score["steps"] * score["batch"] * T * (1 + points)
        return policies + score["seeds"] * stage_1
    if config.method in ("varmarg", "varpost"):
        density = method[config.method]
        return policies + density["steps"] * density["batch"] * T
    return policies


def policy_cost(config: RunConfig, count: int = 1) -> int:
    """Of `count` policies trained to the end, in one stage and one repeat."""
    stage = config.trained_by.train(job_for(config, TASK), None, "policy-0-0", count)
    return stage.nle_at_most()


SIZE = {
    "score": ("score", "steps"),
    "jointscore": ("score", "steps"),
    "varmarg": ("varmarg", "steps"),
    "varpost": ("varpost", "steps"),
    "jointvarpost": ("policy_training", "steps"),
    "pce": ("pce", "inner"),
    "nmc": ("nmc", "inner"),
    "static": ("static", "inner"),
}


@pytest.mark.parametrize("policies", [1, 3])
@pytest.mark.parametrize("method", SIZE)
def test_one_unit_more_would_not_fit(method, policies):
    # The quick preset limits the steps of the variational methods as well.
    variational = method in ("varmarg", "varpost", "jointvarpost")
    config = configured(
        method, preset="paper" if variational else "quick", policies=policies, repeats=2
    )
    found = within(config, 10**10)
    assert found.budget == 10**10
    assert total(found) <= 10**10
    assert total(found) == found.trained_by.nle(job_for(found, TASK))
    section, size = SIZE[method]
    values = to_values(found)
    values[section][size] += 1
    assert total(from_values(values)) > 10**10


def test_the_costs_of_a_policy_are_those_of_the_paper():
    T, steps, batch = 50, 150, 256
    assert policy_cost(configured("pce")) == steps * batch * 256 * T
    assert policy_cost(configured("score")) == steps * batch * 65 * T
    assert policy_cost(configured("jointscore")) == steps * 2 * batch * 65 * T


@pytest.mark.parametrize("method", ["score", "jointscore", "pce", "varpost", "jointvarpost"])
def test_a_budget_below_the_smallest_run_is_refused_with_what_it_takes(method):
    with pytest.raises(InvalidValueError, match="at least") as caught:
        within(configured(method), 10**4)
    least = int(str(caught.value).split("at least ")[1].split(" for")[0].replace(",", ""))
    within(configured(method), least)
    with pytest.raises(InvalidValueError, match="at least"):
        within(configured(method), least - 1)


def test_mlmc_takes_the_steps_whose_realised_costs_fit():
    config = configured("mlmc", "mlmc.levels=4", repeats=2)
    budget = 4_000_000
    found = within(config, budget)

    def spent(steps: int) -> int:
        values = to_values(found)
        values["policy_training"]["steps"] = steps
        longer = from_values(values)
        return longer.trained_by.nle(job_for(longer, TASK))

    steps = found.trained_by.policy_training.steps
    assert spent(steps) <= budget < spent(steps + 1)


def test_a_tight_budget_shrinks_the_clouds_before_it_cuts_the_score_short():
    plenty, tight = (within(configured("score"), budget) for budget in (2_000_000_000, 200_000_000))
    assert plenty.trained_by.score.kind.cloud == 8
    assert tight.trained_by.score.kind.cloud == 2
    assert total(tight) <= 200_000_000


@pytest.mark.parametrize("method", ["varmarg", "varpost", "jointvarpost"])
def test_variational_methods_leave_what_their_preset_has_no_steps_for(method):
    config = configured(method)
    found = within(config, 10**12)
    assert dataclasses.replace(found, budget=0) == config
    section, size = SIZE[method]
    least = to_values(within(config, 10**7))[section][size]
    assert 1 <= least < to_values(config)[section][size]


def test_every_policy_of_iosmc_has_a_stage_of_its_own():
    config = configured("iosmc", policies=3, repeats=2)
    job = job_for(config, TASK)
    assert job.all_groups(config.trained_by.parts(job)) == [
        (f"policy-{repeat}-{policy}", 1) for repeat in range(2) for policy in range(3)
    ]


def test_what_is_not_trained_spends_nothing():
    for method in ("random", "myopic"):
        found = within(configured(method), 1)
        assert found.budget == 1
        assert found.trained_by.nle(job_for(found, TASK)) == 0


def test_a_score_that_is_not_trained_leaves_the_budget_to_the_policies():
    """Nothing is paid upfront, not even the pilot that would weigh residuals."""
    config = configured("score", "score.kind=laplace", preset="laptop")
    found = within(config, 10**9)
    job = job_for(found, TASK)
    assert found.trained_by.upfront_nle(job) == 0
    step = policy_cost(found) // found.trained_by.policy_training.steps
    assert 10**9 - step < found.trained_by.nle(job) <= 10**9


# What each method takes of 10⁹ likelihood evaluations for five policies, in R repeats with H
# halvings: its size (`SIZE`) and what a repeat then costs at most. Recorded by the version before
# methods were objects, for one repeat: a budget is one repeat's, and others change nothing.
RECORDED = {
    ("score", "quick", 2, 0): (1_617, 999_872_000),
    ("score", "quick", 1, 2): (1_897, 999_872_000),
    ("jointscore", "quick", 2, 0): (3_095, 999_923_200),
    ("jointscore", "quick", 1, 2): (1_427, 999_872_000),
    ("varmarg", "paper", 2, 0): (17_031, 999_987_200),
    ("varmarg", "paper", 1, 2): (17_981, 999_987_200),
    ("varpost", "paper", 2, 0): (17_031, 999_987_200),
    ("varpost", "paper", 1, 2): (17_981, 999_987_200),
    ("jointvarpost", "paper", 2, 0): (3_906, 999_936_000),
    ("jointvarpost", "paper", 1, 2): (6_292, 997_580_800),
    ("iosmc", "quick", 2, 0): (245, 39_243_080_000),
    ("pce", "quick", 2, 0): (103, 998_400_000),
    ("pce", "quick", 1, 2): (165, 998_656_000),
    ("nmc", "quick", 2, 0): (103, 998_400_000),
    ("nmc", "quick", 1, 2): (165, 998_656_000),
    ("static", "quick", 2, 0): (103, 998_400_000),
    ("static", "quick", 1, 2): (165, 998_656_000),
}


@pytest.mark.parametrize(("method", "preset", "repeats", "halvings"), RECORDED)
def test_sizes_within_a_budget_are_those_recorded(method, preset, repeats, halvings):
    overrides = [f"policy_training.halvings={halvings}", "policies=5", f"repeats={repeats}"]
    found = within(configured(method, *overrides, preset=preset), 10**9)
    section, size = SIZE.get(method, ("policy_training", "steps"))
    free = dataclasses.replace(found, budget=0)  # the bill of nested particles, without its limit
    cost = free.trained_by.nle(job_for(free, TASK))
    assert (to_values(found)[section][size], cost) == RECORDED[method, preset, repeats, halvings]
    assert found.trained_by.nle(job_for(found, TASK)) <= 10**9
