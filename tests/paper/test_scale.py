"""The rule of scale: the budget shrinks in proportion, its split stays, and S = 1 is the paper."""

import dataclasses
from pathlib import Path

import pytest

from scorebed.errors import InvalidValueError
from scorebed.paper.data import read
from scorebed.paper.rows import table_rows
from scorebed.paper.scale import scaled_settings
from scorebed.paper.study import Study
from scorebed.runs.begin import Request, plan
from scorebed.runs.config import to_values
from scorebed.runs.execution import job_for
from scorebed.tasks import make_task

SCALES = (0.5, 0.1, 0.02, 0.01, 0.005)
TABLES = tuple(read("items")["tables"])
ROWS = {row.name: row for name in TABLES for row in table_rows(name)}


def study(scale, **settings):
    return Study(out=Path("unused"), scale=scale, **settings)


def planned(row, scale, **settings):
    run = row.planned(study(scale, **settings))
    return run.config, job_for(run.config, run.task)


@pytest.mark.parametrize("name", ROWS)
def test_at_scale_one_a_row_is_the_preset_untouched(name):
    """The paper's four repeats are the preset's too: nothing is set but what sets the row apart."""
    row = ROWS[name]
    plain = plan(
        Request(
            task_name=row.task,
            task=make_task(row.task),
            preset="paper",
            method=row.method,
            policies=row.policies,
            overrides=row.settings,
        )
    )
    assert to_values(row.planned(study(1.0)).config) == to_values(plain.config)


# One row per kind of cost; others differ in sizes that the rule does not look at.
COSTS = (
    "location-finding-score-P1",
    "location-finding-score-P5",
    "location-finding-pce-star-P1",
    "location-finding-jointvarpost-P5",
    "pendulum-score-P50",
    "pendulum-varmarg-P50",
    "gravimetry-varpost-P5",
)


@pytest.mark.parametrize("name", COSTS)
def test_the_budget_shrinks_by_s_and_its_split_stays(name):
    """Within rounding: half a step of the shortest stage."""
    config, job = planned(ROWS[name], 1.0)
    whole, upfront = config.trained_by.nle(job), config.trained_by.upfront_nle(job)
    last = whole
    for scale in SCALES:
        config, job = planned(ROWS[name], scale)
        nle = config.trained_by.nle(job)
        rounding = 0.5 / config.trained_by.policy_training.steps + 1e-3
        assert nle / whole == pytest.approx(scale, rel=rounding)
        assert config.trained_by.upfront_nle(job) / nle == pytest.approx(
            upfront / whole, rel=rounding
        )
        assert nle < last
        last = nle


def test_the_particles_of_iosmc_shrink_in_turn():
    row = ROWS["pendulum-iosmc-P1"]
    config, job = planned(row, 1.0)
    whole = config.trained_by.nle(job)
    for scale in (0.5, 0.1, 0.02, 0.005):
        config, job = planned(row, scale)
        # (N − 1) sweeps of N, and particles in whole numbers: a few per cent
        assert config.trained_by.nle(job) / whole == pytest.approx(scale, rel=0.05)
    sizes = [
        (c.trained_by.trajectories, c.trained_by.particles, c.trained_by.policy_training.steps)
        for c, _ in (planned(row, scale) for scale in (1.0, 0.5, 0.03, 0.004, 1e-5))
    ]
    assert sizes == [(1024, 512, 25), (512, 512, 25), (64, 246, 25), (64, 64, 13), (64, 64, 5)]


def test_mlmc_keeps_its_levels_and_shrinks_from_batches_of_two_thousand():
    """The cost of MLMC is random; its simulated experiments are not."""
    row = ROWS["location-finding-mlmc-P1"]
    whole = planned(row, 1.0)[0].trained_by
    assert (whole.policy_training.batch, whole.policy_training.steps) == (2000, 50_000)
    for scale in (0.5, 0.05, 0.01):
        small = planned(row, scale)[0].trained_by
        training = small.policy_training
        assert training.batch * training.steps / 1e8 == pytest.approx(scale, rel=1e-3)
        assert (small.base, small.levels, small.tau) == (whole.base, whole.levels, whole.tau)


@pytest.mark.parametrize("scale", SCALES)
def test_what_the_paper_fixes_stays(scale):
    for name in COSTS:
        row = ROWS[name]
        before, after = planned(row, 1.0)[0], planned(row, scale)[0]
        assert (after.policy, after.policies, after.repeats) == (before.policy, row.policies, 4)
        assert getattr(after.trained_by, "inner", 0) == getattr(before.trained_by, "inner", 0)
        training, full = after.trained_by.policy_training, before.trained_by.policy_training
        assert training.batch == max(64, round(1024 * scale))
        kept = ("schedule", "beta1", "beta2", "clip", "keep")
        assert [getattr(training, k) for k in kept] == [getattr(full, k) for k in kept]


