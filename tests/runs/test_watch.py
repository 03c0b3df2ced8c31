"""The time of a run, watched: stages end at a block once their share is over, at steps that are
written down, and what they come to is that of as many steps of any run.
"""

import dataclasses
import json
import shutil
import time

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest
from tiny_runs import settings_of, tiny

import scorebed.runs.spending as spending
import scorebed.runs.stage as checkpointed
import scorebed.runs.watch as module
from scorebed.cli._app import run as main
from scorebed.presets.reader import preset_values
from scorebed.runs.config import make_config
from scorebed.runs.folder import RunFolder
from scorebed.runs.ledgers import RunLedgers
from scorebed.runs.load import load
from scorebed.runs.stage import Progress, StageCheckpointer
from scorebed.runs.watch import FILE, LEAST_INNER, LEAST_OUTER, Watch, affordable_sizes
from scorebed.tasks.library.location import LocationFinding
from scorebed.training.fit import fit_one
from scorebed.training.stage import BatchStage, FixedCost, SingleStage

STEPS, BLOCK = 12, 2


def descent(_):
    return lambda params, key: {"loss": ((params["x"] - jr.normal(key)) ** 2).sum()}


def single() -> SingleStage:
    return SingleStage(
        name="score-0",
        steps=STEPS,
        make=lambda: {"x": jnp.zeros(())},
        loss_for=descent,
        optimiser=optax.sgd(0.1),
        block=BLOCK,
        step_nle=7,
        once_nle=3,
        key=jr.key(0),
    )


def batch() -> BatchStage:
    """Two restarts, judged by an estimate that likes large parameters, once at the end."""

    def gradient_for(_):
        return lambda params, key: ({"loss": params["x"]}, {"x": -1 - 0 * jr.normal(key)})

    return BatchStage(
        name="policy-0-0",
        steps=STEPS,
        count=2,
        make=lambda: {"x": jnp.asarray([0.0, 5.0])},
        gradient_for=gradient_for,
        optimiser=optax.sgd(1.0),
        block=BLOCK,
        estimate=lambda policy: float(policy["x"]),
        estimate_nle=11,
        every=STEPS,
        costs=FixedCost(1),
        key=jr.key(0),
    )


class Clock:
    """Seconds that pass only when they are told to."""

    def __init__(self, monkeypatch):
        self.now = 100.0
        monkeypatch.setattr(time, "monotonic", lambda: self.now)


def carried_out(folder, stage, watch, clock, *, stop_at=None):
    """The stage, every block of which takes ten seconds."""

    class Slow(Progress):
        def update(self, done, note, total=None):
            del note, total
            clock.now += 10
            if done == stop_at:
                raise KeyboardInterrupt

    found = StageCheckpointer(folder, Slow(), stage, watch=watch, share=0.5)
    return found.carry_out()


def test_a_stage_ends_at_the_first_block_after_its_share(config, tmp_path, monkeypatch):
    """Of two minutes 90 s are for training; half of that is over after five blocks of ten. The
    parameters are those of that many steps of an unwatched training.
    """
    clock = Clock(monkeypatch)
    with RunFolder.create(tmp_path / "run", config) as folder:
        watch = Watch(folder, 2.0, begun=clock.now)
        watched = carried_out(folder, single(), watch, clock)
        assert watch.ends == {"score-0": 10}
    assert watched.done == 10
    assert single().nle(watched) == 3 + 10 * 7
    alone = fit_one(
        descent, {"x": jnp.zeros(())}, steps=10, optimiser=optax.sgd(0.1), block=2, key=jr.key(0)
    )
    assert float(single().result(watched)["x"]) == float(alone["x"])


def test_a_stage_that_is_interrupted_ends_where_it_would_have(config, tmp_path, monkeypatch):
    """Seconds of both processes count, the share is that of the first, and the end that was written
    down is kept even if the clock is kinder afterwards.
    """
    monkeypatch.setattr(checkpointed, "CHECKPOINT_SECONDS", 0.0)
    clock = Clock(monkeypatch)
    with RunFolder.create(tmp_path / "run", config) as folder:
        with pytest.raises(KeyboardInterrupt):
            carried_out(folder, single(), Watch(folder, 2.0, begun=clock.now), clock, stop_at=6)
        allotted = json.loads((folder.path / FILE).read_text())["allotted"]
        assert allotted == {"score-0": 45.0}
    clock.now = 5000.0
    with RunFolder.open(tmp_path / "run").acquire() as folder:
        watch = Watch(folder, 2.0, begun=clock.now, spent=30.0)
        assert watch.elapsed == 30
        watched = carried_out(folder, single(), watch, clock)
        assert watched.done == watch.ended("score-0") == 10
    clock.now = 0.0
    with RunFolder.open(tmp_path / "run").acquire() as folder:
        again = carried_out(folder, single(), Watch(folder, 1e6, begun=0.0), clock)
    jax.tree.map(np.testing.assert_array_equal, again, watched)


def test_a_stage_that_the_clock_ended_is_charged_for_the_steps_it_took():
    ledgers = RunLedgers(0, 2)
    ledgers.train("score-0", single().nle_at_most())
    ledgers.settle_shared("score-0", single().nle_of([10]))
    assert ledgers.per_repeat == [73, 73]
    assert ledgers.training.spent == 73


def test_policies_that_are_ended_early_are_judged_where_they_stand(config, tmp_path, monkeypatch):
    """Their only estimate was due at the last step: without one the best would be the first
    parameters.
    """
    clock = Clock(monkeypatch)
    stage = batch()
    with RunFolder.create(tmp_path / "run", config) as folder:
        watched = carried_out(folder, stage, Watch(folder, 2.0, begun=clock.now), clock)
    assert watched.done == 10
    np.testing.assert_array_equal(stage.result(watched)["x"], [10, 15])
    np.testing.assert_array_equal(watched.lower, [10, 15])
    assert stage.ended_nle == 2 * 11


