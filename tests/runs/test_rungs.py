"""Restarts whose worse half is stopped again and again: exact costs, the same survivors after a
kill, nothing else changed.
"""

import dataclasses
import json
import math
import time

import equinox as eqx
import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_runs import finish, settings_of, tiny, train

from scorebed.cli._app import run as main
from scorebed.methods.base import Method
from scorebed.presets.reader import preset_values
from scorebed.runs import stage as checkpointed
from scorebed.runs.checkpoint import Checkpoints
from scorebed.runs.config import RunConfig, make_config
from scorebed.runs.execution import Execution, job_for
from scorebed.runs.folder import RunFolder
from scorebed.runs.load import load
from scorebed.runs.spending import within_budget
from scorebed.runs.stage import Progress
from scorebed.tasks import make_task
from scorebed.training.stage import Stage
from scorebed.training.successive_halving import block_size, places, rungs, stretched, taken

TASK = make_task("linear-gaussian")
P, HALVINGS = 5, 2
LAST = ("policy_training.keep=last", "policy_training.ema=0.5")


def configured(method: str = "pce", *overrides: str) -> RunConfig:
    values = preset_values("quick", "linear-gaussian", TASK, method=method, policy="static")
    sizes = [
        f"policies={P}",
        "policy_training.steps=24",
        "policy_training.monitor_every=8",
        "policy_training.batch=4",
    ]
    return make_config(values, [*tiny(method), *sizes, *overrides])


def halved(config: RunConfig, halvings: int = HALVINGS) -> RunConfig:
    method = config.trained_by
    training = dataclasses.replace(method.policy_training, halvings=halvings)
    return dataclasses.replace(
        config, trained_by=dataclasses.replace(method, policy_training=training)
    )


def stage_of(config: RunConfig, name: str = "policy-0-0", count: int = P) -> Stage:
    """The training of policies in a run without anything learned upfront."""
    return config.trained_by.train(job_for(config, TASK), None, name, count)


def ladder_of(method: Method, count: int):
    """The rungs of a method's restarts."""
    training = method.policy_training
    how = {"halvings": training.halvings, "every": training.monitor_every}
    return rungs(training.steps, count, **how)


# --- the ladder ----------------------------------------------------------------------------------


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 200), st.integers(1, 3000), st.integers(0, 12), st.integers(1, 100))
def test_rungs_cut_all_steps_at_blocks_and_halve_the_restarts(count, steps, halvings, every):
    how = {"halvings": halvings, "every": every}
    ladder = rungs(steps, count, **how)
    assert ladder[0].start == 0
    assert ladder[-1].end == steps
    assert [rung.start for rung in ladder[1:]] == [rung.end for rung in ladder[:-1]]
    assert all(rung.end % block_size(steps, every) == 0 or rung.end == steps for rung in ladder)
    assert [rung.restarts for rung in ladder[1:]] == [
        math.ceil(rung.restarts / 2) for rung in ladder[:-1]
    ]
    assert len(ladder) == 1 + min(halvings, math.ceil(math.log2(count)))
    # One restart after the other, step by step, as many as there are places.
    assert taken(ladder, steps) == sum(places(ladder, step) for step in range(steps))
    if halvings and count > 1:
        longer = stretched(steps, count, **how)
        cost = taken(rungs(longer, count, **how), longer)
        assert steps <= longer
        assert cost <= count * steps


@pytest.mark.parametrize("steps", [150, 300, 400, 600, 1000, 10_000])
def test_the_best_of_fifty_costs_less_than_fifteen(steps):
    ladder = rungs(steps, 50, halvings=6, every=50)
    assert [rung.restarts for rung in ladder] == [50, 25, 13, 7, 4, 2, 1]
    assert 6 < taken(ladder, steps) / steps < 8


# --- what it costs -------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["score", "jointscore", "pce", "nmc", "jointvarpost", "mlmc"])
def test_a_budget_is_used_and_never_overdrawn(method):
    config = halved(configured(method, "policies=7", "repeats=2", "preset=paper"))
    budget = 3_000_000 if method != "mlmc" else 300_000  # its costs are drawn, step by step
    found = within_budget(config, TASK, budget)
    plain = halved(found, 0)
    spent, unhalved = (each.trained_by.nle(job_for(each, TASK)) for each in (found, plain))
    assert spent <= budget
    if method in ("jointvarpost", "mlmc"):
        assert spent > 0.9 * budget
    assert spent < unhalved


