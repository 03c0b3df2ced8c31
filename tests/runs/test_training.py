"""A whole run on a closed-form task: it finishes, goes on after kill −9 where it was, and lends its
score to other runs.
"""

import json
import random
import time

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpyro.distributions as dist
import pytest
from tiny_runs import finish, same_parameters, train

from scorebed.bounds.contrastive import eig_bounds
from scorebed.cli._app import run as main
from scorebed.errors import UnknownNameError
from scorebed.keys import named
from scorebed.methods import METHODS
from scorebed.policies import POLICIES
from scorebed.presets.reader import PRESETS, preset_values
from scorebed.runs import seal
from scorebed.runs.artifacts import fingerprint, load_policy
from scorebed.runs.config import from_values
from scorebed.runs.folder import RunFolder
from scorebed.runs.load import load
from scorebed.runs.serialisation import read_metadata
from scorebed.tasks import TASKS, make_task
from scorebed.tasks.priors import Floored
from scorebed.training.successive_halving import block_size


def test_the_record_has_what_the_contract_names_and_the_ledger_adds_up(finished):
    run = load(finished)
    fields = (
        "run task method preset policies seed lower lower_se upper upper_se outer inner "
        "ceiling saturated nle"
    )
    written = json.loads((finished / "record.json").read_text())
    assert set(fields.split()) | {"nle_evaluation", "seconds", "references"} <= set(written)
    assert run.record.values() == seal.unsealed(written)
    T, points = run.task.horizon, 4
    score, policies = 60 * 16 * (1 + points) * T + 1024 * T, 2 * 40 * 16 * (1 + points) * T
    assert run.record.nle_stages == {"score-0": score, "policy-0-0": policies}
    assert run.record.nle == score + policies
    assert run.record.bounds.lower <= run.record.bounds.upper + 1e-6
    assert set(run.record.references) == {"random", "static"}
    for reference in run.record.references.values():  # on common draws: exactly the difference
        difference = run.record.bounds.lower - reference.lower
        assert reference.advantage == pytest.approx(difference, abs=1e-9)
        assert reference.advantage_at_least <= reference.advantage
    # The draws of the policy's bounds, by their key.
    static = load_policy(finished / "static.safetensors", POLICIES["static"], run.task)
    key = named(jr.key(run.record.seed), "bounds-0")
    same = eig_bounds(run.task, static, outer=32, inner=200, key=key)
    assert run.record.references["static"].lower == pytest.approx(same.lower, abs=1e-6)


