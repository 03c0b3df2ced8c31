"""`scorebed diagnose`: its verdict follows the score on disk, its files hold what it answers, and
bad input is one line.
"""

import dataclasses
import json
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import pytest
from jaxtyping import Array, Float

import scorebed.scores
import scorebed.tasks
from records import some_record
from scorebed.cli._app import run as main
from scorebed.diagnostics.ground_truth import HISTORIES, TRUTHS, Sizes
from scorebed.nle import Ledger
from scorebed.policies import make_policy
from scorebed.runs import seal
from scorebed.runs.artifacts import fingerprint
from scorebed.runs.config import from_values, to_toml
from scorebed.runs.load import load
from scorebed.runs.serialisation import save_leaves
from scorebed.samplers.paper import paper_sampler
from scorebed.scores.base import Score, ScoreKind, ScoreValue
from scorebed.scores.exact import ExactScore
from scorebed.scores.reference import ImportanceTruth, SMCTruth
from scorebed.tasks import make_task
from scorebed.tasks.library.pendulum import Pendulum
from scorebed.training.score import fresh_score

SMALL = ["--outer", "256", "--json"]
FILES = {"config.toml", "policy-0.safetensors", "record.json", "score-0.safetensors"}


class Scaled(Score):
    """The exact score times a factor, which is all that its file holds."""

    factor: Float[Array, ""]
    exact: ExactScore

    def __call__(self, ys, xis):
        s = self.exact(ys, xis)
        return ScoreValue(self.factor * s.y, self.factor * s.xi)

    @property
    def nle(self):
        return 0


class Shrunk(Score):
    """A guess, at a price of seven: outcomes are pulled to zero."""

    factor: Float[Array, ""]

    def __call__(self, ys, xis):
        return ScoreValue(-self.factor * ys, jnp.zeros_like(xis))

    @property
    def nle(self):
        return 7


class ShrunkKind(ScoreKind):
    """Makes `Shrunk`."""

    def make(self, task, standardise, *, key):
        del task, standardise, key
        return Shrunk(jnp.ones(()))

    def nle(self, task):
        del task
        return 7


class ScaledKind(ScoreKind):
    """Makes `Scaled`."""

    def make(self, task, standardise, *, key):
        del standardise, key
        return Scaled(jnp.ones(()), ExactScore(task))

    def nle(self, task):
        del task
        return 0


@pytest.fixture
def short_pendulum(monkeypatch):
    """Three steps of a task without a closed form, and a score that compiles at once."""
    monkeypatch.setitem(scorebed.tasks.TASKS, "pendulum", lambda: Pendulum(horizon=3))
    monkeypatch.setitem(scorebed.scores.SCORES, "particles", ShrunkKind)


@pytest.fixture
def scaled(monkeypatch):
    """Runs whose score is the exact one: a table of scores in which a name stands for it."""
    monkeypatch.setitem(scorebed.scores.SCORES, "particles", ScaledKind)


def make_run(path, name="linear-gaussian", *, edit=lambda leaf: leaf):
    """A finished run of static designs, by hand and without training; `edit` changes every array of
    its score.
    """
    path.mkdir()
    rates = {"steps": 8, "batch": 4, "learning_rate": 1e-3}
    fields = {field.name for field in dataclasses.fields(scorebed.scores.SCORES["particles"])}
    sizes = {k: v for k, v in {"width": 4, "particles": 2, "cloud": 2}.items() if k in fields}
    config = from_values(
        {"task": name, "method": "score", "preset": "quick", "policy": "static"}
        | {"score": rates | {"kind": "particles", "clip": 1.0} | sizes}
        | {
            "policy_training": rates
            | {"schedule": "constant", "monitor_every": 4, "monitor_inner": 9}
        }
        | {"evaluation": {"outer": 8, "inner": 9, "select_outer": 8, "select_inner": 9}}
    )
    (path / "config.toml").write_text(to_toml(config))
    (path / "record.json").write_text(json.dumps(some_record(task=name).values()))
    task = make_task(name)
    score = fresh_score(config.trained_by.score.kind, task, paper_sampler(task), key=jr.key(0))
    parts = {"score": score, "policy": make_policy("static", task, key=jr.key(1))}
    for kind, part in parts.items():
        arrays = eqx.filter(part, eqx.is_array)
        arrays = jax.tree.map(edit, arrays) if kind == "score" else arrays
        save_leaves(path / f"{kind}-0.safetensors", arrays, {"task": fingerprint(task)})
    return path


@pytest.fixture(scope="module")
def untouched(tmp_path_factory):
    """A run that nothing may write to."""
    return make_run(tmp_path_factory.mktemp("untouched") / "run")