def test_whoever_goes_on_the_charge_covers_it_and_of_equal_costs_it_is_exact():
    for method in ("pce", "mlmc"):
        stage = stage_of(halved(configured(method)))
        ladder, most = stage.ladder, stage.nle_at_most()
        assert [rung.restarts for rung in ladder] == [5, 3, 2]
        dice = np.random.default_rng(0)
        for _ in range(5):
            steps, going = [24] * P, list(range(P))
            for rung in ladder[:-1]:
                stopped = set(going) - set(
                    dice.permutation(going)[: places(ladder, rung.end)].tolist()
                )
                steps = [rung.end if number in stopped else n for number, n in enumerate(steps)]
                going = [number for number in going if number not in stopped]
            cost = stage.nle_of(steps)
            assert cost == most if method == "pce" else cost <= most


# --- who goes on ---------------------------------------------------------------------------------


class Killed(BaseException):
    """The end of a process, as far as its files can tell: nothing is written after it."""


def stage_2(path, config: RunConfig):
    """Policies as stage 2 gives them, from wherever the folder stands; and what it wrote of
    them.
    """
    folder = RunFolder.open(path).acquire() if path.exists() else RunFolder.create(path, config)
    with folder:
        work = Execution(folder, config, TASK, progress=Progress())
        stage = stage_of(config)
        watched = work._carried_out(stage)
        policies, survivors = stage.result(watched), stage.survivors(watched)
        work.stages.write(stage, watched, survivors)
        written, lines = folder.read_json("policy-0-0.json"), folder.read_metrics()
    return (
        np.asarray(jax.tree.leaves(eqx.filter(policies, eqx.is_inexact_array))[0]),
        written,
        lines,
    )


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A stage with halvings, never stopped."""
    return stage_2(tmp_path_factory.mktemp("whole") / "run", halved(configured("pce", *LAST)))


@pytest.mark.parametrize("keep", ["last", pytest.param("best", marks=pytest.mark.slow)])
def test_survivors_are_those_of_a_training_of_all_to_the_last_bit(whole, tmp_path, keep):
    config = configured("pce", *LAST, f"policy_training.keep={keep}")
    everyone, _, plain = stage_2(tmp_path / "all", config)
    best, written, lines = whole if keep == "last" else stage_2(tmp_path / "halved", halved(config))
    ladder = ladder_of(halved(config).trained_by, P)
    assert len(written["survivors"]) == len(best) == ladder[-1].restarts == 2
    np.testing.assert_array_equal(best, everyone[written["survivors"]])
    assert sorted(written["steps"]) == sorted([ladder[0].end] * 2 + [ladder[1].end] + [24] * 2)

    # The worse half was stopped, by the highest of its estimates so far.
    so_far = np.full(P, -np.inf)
    for line in (line for line in lines if "lower" in line):
        here = np.asarray([np.nan if value is None else value for value in line["lower"]])
        reached = [number for number, steps in enumerate(written["steps"]) if steps >= line["step"]]
        assert np.isfinite(here).nonzero()[0].tolist() == reached
        so_far = np.fmax(so_far, here)
        if line["step"] in [rung.end for rung in ladder[:-1]]:
            going = [number for number in reached if written["steps"][number] > line["step"]]
            stopped = [number for number in reached if number not in going]
            assert min(so_far[going]) >= max(so_far[stopped])
    # The ledger of selection counts every estimate that was made.
    stage = stage_of(halved(config))
    made = sum(lower is not None for line in lines if "lower" in line for lower in line["lower"])
    each = 128 * (config.trained_by.policy_training.monitor_inner + 1) * TASK.horizon
    assert stage.monitor_nle(written["steps"]) == made * each
    both = {line["step"]: line["lower"] for line in plain if "lower" in line}
    for line in lines:
        if line["step"] in both:
            pairs = zip(line["lower"], both[line["step"]], strict=True)
            assert all(ours in (None, theirs) for ours, theirs in pairs)


@pytest.mark.parametrize(
    "place",
    [*(pytest.param(place, marks=pytest.mark.slow) for place in ("first", "second")), "between"],
)
def test_a_stage_that_is_killed_stops_the_same_restarts(whole, tmp_path, monkeypatch, place):
    monkeypatch.setattr(checkpointed, "CHECKPOINT_SECONDS", 0.0)
    config = halved(configured("pce", *LAST))
    ladder = ladder_of(config.trained_by, P)
    at = {"first": ladder[0].end, "second": ladder[1].end, "between": ladder[1].end + 1}[place]
    save = Checkpoints.save

    def save_and_die(self, step, *arguments):
        save(self, step, *arguments)
        if step == at:
            raise Killed

    monkeypatch.setattr(Checkpoints, "save", save_and_die)
    with pytest.raises(Killed):
        stage_2(tmp_path / "killed", config)
    monkeypatch.setattr(Checkpoints, "save", save)
    found = stage_2(tmp_path / "killed", config)
    np.testing.assert_array_equal(found[0], whole[0])
    assert found[1] == whole[1]
    assert [line | {"seconds": 0} for line in found[2]] == [
        line | {"seconds": 0} for line in whole[2]
    ]


@pytest.mark.slow
def test_the_record_says_how_many_were_stopped_when_and_the_ledger_is_exact(tmp_path, capsys):
    path = tmp_path / "run"
    keys = ["policies=5", "policy_training.halvings=2", "evaluation.references=false"]
    arguments = settings_of([*tiny("pce"), *keys])
    code = main(
        [
            "train",
            "linear-gaussian",
            "--method",
            "pce",
            "--policy",
            "static",
            *arguments,
            "--out",
            str(path),
            "--json",
        ]
    )
    out = capsys.readouterr()
    assert code == 0, out.err
    record, config = json.loads(out.out), load(path).config
    first, second, last = ladder_of(config.trained_by, 5)
    assert record["restarts_stopped"] == {"policy-0-0": {str(first.end): 2, str(second.end): 1}}
    steps = 5 * first.end + 3 * (second.end - first.end) + 2 * (last.end - second.end)
    assert record["nle_stages"] == {"policy-0-0": steps * 16 * (1 + 3) * TASK.horizon}
    assert record["nle"] == config.trained_by.nle(job_for(config, TASK))
    choice = json.loads((path / "choice-0.json").read_text())
    left = [number for number, lower in enumerate(choice["lower"]) if lower is not None]
    assert left == json.loads((path / "policy-0-0.json").read_text())["survivors"]
    assert choice["best"] == max(left, key=lambda number: choice["lower"][number])
    assert record["chosen"] == {"policy_number": choice["best"]}
    lines = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    lowers = [lower for line in lines for lower in line.get("lower", ())]
    watched = sum(lower is not None for lower in lowers) * 128 * (50 + 1) * TASK.horizon
    assert record["nle_selection"] == watched + len(left) * 16 * (50 + 1) * TASK.horizon
    assert record["nle_references"] == 0


@pytest.mark.parametrize(("method", "words"), [("iosmc", "one policy at a time")])
def test_halvings_are_refused_where_nothing_can_be_halved(tmp_path, capsys, method, words):
    arguments = ["--method", method, "--policy", "gru", "--set", "policy_training.halvings=1"]
    assert main(["train", "linear-gaussian", *arguments, "--out", str(tmp_path / "run")]) == 2
    assert words in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


# --- the whole of it -----------------------------------------------------------------------------

MORE = [
    "--policies",
    "5",
    "--set",
    "policy_training.halvings=3",
    "--set",
    "evaluation.references=false",
]


@pytest.mark.slow
@pytest.mark.parametrize("method", ["score", "jointscore", "mlmc"])
def test_a_run_killed_on_the_way_ends_as_the_one_never_stopped(command, tmp_path, method):
    whole, path = tmp_path / "whole", tmp_path / "killed"
    finish(command(train(*MORE, "--out", whole, method=method)))
    process = command(train(*MORE, "--out", path, method=method))
    for kill in range(3):
        folder = path / "checkpoints" / "policy-0-0"
        wanted = (4, 14, 30)[kill]
        while process.poll() is None and not any(
            int(p.name[5:]) >= wanted for p in folder.glob("step-*")
        ):
            time.sleep(0.01)
        assert process.poll() is None, "the run ended before it could be killed"
        process.kill()
        process.communicate()
        process = command(["resume", str(path)])
    finish(process)
    for name in ("policy-0.safetensors", "policy-0-0.json", "choice-0.json"):
        assert (path / name).read_bytes() == (whole / name).read_bytes()
    ours, theirs = load(path).record, load(whole).record
    assert (ours.nle_stages, ours.restarts_stopped) == (theirs.nle_stages, theirs.restarts_stopped)
    assert sum(theirs.restarts_stopped["policy-0-0"].values()) == 4
