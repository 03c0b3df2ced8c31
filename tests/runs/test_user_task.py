"""Tasks from files: loaded because the user named them, never because a run did; errors are told by
the user's line.
"""

import json
import logging
import shutil
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpyro.distributions as dist
import pytest

import scorebed as sb
from scorebed.cli._app import run
from scorebed.errors import InvalidValueError
from scorebed.presets.reader import PRESETS, policy_for, preset_values
from scorebed.runs.artifacts import fingerprint
from scorebed.runs.config import from_values, read_toml
from scorebed.runs.serialisation import decode_leaves, encode_leaves, leaf_names
from scorebed.runs.user_task import read_task
from scorebed.tasks.base import Task
from scorebed.tasks.oracles.closed_form import GaussianPosterior
from scorebed.tasks.oracles.linear_gaussian import LinearGaussian
from scorebed.tasks.priors import Independent, Marginal
from scorebed.tasks.spaces import Quantity
from user_files import EXAMPLES, FILES, source, variant

SMALL = [
    "policy_training.steps=3",
    "policy_training.batch=4",
    "policy_training.monitor_every=3",
    "policy_training.monitor_inner=8",
]
BOUNDS = [
    "evaluation.outer=4",
    "evaluation.tight_outer=0",
    "evaluation.inner=8",
    "evaluation.references=false",
]
SETTINGS = [part for value in (*SMALL, *BOUNDS, "static.inner=3") for part in ("--set", value)]


def example(name: str) -> str:
    return f"{EXAMPLES / FILES[name]}:{name}"


