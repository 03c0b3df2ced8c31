"""Tasks with nuisance parameters and tasks without a density, by the command line: trained,
bounded, told about, refused.
"""

import json
import re

import jax.random as jr
import numpyro
import numpyro.distributions as dist
import pytest

import scorebed as sb
from scorebed.cli._app import run
from scorebed.errors import UnknownNameError
from scorebed.presets.reader import preset_values
from scorebed.runs.config import RunConfig, from_values
from scorebed.runs.execution import job_for
from scorebed.runs.spending import within_budget
from scorebed.runs.user_task import read_task
from scorebed.scores.conditional import ScorePair
from scorebed.tasks.declare import ranges
from scorebed.tasks.nuisance import has_nuisance, of_interest
from scorebed.tasks.numpyro import from_numpyro
from user_files import EXAMPLES, variant

SENSOR = f"{EXAMPLES / 'sensor_placement.py'}:SensorPlacement"
WASHOUT = f"{EXAMPLES / 'washout.py'}:Washout"
POLICY = ["steps=6", "batch=8", "monitor_every=3", "monitor_inner=4"]
POSTERIOR = ["width=8", "blocks=1"]
UPFRONT = ["steps=4", "batch=8"]
SCORE = ["steps=20", "batch=8", "width=8"]
# By table; of the score of a model with a density, of one without.
SIZES = {
    "policy_training": POLICY,
    "evaluation": ["outer=16", "tight_outer=0", "inner=8", "select_outer=4", "select_inner=4"],
    "pce": ["inner=3"],
    "static": ["inner=3"],
    "varpost": [*POSTERIOR, *UPFRONT],
    "jointvarpost": POSTERIOR,
    "posterior": [*POSTERIOR, *UPFRONT],
}
PARTICLES, NETWORK = [*SCORE, "particles=2", "cloud=2"], [*SCORE, "blocks=1"]


def small(name: str, method: str = "score") -> list[str]:
    """Options for a small run: sizes of the tables that it uses."""
    values = preset_values("quick", name, read_task(name).task, method=method)
    sizes = SIZES | {"score": PARTICLES if name == SENSOR else NETWORK}
    found = [f"{table}.{value}" for table in values if table in sizes for value in sizes[table]]
    return [part for value in found for part in ("--set", value)]


def refusal(capsys, *arguments) -> str:
    assert run([str(argument) for argument in arguments]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1), err
    return err


def config_of(name: str, method: str = "score", preset: str = "quick") -> RunConfig:
    return from_values(preset_values(preset, name, read_task(name).task, method=method))


# ---- refusals and settings


@pytest.mark.parametrize(
    ("name", "method", "words"),
    [
        (
            SENSOR,
            "nmc",
            "SensorPlacement, which has nuisance parameters, expected one of score, jointscore, "
            "pce, varpost, jointvarpost, static, random.",
        ),
        (SENSOR, "myopic", "which has nuisance parameters"),
        (SENSOR, "iosmc", "which has nuisance parameters"),
        (
            WASHOUT,
            "pce",
            "Washout, a model without a density, expected one of score, varpost, jointvarpost, "
            "random.",
        ),
        (WASHOUT, "jointscore", "a model without a density"),
    ],
    ids=lambda part: part.rpartition(":")[2].partition(",")[0],
)
def test_methods_that_cannot_work_are_refused(tmp_path, monkeypatch, capsys, name, method, words):
    monkeypatch.chdir(tmp_path)
    line = refusal(capsys, "train", name, "--method", method)
    assert f"the method {method}, got" in line
    assert words in line
    assert not (tmp_path / "runs").exists()