def test_a_stage_has_some_time_after_its_compilation_however_late_it_is(
    config, tmp_path, monkeypatch
):
    clock = Clock(monkeypatch)
    monkeypatch.setattr(module, "LEAST_SHARE", 0.2)  # 24 s: three blocks after the first
    with RunFolder.create(tmp_path / "run", config) as folder:
        watch = Watch(folder, 2.0, begun=clock.now, spent=1000.0)
        assert carried_out(folder, single(), watch, clock).done == 8


def test_a_run_without_minutes_or_of_a_comparison_is_not_watched(config, tmp_path):
    with RunFolder.create(tmp_path / "run", config) as folder:
        assert Watch.of(folder, 4.0, begun=0.0) is None
        Watch.start(folder)
        assert Watch.of(folder, 0.0, begun=0.0) is None
        assert Watch.of(folder, 4.0, begun=time.monotonic()).seconds == 240


@pytest.mark.parametrize(
    ("rate", "designs", "expected"),
    [
        (1e9, 0.0, (512, 100_000)),
        (256 * 100_001.0, 0.0, (256, 100_000)),
        (1.0, 0.0, (LEAST_OUTER, LEAST_INNER)),
        (64 * 1000.0, 0.0, (64, 999)),
        (256 * 300_001.0, 200_000.0, (256, 100_000)),
        (1.0, 50_000.0, (LEAST_OUTER, 50_000)),  # parameters cost as much as the designs
        (1.0, 1e9, (LEAST_OUTER, 100_000)),
    ],
)
def test_the_sizes_of_a_round_fit_the_time_experiments_first(rate, designs, expected):
    found = affordable_sizes(512, 100_000, designs=designs, rate=rate, seconds=1.0)
    assert found == expected


def test_nothing_is_timed_where_nothing_is_trained(monkeypatch):
    """A policy that looks ahead: static designs have the preset's steps, and the clock."""
    monkeypatch.setattr(spending, "timed_paces", None)
    task = LocationFinding(sources=1, horizon=2)
    values = preset_values("quick", "location-finding", task, method="pce", policy="lookahead")
    config = make_config(values)
    found = spending.within_minutes(config, task, 3.0, begun=0.0)
    assert found == dataclasses.replace(config, minutes=3.0)


def test_bounds_take_further_rounds_while_there_is_time(finished, tmp_path, monkeypatch):
    """On the draws of the rounds, common to all designs: pooled sizes, smaller errors, paired
    differences; a resumed run has the same figures.
    """
    path = shutil.copytree(finished, tmp_path / "run")
    text = (path / "config.toml").read_text()
    edited = text.replace("minutes = 0.0", "minutes = 2.0")
    (path / "config.toml").write_text(edited[: edited.rindex("# sha256")])
    (path / "record.json").unlink()
    (path / FILE).write_text('{"allotted": {}, "ended": {}, "sizes": [32, 200]}')
    before = load(finished).record
    with monkeypatch.context() as patched:
        patched.setattr("scorebed.runs.run_bounds.MOST_ROUNDS", 2)
        assert main(["resume", str(path)]) == 0
        found = load(path).record
        assert found.bounds.outer == 3 * 32
        assert found.bounds.lower_se < before.bounds.lower_se
        assert all(each.outer == 96 for each in found.references.values())
        for each in found.references.values():
            difference = found.bounds.lower - each.lower
            assert each.advantage == pytest.approx(difference, abs=1e-6)
        (path / "record.json").unlink()
        assert main(["resume", str(path)]) == 0
        assert load(path).record.bounds == found.bounds


@pytest.mark.slow
def test_minutes_are_those_of_the_whole_run(tmp_path, capsys):
    steps = ("score.steps", "policy_training.steps")
    few = settings_of([setting for setting in tiny() if not setting.startswith(steps)])
    out = str(tmp_path / "run")
    assert main(["train", "linear-gaussian", *few, "--minutes", "0.5", "--out", out, "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["outer"] >= 32
    assert {"random", "static"} <= set(record["references"])


LEVELS = """
import jax
import jax.numpy as jnp
import numpyro.distributions as dist

import scorebed as sb


class Levels(sb.IID, sb.Discrete):
    horizon = 2
    prior = sb.parameters({"level": dist.Normal(0.0, 1.0)})
    designs = sb.ranges({"place": [-1, 0, 1]})
    outcomes = sb.categories("above", ("no", "yes"))

    def probabilities(self, theta, state, xi):
        yes = 0.1 + 0.8 * jax.nn.sigmoid(4 * (theta[0] - xi[0]))
        return jnp.stack([1 - yes, yes])
"""


@pytest.mark.slow
def test_minutes_are_forecast_where_the_policy_has_nothing_to_train(tmp_path, capsys):
    """The pace is then that of the static designs that the policy is compared with."""
    (tmp_path / "levels.py").write_text(LEVELS)
    task, out = f"{tmp_path}/levels.py:Levels", str(tmp_path / "run")
    kept = [setting for setting in tiny("predictive") if ".steps" not in setting]
    few = [*settings_of(kept), "--policy", "lookahead", "--minutes", "0.05"]
    assert main(["train", task, *few, "--out", out, "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["policy"] == "lookahead"
    assert isinstance(record["references"]["static"]["advantage"], float)
    allotted = json.loads((tmp_path / "run" / FILE).read_text())["allotted"]
    assert allotted.keys() == {"predictive-0", "static"}
