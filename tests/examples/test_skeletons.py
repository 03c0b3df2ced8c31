"""The skeleton files do what they say, and a policy or an estimator of somebody's own is used as
the library's are.
"""

import importlib.util
import json

import jax.numpy as jnp
import jax.random as jr
import pytest

import scorebed as sb
from scorebed.check import check_task
from scorebed.cli._app import run
from scorebed.errors import InvalidValueError, UnknownNameError
from scorebed.keys import named
from scorebed.policies import POLICIES, register_policy
from scorebed.rollout import simulate
from scorebed.runs.user_task import read_task
from scorebed.tasks.oracles.linear_gaussian import LinearGaussian
from user_files import EXAMPLES

SKELETONS = EXAMPLES.parent / "skeletons"
TINY = [
    "policy_training.steps=3",
    "policy_training.batch=4",
    "pce.inner=3",
    "policy_training.monitor_every=3",
    "policy_training.monitor_inner=8",
    "evaluation.outer=4",
    "evaluation.tight_outer=0",
    "evaluation.inner=8",
]
SETTINGS = [part for value in TINY for part in ("--set", value)]


def module(name):
    spec = importlib.util.spec_from_file_location(f"skeleton_{name}", SKELETONS / f"{name}.py")
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


@pytest.fixture(autouse=True)
def forget_policies():
    known = dict(POLICIES)
    yield
    POLICIES.clear()
    POLICIES.update(known)


def test_every_skeleton_is_tested():
    assert {path.stem for path in SKELETONS.glob("*.py")} == {
        "dosing",
        "state_space",
        "policy",
        "estimator",
    }


def test_the_tutorials_show_the_models_of_the_skeletons():
    for page, skeleton, name in (
        ("dosing.md", "dosing", "Dosing"),
        ("state-space.md", "state_space", "Heating"),
    ):
        text = (EXAMPLES.parents[1] / "docs" / "tutorials" / page).read_text()
        code = (SKELETONS / f"{skeleton}.py").read_text().replace("class Mine(", f"class {name}(")
        lines = [
            line.partition("  # «")[0].rstrip()
            for line in code[code.index("class ") :].splitlines()
        ]
        missing = [
            line for line in lines if line.strip() and '"""' not in line and line not in text
        ]
        assert missing == [], page


@pytest.mark.slow
@pytest.mark.parametrize("name", ["dosing", "state_space"])
def test_the_models_are_sound(name):
    assert check_task(read_task(f"{SKELETONS / name}.py:Mine").task, key=jr.key(0)) == []


@pytest.mark.slow
def test_a_model_with_a_price_and_one_with_limits_train(tmp_path, capsys):
    for name in ("dosing", "state_space"):
        task = f"{SKELETONS / name}.py:Mine"
        out = tmp_path / name
        assert run(["train", task, "--method", "pce", *SETTINGS, "--out", str(out), "--json"]) == 0
        record = json.loads(capsys.readouterr().out)
        assert set(record["references"]) == {"random", "spaced", "static"}
        priced = name == "dosing"
        assert all(("cost" in part) == priced for part in (record, *record["references"].values()))
        loaded = sb.load(out, task=read_task(task).task)
        trained = simulate(loaded.task, loaded.policy, key=jr.key(0))
        if priced:
            assert 0 < record["cost"] < 4 * 50
            assert abs(record["cost_nats"] - 0.01 * record["cost"]) < 1e-6
            assert "they cost" in (out / "report.html").read_text()
        else:
            assert loaded.task.feasible.holds(trained.xis)
        assert (
            run(["evaluate", str(out), "--task", task, "--outer", "4", "--inner", "8", "--json"])
            == 0
        )
        assert ("cost" in json.loads(capsys.readouterr().out)) == priced


def test_a_policy_is_made_by_its_name_and_told_what_is_wrong():
    mine = module("policy").Mine
    assert POLICIES["mine"] is mine
    task = LinearGaussian(horizon=3)
    assert isinstance(sb.make_policy("mine", task, key=jr.key(0)), mine)
    for name, words in (
        ("dad", "which is built in"),
        ("My Policy", "small letters"),
        ("", "small letters"),
    ):
        with pytest.raises(InvalidValueError, match=words):
            register_policy(name)
    with pytest.raises(UnknownNameError, match="did you mean 'mine'"):
        sb.make_policy("mein", task, key=jr.key(0))


@pytest.mark.slow
def test_a_policy_of_a_file_is_trained_and_loaded(tmp_path, capsys):
    task = f"{SKELETONS / 'policy.py'}:task"
    arguments = [
        "train",
        task,
        "--method",
        "pce",
        "--policy",
        "mine",
        *SETTINGS,
        "--out",
        str(tmp_path / "run"),
        "--json",
    ]
    assert run([*arguments, "--set", "evaluation.references=false"]) == 0
    assert json.loads(capsys.readouterr().out)["policy"] == "mine"
    loaded = sb.load(tmp_path / "run", task=read_task(task).task)
    assert type(loaded.policy).__name__ == "Mine"
    assert run(["report", str(tmp_path / "run"), "--task", task]) == 0
    assert "The policy cannot be shown" not in (tmp_path / "run" / "report.html").read_text()


@pytest.mark.slow
def test_an_estimator_takes_the_place_of_a_score():
    """Designs of y = ξθ + ε within ±3 grow as far as they can: EIG = ½ log(1 + Σ ξ²). Descent would
    shrink them.
    """
    task, estimate = LinearGaussian(horizon=3), module("estimator").estimate
    sizes = {"steps": 20, "batch": 8, "learning_rate": 0.05}
    trained = sb.train_policies(task, estimate, "static", **sizes, key=jr.key(0)).policies
    fresh = sb.make_policy("static", task, key=jr.split(named(jr.key(0), "init"), 1)[0])
    assert trained.us.shape == (1, 3, 1)
    assert jnp.abs(trained.us).sum() > jnp.abs(fresh.us).sum() * 0.5
    with pytest.raises(InvalidValueError, match="expected a score or a density"):
        sb.train_policies(task, estimate, trained, steps=1, trajectory_clip=0.5, key=jr.key(0))


@pytest.mark.slow
def test_the_estimator_skeleton_runs(capsys):
    bounds = module("estimator").main(steps=40)
    assert bounds.lower > 0.5
    assert "nats" in capsys.readouterr().out