def refusal(capsys, *arguments) -> str:
    """The one line with which a command is refused."""
    assert run([str(argument) for argument in arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert "Traceback" not in err
    return err


# ---- files


def test_a_task_is_a_class_or_an_instance(tmp_path):
    assert type(read_task(example("SamplingTimes")).task).__name__ == "SamplingTimes"
    name = variant(tmp_path, "SamplingTimes", more="\n\nmine = SamplingTimes()\n")
    assert read_task(name.replace(":SamplingTimes", ":mine")).task.horizon == 5


ORBIT = """
import jax.numpy as jnp, numpyro.distributions as dist
from scorebed.tasks.declare import measured, parameters, ranges
from scorebed.tasks.library.euler_maruyama import EulerMaruyama

class Orbit(EulerMaruyama):
    prior = parameters({"rate": dist.LogNormal(0.0, 0.1)})
    designs = ranges({"force": (-1.0, 1.0)})
    outcomes = measured("x")
    def drift(self, y, xi, theta):
        return jnp.stack([xi[0] - theta[0] * y[0]])
"""
BAD_FILES = {
    "no file": ("nothing.py:Mine", None, "the file nothing.py, got no such file", "check its name"),
    "no name": ("FILE", "", "got 'FILE', expected FILE.py:NAME", "a run knows what is built in"),
    "another suffix": ("my_task.txt:Mine", "", "expected FILE.py:NAME", "my_task.py"),
    "a syntax error": (
        "my_task.py:Mine",
        "a = 1\nb = (\n",
        "my_task.py, line 2, got '(' was never closed",
        "correct that line",
    ),
    "an exception": (
        "my_task.py:Mine",
        "a = 1\nb = 1 / 0\n",
        "my_task.py, line 2, got ZeroDivisionError: division",
        "correct",
    ),
    "an exit": (
        "my_task.py:Mine",
        "import sys\nsys.exit(3)\n",
        "my_task.py, line 2, got SystemExit: 3",
        "correct",
    ),
    "no task": ("my_task.py:Mine", "a = 1\n", "got no task in it", "docs/own-model.md"),
    "a wrong name": (
        "my_task.py:Orbti",
        ORBIT,
        "got 'Orbti', expected one of Orbit",
        "did you mean 'Orbit'?",
    ),
    "no such thing": (
        "my_task.py:jnp",
        ORBIT,
        "jnp of FILE.py, got a module, expected a scorebed task",
        "inherit from IID",
    ),
    "not a task": (
        "my_task.py:Mine",
        "class Mine: pass",
        "got a class that is not a task",
        "inherit from IID",
    ),
    "arguments": (
        "my_task.py:Mine",
        ORBIT + "class Mine(Orbit):\n    mass: float\n",
        "constructor that needs mass",
        "defaults",
    ),
    "unfinished": (
        "my_task.py:Orbit",
        ORBIT.replace("def drift", "def drfit").replace("    outcomes", "    outcome_"),
        "got no drift, outcomes, expected",
        "write drift and outcomes in the class",
    ),
    "a hidden horizon": (
        "my_task.py:Orbit",
        ORBIT + "    horizon = 7\n",
        "horizon = 7, which is not used: the task has 50",
        "my_task = Orbit(horizon=7)",
    ),
    "a wrong prior": (
        "my_task.py:Orbit",
        ORBIT.replace("dist.LogNormal(0.0, 0.1)", "1.0"),
        "my_task.py, line 7: the prior of rate, got 1.0",
        "dist.Normal(0.0, 1.0)",
    ),
}


@pytest.mark.parametrize("fault", BAD_FILES)
def test_a_bad_file_gets_one_line(tmp_path, monkeypatch, capsys, fault):
    monkeypatch.chdir(tmp_path)
    name, text, words, fix = BAD_FILES[fault]
    if text is not None:
        (tmp_path / "my_task.py").write_text(text)
        (tmp_path / "FILE").write_text(text)
    arguments = ["resume", ".", "--task", name] if fault == "no name" else ["train", name]
    line = refusal(capsys, *arguments)
    before, after = line.split(". Fix: ")
    assert words.replace("FILE.py,", "my_task.py,") in before
    assert fix in after
    assert not (tmp_path / "runs").exists()


def test_an_error_in_a_running_task_is_told_by_its_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    name = variant(
        tmp_path,
        "SamplingTimes",
        ("        decay =", "        if time > 1:\n            pass\n        decay ="),
    )
    line = refusal(capsys, "train", name, "--method", "static", *SETTINGS)
    assert "my_task.py, line 22, got a Python branch" in line
    assert "jnp.where" in line


def test_a_task_never_comes_from_a_name_alone():
    with pytest.raises(InvalidValueError, match="a file is only executed where its user names it"):
        sb.make_task(example("SamplingTimes"))


# ---- runs


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A small run of a task in a file, and the file."""
    folder = tmp_path_factory.mktemp("own")
    name = variant(folder, "SamplingTimes")
    assert run(["train", name, "--method", "static", *SETTINGS, "--out", str(folder / "run")]) == 0
    return folder, name


def test_a_run_keeps_name_and_hash_and_no_code(made):
    folder, name = made
    values = read_toml(folder / "run" / "config.toml")
    assert (values["task"], values["sources"]) == (name, {"task": read_task(name).digest})
    assert len(values["sources"]["task"]) == 64
    file, _, _ = name.rpartition(":")
    # Lines that say something: short ones may stand anywhere by chance.
    lines = [line.strip() for line in Path(file).read_text().splitlines()]
    code = [line.encode() for line in lines if len(line) > 20]
    assert len(code) > 10
    for path in (folder / "run").rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            assert not [line for line in code if line in content], path


@pytest.mark.parametrize("command", ["resume", "diagnose"])
def test_a_run_executes_no_file_by_itself(made, capsys, command):
    folder, name = made
    line = refusal(capsys, command, folder / "run")
    assert f"a run of {name}, got no task, expected --task FILE.py:NAME" in line
    assert f"--task {name}" in line


def test_the_same_file_is_taken_without_a_word(made, capsys, caplog):
    folder, name = made
    assert run(["resume", str(folder / "run"), "--task", name, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["task"] == name
    assert run(["report", str(folder / "run"), "--task", name]) == 0
    assert "The policy cannot be shown" not in (folder / "run" / "report.html").read_text()
    loaded = sb.load(folder / "run", task=read_task(name).task)
    assert (type(loaded.task).__name__, loaded.record.task) == ("SamplingTimes", name)
    assert caplog.records == []


def test_a_report_without_the_task_says_so(made):
    folder, _ = made
    assert run(["report", str(folder / "run")]) == 0
    assert "The policy cannot be shown: a run of" in (folder / "run" / "report.html").read_text()


def test_a_changed_file_is_refused_by_resume_and_told_by_the_others(made, capsys, tmp_path):
    folder, _ = made
    changed = variant(tmp_path, "SamplingTimes", ("0.1 + 0.1 * self", "0.1 + 0.2 * self"))
    line = refusal(capsys, "resume", folder / "run", "--task", changed)
    assert "a file that has changed since the run began" in line
    assert "train a new run" in line
    assert run(["report", str(folder / "run"), "--task", changed]) == 0
    assert "has changed since the run was made" in capsys.readouterr().err


def test_a_task_of_other_sizes_or_priors_is_refused(made, tmp_path):
    folder, _ = made
    for old, new in (
        ("horizon = 5", "horizon = 6"),
        ("LogNormal(0.4, 0.3)", "LogNormal(0.4, 0.5)"),
    ):
        other = read_task(variant(tmp_path, "SamplingTimes", (old, new)))
        with pytest.raises(InvalidValueError, match="made for another task, prior or horizon"):
            sb.load(folder / "run", task=other)


def test_a_task_without_a_file_is_told(made, caplog):
    folder, _ = made
    module = {"__name__": "nowhere"}
    exec(compile(source("SamplingTimes"), "<nowhere>", "exec"), module)
    logging.getLogger("scorebed").setLevel(logging.WARNING)
    sb.load(folder / "run", task=module["SamplingTimes"]())
    assert "SamplingTimes cannot be read" in caplog.text


def test_a_built_in_run_takes_no_task(tmp_path, capsys):
    settings = [part for value in BOUNDS for part in ("--set", value)]
    assert (
        run(
            [
                "train",
                "linear-gaussian",
                "--method",
                "random",
                *settings,
                "--out",
                str(tmp_path / "run"),
            ]
        )
        == 0
    )
    capsys.readouterr()
    assert "got a task of your own, expected none" in refusal(
        capsys, "resume", tmp_path / "run", "--task", example("Dosing")
    )


# ---- fingerprints and files of arrays


class Arrays(LinearGaussian):
    """Where a test puts a prior with arrays."""


def with_arrays() -> Task:
    marginal = Marginal(
        (Quantity("a"), Quantity("b")),
        dist.Normal(jnp.asarray([1.0, 2.0]), jnp.asarray([3.0, 4.0])),
    )
    return eqx.tree_at(lambda task: task.prior, Arrays(), Independent((marginal,)))


def test_fingerprints_and_leaf_names_do_not_depend_on_the_order_of_a_set(monkeypatch):
    task = with_arrays()
    first, names, saved = fingerprint(task), leaf_names(task), encode_leaves(task)
    assert names in (
        ["prior.marginals.0.distribution.loc", "prior.marginals.0.distribution.scale"],
        ["prior.marginals.0.distribution.scale", "prior.marginals.0.distribution.loc"],
    )
    fields = tuple(reversed(dist.Normal.gather_pytree_data_fields()))
    monkeypatch.setattr(dist.Normal, "gather_pytree_data_fields", staticmethod(lambda: fields))
    again = with_arrays()
    assert fingerprint(again) == first
    assert leaf_names(again) == names[::-1]
    other = jax.tree.map(lambda leaf: 0 * leaf if eqx.is_array(leaf) else leaf, again)
    loaded = decode_leaves(saved, other, where="the file").prior.marginals[0].distribution
    assert loaded.loc.tolist() == [
        1.0,
        2.0,
    ]  # by places, location and scale would have changed theirs
    assert loaded.scale.tolist() == [3.0, 4.0]


def test_a_fingerprint_sees_what_a_class_declares(tmp_path):
    replacements = [
        ("horizon = 5", "horizon = 6"),
        ("(0.1, 24.0)", "(0.2, 24.0)"),
        ("0.4, 0.3", "0.4, 0.2"),
        ("time [h]", "time [s]"),
        ("    additive", "    dose = 3.0\n    additive"),
        ("    additive", "    dose = 4.0\n    additive"),
    ]
    tasks = [read_task(variant(tmp_path, "SamplingTimes", pair)).task for pair in replacements]
    tasks.append(read_task(example("SamplingTimes")).task)
    assert len({fingerprint(task) for task in tasks}) == len(tasks)
    assert fingerprint(tasks[-1]) == fingerprint(read_task(variant(tmp_path, "SamplingTimes")).task)


# ---- presets


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("name", FILES)
def test_presets_fit_any_task(preset, name):
    task = read_task(example(name)).task
    config = from_values(preset_values(preset, name, task, method="score"))
    pooled = name != "Dosing"
    assert config.trained_by.score.name == (
        "transformer" if preset == "paper" else "particles" if pooled else "transformer-direct"
    )
    assert config.trained_by.score.training.lambda_y == "auto"
    assert (
        config.policy
        == policy_for("paper", task)
        == ("dad" if name == "SensorPlacement" else "gru")
    )
    assert sb.paper_sampler(task).horizon == task.horizon


@pytest.mark.slow
@pytest.mark.parametrize("name", ["Dosing", "ControlledSystem"])
def test_a_run_of_both_stages(tmp_path, name):
    sizes = ["score.steps=20", "score.batch=8", "score.width=8"] + [
        f"{key}={value}"
        for key, value in (("policy_training.steps", 6), ("evaluation.select_outer", 4))
    ]
    settings = [part for value in [*SMALL, *BOUNDS, *sizes] for part in ("--set", value)]
    assert run(["train", example(name), *settings, "--out", str(tmp_path / "run")]) == 0
    shutil.rmtree(tmp_path / "run" / "checkpoints", ignore_errors=True)
    assert (
        run(
            [
                "diagnose",
                str(tmp_path / "run"),
                "--task",
                example(name),
                "--outer",
                "16",
                "--inner",
                "64",
                "--truth",
                "importance",
            ]
        )
        == 0
    )


# ---- the known posterior


def test_the_controlled_system_has_the_posterior_that_its_file_says():
    """The gain is learnt from the velocity alone: precision 1 + Σ (0.1 ξ)²/0.05², the mean by
    regression on the innovations.
    """
    task = read_task(example("ControlledSystem")).task
    xis = jnp.linspace(-1.0, 1.0, 8)[:, None]
    ys = sb.simulate_outcomes(task, jnp.asarray([1.7]), xis, jr.normal(jr.key(0), (8, 2)))
    before = jnp.concatenate([jnp.zeros((1, 2)), ys[:-1]])
    innovations = ys[:, 1] - 0.9 * before[:, 1]
    precision = 1 + (0.1 * xis**2 * 0.1).sum() / 0.05**2
    exact = GaussianPosterior(
        (1 + (0.1 * xis[:, 0] * innovations).sum() / 0.05**2)[None] / precision,
        1 / precision[None, None],
    )
    grid = jnp.linspace(-3.0, 5.0, 4001)
    log_post = sb.log_likelihoods(task, grid[:, None], ys, xis) - 0.5 * (grid - 1.0) ** 2
    weights = jax.nn.softmax(log_post)
    mean = (weights * grid).sum()
    assert jnp.allclose(mean, exact.mean[0], atol=1e-3)
    assert jnp.allclose((weights * (grid - mean) ** 2).sum(), exact.covariance[0, 0], rtol=1e-3)


def test_the_tutorial_shows_the_files_as_they_are():
    page = (EXAMPLES.parents[1] / "docs" / "own-model.md").read_text()
    for name in ("SamplingTimes", "Dosing"):
        assert source(name) in page


def test_the_page_on_nuisances_shows_the_files_as_they_are():
    page = (EXAMPLES.parents[1] / "docs" / "nuisance-and-implicit.md").read_text()
    assert source("SensorPlacement") in page
    assert (EXAMPLES / "washout.py").read_text() in page
