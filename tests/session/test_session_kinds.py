"""Live experiments on models with nuisance parameters, and on models without a density: everything
but a posterior.
"""

import io
import json
import math
import sys
from pathlib import Path

import numpy as np
import pytest
from live_runs import make_run

from scorebed.cli._app import run as command
from scorebed.errors import InvalidValueError, NoDensityError
from scorebed.runs.load import load
from scorebed.runs.user_task import read_task
from scorebed.session.posterior import NO_DENSITY
from scorebed.session.session import Session

EXAMPLES = Path(__file__).parents[2] / "examples" / "tasks"
WASHOUT = f"{EXAMPLES / 'washout.py'}:Washout"

# θ = (offset, slope), the slope alone of interest and last: y = slope · x + offset + ε.
LINE = """
import jax.numpy as jnp
import numpyro.distributions as dist
from scorebed.tasks.base import IID, Gaussian
from scorebed.tasks.declare import measured, parameters, ranges


class Line(IID, Gaussian):
    horizon = 3
    prior = parameters({"offset [V]": dist.Normal(0.0, 2.0), "slope": dist.Normal(0.0, 1.0)})
    interest = ("slope",)
    designs = ranges({"x": (-2.0, 2.0)})
    outcomes = measured("reading [V]")
    additive_noise = True

    def mean(self, theta, state, xi):
        return jnp.stack([theta[1] * xi[0] + theta[0]])

    def scale(self, theta, state, xi):
        return [1.0]
"""


@pytest.fixture(scope="module")
def line(tmp_path_factory):
    folder = tmp_path_factory.mktemp("line")
    (folder / "line.py").write_text(LINE)
    name = f"{folder / 'line.py'}:Line"
    return make_run(folder / "run", name), name


@pytest.fixture(scope="module")
def washout(tmp_path_factory):
    return make_run(tmp_path_factory.mktemp("washout") / "run", WASHOUT, trained_by="varpost")


def sit(monkeypatch, capsys, lines, *arguments):
    typed = io.BytesIO("".join(f"{line}\n" for line in lines).encode())
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(typed, encoding="utf-8"))
    assert command(["live", *map(str, arguments)]) == 0
    return capsys.readouterr()


# ---- nuisance parameters


def test_the_posterior_is_of_all_parameters_and_those_of_interest_come_first(
    line, db, monkeypatch, capsys
):
    """Against the closed form: Σ⁻¹ = Σ₀⁻¹ + Σ a aᵀ with a = (1, x). In the other order the two
    would be exchanged.
    """
    folder, name = line
    run = load(folder, task=read_task(name))
    with Session.create(run, db=db, experiment="bench", seed=1) as session:
        data = ((1.5, 2.5), (-1.5, -0.5), (2.0, 3.4))
        for x, y in data:
            session.observe(y, x)
        posterior = session.posterior()
        assert [(m.quantity.name, m.nuisance) for m in posterior.marginals] == [
            ("slope", False),
            ("offset", True),
        ]
        a = np.asarray([(1.0, x) for x, _ in data])
        covariance = np.linalg.inv(np.diag([0.25, 1.0]) + a.T @ a)
        mean = covariance @ a.T @ np.asarray([y for _, y in data])
        for marginal, i in zip(posterior.marginals, (1, 0), strict=True):
            sd = math.sqrt(covariance[i, i])
            assert abs(marginal.mean - mean[i]) < 0.15 * sd  # seven standard errors of 2048 draws
            assert marginal.sd == pytest.approx(sd, rel=0.2)
        # The information is of all parameters, so the run's bounds, of the slope alone, are not its
        # end.
        assert session.expected is None
        assert (
            "1.1 to 1.3 nats that the run expects by the end are about slope alone"
            in session.scope()
        )
        told = session.summary()
        assert [(m["name"], m["nuisance"]) for m in told["posterior"]] == [
            ("slope", False),
            ("offset", True),
        ]
        assert told["scope"] == session.scope()
        session.undo()
        with pytest.raises(InvalidValueError, match="nuisance parameters"):
            session.refine(1.0)
    out, err = sit(monkeypatch, capsys, ["q"], folder, "--task", name, "--db", db)
    assert err == ""
    assert out.index("slope") < out.index("offset [V] (nuisance)")
    assert "are about slope alone" in out or "learn slope alone" in out


def test_a_task_about_all_of_its_parameters_marks_none(session):
    assert [m.nuisance for m in session.posterior().marginals] == [False]
    assert session.scope() is None
    assert session.expected is not None


# ---- no density


def test_without_a_density_everything_works_but_the_posterior_and_one_sentence_says_so(
    washout, db, tmp_path
):
    run = load(washout, task=read_task(WASHOUT))
    assert not run.task.has_density
    with Session.create(run, db=db, experiment="bench", seed=1) as session:
        session.warm()
        first = session.propose()
        assert session.observe(0.8, proposal=first.id).y == (0.8,)
        foreseen = session.foresee(0.3)
        session.exchange(0.3)
        assert session.propose().design == foreseen
        session.undo()
        session.correct(1, 0.7)
        session.skip()
        session.note("no posterior")
        for ask in (
            session.posterior,
            session.information,
            session.predictive,
            session.outlook,
            lambda: session.surprise(0.5),
            session.forecast,
        ):
            with pytest.raises(NoDensityError) as refused:
                ask()
            assert str(refused.value) == NO_DENSITY
        with pytest.raises(
            InvalidValueError, match="refining a policy, got a model without a density"
        ):
            session.refine(1.0)
        told = session.summary()
        assert (told["problem"], told["posterior"], told["information"]) == (NO_DENSITY, None, None)
        assert isinstance(session.warnings(), tuple)
        again = Session.import_json(run, session.export_json(), db=tmp_path / "other.sqlite")
        assert (
            [r.y for r in again.state.records]
            == [r.y for r in session.state.records]
            == [(0.7,), None]
        )
        assert again.propose().design == session.propose().design
        again.close()
        assert session.export_csv().count("\n") == 3


def test_without_a_density_the_terminal_says_so_once_and_goes_on(washout, db, monkeypatch, capsys):
    where = (washout, "--task", WASHOUT, "--db", db, "--experiment", "bench", "--seed", "1")
    out, err = sit(
        monkeypatch, capsys, ["0.8", "u", "0.7", "w 0.3", "w", "r 1", "0.4", "h", "q"], *where
    )
    assert err == ""
    assert "Traceback" not in out
    (before, _, after) = out.partition(NO_DENSITY)
    assert "measure at" not in before  # at once, and not at every step
    assert [line for line in after.splitlines() if NO_DENSITY in line] == [
        f"not stored: {NO_DENSITY}"
    ]  # asked for: w
    assert "stored: step 2, signal 0.4" in out
    assert "got a model without a density" in out
    out, _ = sit(monkeypatch, capsys, ["f"], *where[:-2], "--json")
    assert json.loads(out)["problem"] == NO_DENSITY