def test_gradients_are_clipped_at_one_below_scale_one():
    """The score's norm of 600 is one of batches of 1,024; one that is smaller than 1 stays."""
    row = ROWS["location-finding-score-P1"]
    clips = [to_values(planned(row, scale)[0])["score"]["clip"] for scale in (1.0, 0.5, 0.002)]
    assert clips == [600.0, 1.0, 1.0]
    values = {"policy_training": {"steps": 10, "batch": 64, "clip": 0.3}}
    assert scaled_settings(values, 0.5)["policy_training.clip"] == 0.3


def test_rates_rise_as_steps_fall_and_no_further_than_the_limit():
    values = {
        "policy_training": {
            "steps": 1000,
            "batch": 1024,
            "learning_rate": 1e-4,
            "final_rate": 1e-5,
            "decay_every": 100,
            "monitor_every": 50,
        },
        "joint": {"batch": 1024, "steps": 200_000, "monitor_every": 50},
        "evaluation": {"outer": 2048, "inner": 10**6, "select_outer": 512, "select_inner": 10**6},
    }

    def found(scale):
        return scaled_settings(values, scale)

    assert "policy_training.learning_rate" in found(0.5)
    assert found(0.5)["policy_training.learning_rate"] == 1e-4  # batches shrink first
    hundredth = found(0.01)
    assert hundredth["policy_training.steps"] == 160
    assert hundredth["policy_training.decay_every"] == 16
    assert hundredth["policy_training.monitor_every"] == 8
    assert hundredth["joint.monitor_every"] == 500  # 64 estimates in 32,000 steps
    assert hundredth["policy_training.learning_rate"] == pytest.approx(1e-4 / 0.16)
    assert hundredth["policy_training.final_rate"] == pytest.approx(1e-5 / 0.16)
    assert found(1e-4)["policy_training.learning_rate"] == 2e-3
    assert hundredth["evaluation.inner"] == 10**5
    assert found(0.5)["evaluation.inner"] == 5 * 10**5
    assert found(1.0) == {}


def test_networks_shrink_with_the_third_root_and_stay_whole():
    tables = {"net": {"width": 256, "blocks": 4, "heads": 8}, "flow": {"width": 80, "layers": 5}}
    widths = {}
    for scale in (0.999, 0.5, 0.1, 0.01, 1e-4):
        found = scaled_settings(tables, scale)
        widths[scale] = found["net.width"]
        assert found["net.width"] % found["net.heads"] == 0
        assert found["net.width"] // found["net.heads"] >= 16
        assert 32 <= found["flow.width"] <= 80
    assert widths == {0.999: 256, 0.5: 200, 0.1: 120, 0.01: 56, 1e-4: 32}
    hundredth = scaled_settings(tables, 0.01)
    assert (hundredth["net.blocks"], hundredth["flow.layers"]) == (2, 3)


@pytest.mark.parametrize("scale", [0.0, 1.5, -1.0, float("nan")])
def test_a_scale_is_a_share(scale):
    with pytest.raises(InvalidValueError, match="--scale"):
        scaled_settings({}, scale)


def test_our_policies_come_with_their_settings_and_no_more_steps_than_they_need():
    row = ROWS["location-finding-score-P1"]
    ours, _ = planned(row, 0.01, policies="ours")
    training = ours.trained_by.policy_training
    assert (ours.policy, ours.trained_by.score_kind) == ("modes", "laplace")
    assert (training.steps, training.batch, training.learning_rate) == (600, 64, 3e-3)
    other, _ = planned(ROWS["location-finding-pce-P1"], 0.01, policies="ours")
    assert (other.policy, other.trained_by.inner) == ("modes", 19)
    # IO-SMC² needs designs with a density: it keeps the paper's policy.
    assert planned(ROWS["pendulum-iosmc-P1"], 0.01, policies="ours")[0].policy == "gru"
    # A posterior that is trained with its policy needs all of the steps.
    joint, _ = planned(ROWS["pendulum-jointvarpost-P1"], 0.01, policies="ours")
    assert joint.trained_by.policy_training.steps == 32_000


def test_what_the_user_sets_is_over_the_scale_and_for_the_rows_that_have_it():
    settings = ("score.steps=7", "policy_training.steps=3")
    score, _ = planned(ROWS["location-finding-score-P1"], 0.01, overrides=settings)
    assert score.trained_by.score.training.steps == 7
    pce, _ = planned(ROWS["location-finding-pce-P1"], 0.01, overrides=settings)
    assert pce.trained_by.policy_training.steps == 3


def test_names_of_rows_are_unique_within_a_table_and_mean_one_run():
    for name in TABLES:
        rows = table_rows(name)
        assert len({row.name for row in rows}) == len(rows)
        for row in rows:
            assert dataclasses.replace(row, label="").definition() == ROWS[row.name].definition()