def diagnosis(capsys, *arguments):
    assert main(["diagnose", *map(str, arguments)]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.slow
def test_a_fault_of_the_score_on_disk_turns_the_verdict(tmp_path, capsys, scaled):
    del scaled
    good = diagnosis(capsys, make_run(tmp_path / "good"), *SMALL)
    assert good["verdict"].startswith("Good: ")
    assert good["relative_bias_upper"] < 1e-3
    assert (good["truth"], good["inner"], good["particles"], good["effective_draws"]) == (
        "exact",
        None,
        None,
        None,
    )

    # Half as much again still points uphill.
    long = diagnosis(capsys, make_run(tmp_path / "long", edit=lambda leaf: 1.5 * leaf), *SMALL)
    assert long["verdict"].startswith("Good: ")
    assert (long["cosine"], long["length"]) == pytest.approx((1, 1.5), rel=1e-3)

    # Downhill: the bias is twice the gradient at this policy, and less of a larger one at the
    # untrained.
    poor = diagnosis(capsys, make_run(tmp_path / "poor", edit=lambda leaf: -leaf), *SMALL)
    assert poor["verdict"].startswith("Poor: ")
    assert poor["cosine"] == pytest.approx(-1, abs=1e-3)
    norm = max(gradient["squared_norm"] for gradient in poor["gradient"].values())
    expected = 2 * math.sqrt(poor["gradient"]["trained"]["squared_norm"] / norm)
    assert poor["relative_bias"] == pytest.approx(expected, rel=1e-3)
    for error in poor["score_error"].values():
        assert (error["y"], error["xi"]) == pytest.approx((4, 4), rel=1e-3)


def test_files_hold_the_answer_and_the_report_shows_it(tmp_path, capsys, scaled):
    del scaled
    run = make_run(tmp_path / "run")
    answer = diagnosis(capsys, run, *SMALL)
    assert seal.unsealed(json.loads((run / "diagnosis.json").read_text())) == answer
    assert (run / "diagnosis.png").read_bytes().startswith(b"\x89PNG\r\n")
    page = (run / "report.html").read_text()
    assert answer["verdict"].replace("'", "&#39;") in page
    assert "data:image/png;base64,iVBOR" in page
    # T = 3; own likelihoods, and PCE with 15 and 255 rivals. Neither the exact score nor its copy
    # costs anything.
    assert answer["nle_stages"] == {
        "gradient": 256 * 3 * (1 + 16 + 256),
        "gradient-untrained": 256 * 3,
        "score-sampler": 0,
        "score-policy": 0,
    }
    assert answer["nle"] == 256 * 3 * 274


def test_the_theory_is_measured_where_it_is_asked_for(tmp_path, capsys, scaled):
    """Half as much again as the exact score: e = s/2 in both parts. Its loss is E‖e‖² and the noise
    of the target, and static designs leave the ξ-part out of the bound.
    """
    del scaled
    run = make_run(tmp_path / "run", edit=lambda leaf: 1.5 * leaf)
    assert main(["diagnose", str(run), "--outer", "16", "--theory", "64"]) == 0
    out = capsys.readouterr().out
    found = seal.unsealed(json.loads((run / "diagnosis.json").read_text()))
    bound, loss = found["theory"]["error_bound"], found["theory"]["loss"]
    assert bound["mean_error_xi"] == 0
    assert 0 < bound["sharper"] <= bound["bound"]
    assert bound["bound"] == pytest.approx(bound["lipschitz_y"] * bound["mean_error_y"])
    assert set(loss) == {"sampler", "policy"}
    for part in (part for each in loss.values() for part in each.values()):
        whole = part["squared_bias"] + part["error_variance"] + part["target_noise"]
        assert abs(part["loss"] - whole - part["remainder"]) < 1e-5 * part["loss"]
        assert abs(part["remainder"]) < 4.892 * part["remainder_se"]
    # T = 3: neither the exact truth nor the score costs anything, the target of the loss one each.
    stages = found["nle_stages"]
    assert [stages[f"{n}"] for n in ("error-bound", "loss-sampler", "loss-policy")] == [
        0,
        64 * 3,
        64 * 3,
    ]
    lines = out.splitlines()
    assert lines[-1] == found["verdict"]
    assert any(line.split()[-1:] == [f"{found['nle']:,}"] for line in lines)
    assert "bound on the gradient's error" in out
    assert "loss of the ξ-part, sampler designs" in out


@pytest.mark.slow
def test_importance_sampling_comes_to_the_same_verdict_and_is_paid_for(tmp_path, capsys, scaled):
    del scaled
    inner = ["--truth", "importance", "--inner", "4000"]
    found = diagnosis(capsys, make_run(tmp_path / "poor", edit=lambda leaf: -leaf), *inner, *SMALL)
    assert found["verdict"].startswith("Poor: ")
    assert (found["truth"], found["inner"], found["particles"]) == ("importance", 4000, None)
    assert 100 < found["effective_draws"] < 4000
    for error in found["score_error"].values():
        assert (
            abs(error["y"] - 4) < 4.892 * error["y_se"] + 0.1
        )  # and the bias of a truth of some hundred draws
    draws, T = 256 * 4000, 3
    assert found["nle_stages"] == {
        "truth-quality": 2 * (32 + 2 * 64) * 4000 * T,
        "gradient-untrained": draws * T + 256 * T,
        "gradient": draws * T + 256 * T * (1 + 16 + 256),
        "score-sampler": draws * T,
        "score-policy": draws * T,
    }


@pytest.mark.slow
def test_few_draws_are_replaced_by_particles(tmp_path, capsys, short_pendulum):
    del short_pendulum
    run, T, calls = make_run(tmp_path / "run", "pendulum"), 3, 16
    small = [
        "--outer",
        str(calls),
        "--inner",
        "90",
        "--particles",
        "64",
        "--draws",
        "1",
        "--json",
    ]  # one draw around the modes is doubted, and 90 of the prior cannot be 100 effective ones
    assert main(["diagnose", str(run), *small]) == 0
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert (found["truth"], found["inner"], found["particles"]) == ("smc", None, 64)
    assert "tempered SMC with 64 particles" in err
    assert "effective draws" not in found["verdict"]
    assert found["truth_noise"] > 0
    ladders = found["nle_stages"]["score-policy"] - calls // 2 * 7
    assert ladders % (64 * T) == 0
    assert (
        ladders >= calls * 64 * T * 10
    )  # two truths of four groups of two: the start, a level of eight moves, and the mean
    assert found["nle"] == sum(found["nle_stages"].values())


def test_a_truth_that_was_asked_for_is_taken_whatever_its_draws(tmp_path, short_pendulum):
    del short_pendulum
    run = load(make_run(tmp_path / "run", "pendulum"))
    chosen = {}
    for wanted in ("importance", "smc"):
        ledger = Ledger()
        found = TRUTHS[wanted](run.task, [run.policy], Sizes(90, 64), ledger, key=jr.key(0))
        chosen[wanted] = (found.truth, found.name, found.quality, ledger.spent)
    truth, name, quality, spent = chosen["smc"]
    assert (truth, name) == (SMCTruth(run.task, 64), "smc")
    assert 0 < quality.noise < math.inf
    assert spent > 2 * HISTORIES * 64 * 3
    truth, name, quality, spent = chosen["importance"]
    assert (truth, name, spent) == (ImportanceTruth(run.task, 90), "importance", 32 * 90 * 3)
    assert 1 <= quality.ess <= 90
    assert "effective draws" in quality.doubt


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--outer", "7"], "--outer, got '7', expected a whole number from 8 up"),
        (["--theory", "7"], "--theory, got '7', expected a whole number from 8 up"),
        (["--outer", "many"], "--outer, got 'many'"),
        (["--inner", "0"], "--inner, got '0'"),
        (["--particles", "1"], "--particles, got '1'"),
        (["--seed", "-1"], "--seed, got '-1'"),
        (["--minutes", "0"], "--minutes, got '0'"),
        (["--draws", "0"], "--draws, got '0'"),
        (["--truth", "sms"], "did you mean 'smc'?"),
        (["--thruth", "smc"], "did you mean '--truth'?"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_options_are_one_line_and_write_nothing(untouched, capsys, options, words):
    _refused(capsys, [str(untouched), *options], words)
    assert {path.name for path in untouched.iterdir()} == FILES


def test_a_folder_without_run_record_score_or_the_right_score_is_one_line(tmp_path, capsys):
    _refused(capsys, [str(tmp_path / "none")], "no such folder")
    _refused(capsys, [str(tmp_path)], "no config.toml in it")
    run = make_run(tmp_path / "run")
    (run / "record.json").rename(run / "aside")
    _refused(capsys, [str(run)], "scorebed resume")
    (run / "record.json").write_text("{}")
    _refused(capsys, [str(run)], "the record of a run, got one without")
    (run / "aside").rename(run / "record.json")
    (run / "score-0.safetensors").write_bytes(b"torn")
    _refused(capsys, [str(run)], "score-0.safetensors")
    (run / "score-0.safetensors").unlink()
    _refused(capsys, [str(run)], "score-0.safetensors")
    assert {path.name for path in run.iterdir()} == FILES - {"score-0.safetensors"}


def _refused(capsys, arguments, words):
    assert main(["diagnose", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert len(err.splitlines()) == 1
    assert words in err
    assert ". Fix: " in err