def test_settings_that_cannot_work_are_refused(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    line = refusal(capsys, "train", WASHOUT, "--set", "score.kind=particles")
    assert "likelihood particles, got Washout, a model without a density" in line
    assert "the method nmc" in refusal(capsys, "train", SENSOR, "--set", "method=nmc")
    wrong = variant(
        tmp_path, "SensorPlacement", ('"source x", "source y")', '"source x", "sorce y")')
    )
    assert "did you mean 'source y'?" in refusal(capsys, "train", wrong)


@pytest.mark.parametrize("preset", ["quick", "laptop", "paper"])
def test_presets_of_a_model_without_a_density(preset):
    config = config_of(WASHOUT, preset=preset)
    score = config.trained_by.score
    assert (score.name, score.training.weights) == ("transformer-direct", "none")
    assert score.kind.width % score.kind.heads == 0
    assert config.posterior is not None


def test_two_scores_cost_twice():
    config, task = config_of(SENSOR), read_task(SENSOR).task
    assert config.trained_by.score.kind.nle(task) == 2 * 8 * 8 * task.horizon
    contrastive = config_of(SENSOR, "pce")
    training, inner = contrastive.trained_by.policy_training, contrastive.trained_by.inner
    stage = contrastive.trained_by.train(job_for(contrastive, task), None, "policy-0-0", 1)
    assert stage.nle_of([3]) == 3 * training.batch * (2 * inner + 1) * task.horizon
    budget = 10**9
    inner = within_budget(contrastive, task, budget).trained_by.inner
    cost = lambda m: training.steps * training.batch * (2 * m + 1) * task.horizon  # noqa: E731
    assert cost(inner) <= budget < cost(inner + 1)
    washout, implicit = read_task(WASHOUT).task, config_of(WASHOUT)
    # Simulations alone.
    expected = (1024 + 3000 * 256) * washout.horizon
    assert implicit.trained_by.upfront_nle(job_for(implicit, washout)) == expected


def test_a_numpyro_model_names_its_parameters_of_interest():
    def model(xi):
        gain = numpyro.sample("gain", dist.Normal(0.0, 1.0))
        offsets = numpyro.sample("offsets", dist.Normal(0.0, 1.0).expand([2]))
        numpyro.sample("signal", dist.Normal(gain * xi[0] + offsets.sum(), 0.1))

    sizes = {"designs": ranges({"x": (-1.0, 1.0)}), "observe": "signal", "horizon": 2}
    task = from_numpyro(model, **sizes, interest=["gain", "offsets 2"])
    assert of_interest(task) == (0, 2)
    assert not has_nuisance(from_numpyro(model, **sizes))
    with pytest.raises(UnknownNameError, match="did you mean 'offsets 1'"):
        from_numpyro(model, **sizes, interest=["offsets1"])


# ---- the check


def test_the_check_tells_a_wrong_name_and_a_prior_that_mixes(tmp_path):
    named = read_task(
        variant(tmp_path, "SensorPlacement", ('"source x", "source y")', '"source z",)'))
    ).task
    assert "'source z'" in sb.check_task(named, key=jr.key(0))[0].sentence


@pytest.mark.slow
@pytest.mark.parametrize("name", [SENSOR, WASHOUT], ids=["nuisance", "implicit"])
def test_the_check_passes_both(tmp_path, capsys, name):
    assert run(["check", name, "--out", str(tmp_path / "picture.png"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["sound"], found["findings"]) == (True, [])
    assert (tmp_path / "picture.png").stat().st_size > 10_000


# ---- runs


def assert_diagnosed_without_truth(folder, task, capsys):
    """Where nothing can be compared, a diagnosis says so, and still whether the policy's designs
    are those of training.
    """
    assert run(["diagnose", str(folder), "--task", task, "--outer", "8", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert "gradient" not in found
    assert found["nle"] == 0
    assert 0 <= found["coverage"]["outside"] <= 1
    assert found["verdict"].startswith(("Unknown: there is no truth", "Doubtful"))
    assert (folder / "diagnosis.png").stat().st_size > 10_000
    assert "ground truth" in (folder / "report.html").read_text()


@pytest.mark.slow
def test_a_run_with_nuisance_parameters(tmp_path, capsys):
    folder = tmp_path / "run"
    assert run(["train", SENSOR, *small(SENSOR), "--out", str(folder), "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert (record["bound"], record["interest"]) == ("contrastive", ["source x", "source y"])
    assert (
        record["nle_evaluation"] == 4 * 16 * 17 * 6
    )  # the policy, random, spaced and static designs
    loaded = sb.load(folder, task=read_task(SENSOR).task)
    assert isinstance(loaded.score, ScorePair)
    report = " ".join((folder / "report.html").read_text().split())
    assert "They are about source x, source y alone: the other parameters are a nuisance." in report
    assert (
        run(["evaluate", str(folder), "--task", SENSOR, "--outer", "16", "--inner", "8", "--json"])
        == 0
    )
    assert json.loads(capsys.readouterr().out)["interest"] == ["source x", "source y"]
    assert set(record["coverage"]) == {"outside", "outside_by_step"}
    assert_diagnosed_without_truth(folder, SENSOR, capsys)
    assert "importance bounds" in refusal(
        capsys, "evaluate", folder, "--task", SENSOR, "--bound", "importance"
    )


@pytest.mark.slow
@pytest.mark.parametrize("method", ["jointscore", "pce", "varpost", "jointvarpost", "static"])
def test_other_methods_with_nuisance_parameters(tmp_path, capsys, method):
    few = [*small(SENSOR, method), "--set", "evaluation.references=false"]
    assert run(["train", SENSOR, *few, "--method", method, "--out", str(tmp_path / "run")]) == 0
    assert "about source x, source y alone" in " ".join(capsys.readouterr().out.split())


@pytest.mark.slow
def test_bounds_without_a_density(tmp_path, capsys):
    folder = tmp_path / "run"
    assert (
        run(
            [
                "train",
                WASHOUT,
                *small(WASHOUT, "random"),
                "--method",
                "random",
                "--out",
                str(folder),
            ]
        )
        == 0
    )
    out = " ".join(capsys.readouterr().out.split())
    assert re.search(r"policy random \S+ ± \S+ none 16 none", out), out
    assert "no density, so that there is no upper bound" in out
    assert run(["resume", str(folder), "--task", WASHOUT, "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert (record["bound"], record["upper"], record["ceiling"]) == ("posterior", None, None)
    assert isinstance(record["lower"], float)
    assert record["nle_evaluation"] == (4 * 8 + 16) * 4
    report = " ".join((folder / "report.html").read_text().split())
    assert "the model has no density, so that there is no upper bound" in report
    assert run(["evaluate", str(folder), "--task", WASHOUT, "--outer", "16", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["bound"], found["upper"], found["inner"]) == ("posterior", None, 0)
    assert "a model without a density" in refusal(
        capsys, "evaluate", folder, "--task", WASHOUT, "--bound", "importance"
    )


@pytest.mark.slow
def test_a_run_without_a_density(tmp_path, capsys):
    folder, once = tmp_path / "run", ["--set", "evaluation.references=false"]
    assert run(["train", WASHOUT, *small(WASHOUT), *once, "--out", str(folder)]) == 0
    assert isinstance(sb.load(folder, task=read_task(WASHOUT).task).score, ScorePair)
    capsys.readouterr()
    assert_diagnosed_without_truth(folder, WASHOUT, capsys)