def test_a_finished_run_answers_at_once_and_changes_nothing(finished, capsys):
    before = {p.name: p.read_bytes() for p in finished.glob("*.safetensors")}
    assert main(["resume", str(finished), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["lower"] == load(finished).record.bounds.lower
    assert {p.name: p.read_bytes() for p in finished.glob("*.safetensors")} == before


@pytest.mark.parametrize(
    ("steps", "every"), [(300, 25), (150, 25), (1000, 83), (5, 3), (2500, 208), (10_000, 1000)]
)
def test_blocks_end_where_the_bound_is_to_be_estimated(steps, every):
    size = block_size(steps, every)
    assert every % size == 0
    assert 1 <= size <= max(1, steps // 20)


def test_the_kept_policy_is_the_best_of_the_estimates_while_training(finished):
    choice = json.loads((finished / "choice-0.json").read_text())
    assert choice["lower"][choice["best"]] == max(choice["lower"])
    lines = [json.loads(line) for line in (finished / "metrics.jsonl").read_text().splitlines()]
    assert [
        line["step"] for line in lines if "lower" in line and line["stage"] == "policy-0-0"
    ] == [20, 40]


def test_a_run_killed_in_every_stage_and_resumed_ends_as_the_one_never_stopped(
    finished, command, tmp_path
):
    """Scores and policies of the two runs agree to the last bit."""
    path, dice = tmp_path / "killed", random.Random(0)
    for stage in ("score-0", "policy-0-0", "static"):
        started = (path / "config.toml").exists()
        process = command(
            ["resume", str(path)] if started else train("--policies", "2", "--out", path)
        )
        while process.poll() is None and not any((path / "checkpoints" / stage).glob("step-*")):
            time.sleep(0.01)
        time.sleep(dice.uniform(0, 0.1))
        assert process.poll() is None, f"the run ended before it could be killed in {stage}"
        process.kill()
        process.communicate()
    finish(command(["resume", str(path)]))
    assert same_parameters(path, finished)


def test_another_policy_trains_on_the_saved_score(finished, command, tmp_path):
    path = tmp_path / "second"
    options = ["--policy", "static", "--set", "evaluation.references=false"]
    finish(command(train("--score", finished, *options, "--out", path)))
    assert (path / "score-0.safetensors").read_bytes() == (
        finished / "score-0.safetensors"
    ).read_bytes()
    assert "score-0" not in load(path).record.nle_stages


@pytest.mark.slow
def test_a_score_that_learns_beside_its_policy_is_kept_apart_and_paid_for_by_each_policy(
    finished, command, tmp_path
):
    path = tmp_path / "joint"
    joint = [
        "--policies",
        "2",
        "--set",
        "score.weights=learned",
        "--set",
        "policy_training.limit=0.5",
    ]
    finish(command(train("--score", finished, *joint, "--out", path, method="jointscore")))
    run, before = load(path), load(finished)
    T, points = run.task.horizon, 4
    policies = 2 * 40 * (16 + 16) * (1 + points) * T
    assert run.record.nle_stages == {"weights": 1024 * T, "policy-0-0": policies}
    assert run.record.method == "jointscore"
    assert "specialised" in read_metadata(path / "joint-score-0.safetensors")
    assert (path / "score-0.safetensors").read_bytes() == (
        finished / "score-0.safetensors"
    ).read_bytes()
    shifts = jax.tree.map(
        lambda a, b: float(jnp.abs(a - b).max()),
        *[eqx.filter(r.score, eqx.is_inexact_array) for r in (run, before)],
    )
    assert max(jax.tree.leaves(shifts)) > 0


@pytest.mark.slow
@pytest.mark.parametrize("method", ["pce", "nmc"])
def test_a_contrastive_run_trains_no_score_and_spends_no_more_than_another(
    finished, command, tmp_path, method
):
    path = tmp_path / method
    finish(command(train("--match", finished, "--out", path, method=method)))
    record, config = json.loads((path / "record.json").read_text()), RunFolder.open(path).config()
    budget, each = load(finished).record.nle, 40 * 16 * 3
    inner = config.trained_by.inner
    assert inner == budget // each - 1
    assert record["nle_stages"] == {"policy-0-0": each * (inner + 1)}
    assert budget - each < record["nle"] <= budget
    assert not list(path.glob("score*"))


def test_a_score_made_for_another_task_is_refused_and_nothing_is_written(
    finished, tmp_path, capsys
):
    assert (
        main(["train", "pendulum", "--score", str(finished), "--out", str(tmp_path / "new")]) == 2
    )
    error = capsys.readouterr().err
    assert len(error.splitlines()) == 1
    assert "another task, prior or horizon" in error
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["train", "pendulun"], "did you mean 'pendulum'"),
        (["train", "pendulum", "--preset", "quik"], "did you mean 'quick'"),
        (["train", "pendulum", "--method", "scor"], "did you mean 'score'"),
        (["train", "pendulum", "--policy", "grru"], "did you mean 'gru'"),
        (["train", "pendulum", "--budget", "1e3"], "at least"),
        (["train", "pendulum", "--budget", "1.5"], "--budget"),
        (["train", "pendulum", "--method", "pce", "--budget", "1e3"], "at least"),
        (["train", "pendulum", "--budget", "1e9", "--match", "nowhere"], "one of them"),
        (["train", "pendulum", "--match", "nowhere"], "nowhere"),
        (["train", "pendulum", "--policy", "plan", "--set", "score.step=5"], "score.steps"),
        (["train", "pendulum", "--policies", "0"], "policies"),
        (["train", "pendulum", "--set", "score.learning_rate=nan"], "learning_rate"),
        (["resume", "no/such/run"], "no/such/run"),
        (["evaluate", "no/such/run", "--inner", "1e400"], "--inner"),
        (["evaluate", "no/such/run", "--outer", "2.5"], "--outer"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_input_is_one_line_and_writes_nothing(tmp_path, monkeypatch, capsys, arguments, words):
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert len(err.splitlines()) == 1
    assert words in err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("name", TASKS)
def test_every_preset_is_a_valid_configuration(preset, name):
    task = make_task(name)
    for method in METHODS:
        config = from_values(preset_values(preset, name, task, method=method))
        assert (config.preset, config.method) == (preset, method)


def test_an_unknown_preset_is_refused():
    with pytest.raises(UnknownNameError, match="laptop"):
        preset_values("lapto", "pendulum", make_task("pendulum"), method="score")


def test_a_fingerprint_sees_the_horizon_the_sizes_and_the_prior():
    tasks = [
        TASKS["pendulum"](),
        eqx.tree_at(
            lambda t: t.prior.marginals[0].distribution,
            TASKS["pendulum"](),
            dist.LogNormal(0.0, 0.2),
        ),
        eqx.tree_at(
            lambda t: t.prior.marginals[0].distribution,
            TASKS["pendulum"](),
            dist.LogNormal(0.2, 0.1),
        ),
        TASKS["gravimetry"](),
        eqx.tree_at(
            lambda t: t.prior.marginals[1].distribution,
            TASKS["gravimetry"](),
            Floored(dist.LogNormal(2.3, 0.5), 4.0),
        ),
        eqx.tree_at(
            lambda t: t.prior.marginals[1].distribution,
            TASKS["gravimetry"](),
            Floored(dist.LogNormal(2.3, 0.5), 5.0),
        ),
        TASKS["pendulum"](horizon=49),
        TASKS["cart-pole"](),
        TASKS["location-finding"](noise=0.4),
    ]
    assert len({fingerprint(task) for task in tasks}) == len(tasks)


def test_a_fingerprint_is_the_same_in_every_process(start_python):
    # numpyro gives the fields of a distribution in the order of a set, which differs from process
    # to process.
    show = "from scorebed.runs.artifacts import fingerprint; from scorebed.tasks import TASKS; "
    show += "print(*[fingerprint(make()) for make in TASKS.values()])"
    expected = [fingerprint(make()) for make in TASKS.values()]
    for seed in ("1", "2"):
        assert (
            start_python(show, environment={"PYTHONHASHSEED": seed}).stdout.read().split()
            == expected
        )
