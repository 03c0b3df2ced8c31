"""An experiment that has begun: what is left of it has the same likelihood, and the posterior so
far as its prior.
"""

import dataclasses
import json

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import scorebed as sb
from scorebed.cli._app import run
from scorebed.errors import InvalidValueError
from scorebed.inference.history import continue_after
from scorebed.rollout import log_likelihood, simulate_outcomes
from scorebed.runs.artifacts import fingerprint
from scorebed.runs.history import after_history, read_history
from scorebed.runs.sections import HistoryConfig
from scorebed.runs.user_task import read_task
from scorebed.samplers.paper import reference_sampler
from scorebed.tasks.base import IID, History, Markov
from scorebed.tasks.continued import continued
from scorebed.tasks.oracles.linear_gaussian import LinearGaussian
from scorebed.tasks.oracles.linear_markov import LinearMarkov
from user_files import EXAMPLES, FILES


def example(name):
    return f"{EXAMPLES / FILES[name]}:{name}"


def of(name):
    return read_task(example(name)).task


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        pytest.param("SamplingTimes", IID, marks=pytest.mark.slow),
        pytest.param("ControlledSystem", Markov, marks=pytest.mark.slow),
        ("Dosing", History),
    ],
)
def test_the_likelihood_of_a_whole_is_that_of_its_parts(name, kind):
    """log p(y_{1:T}) = log p(y_{1:t}) + log p(y_{t+1:T} | h_t): a state that is not carried over
    would show.
    """
    task = of(name)
    xis = jnp.stack(
        [
            task.designs.constrain(jnp.full(task.designs.dim, u))
            for u in np.linspace(-1, 1, task.horizon)
        ]
    )
    theta = task.prior.from_latent(jnp.full(task.prior.dim, 0.4))
    ys = simulate_outcomes(task, theta, xis, jr.normal(jr.key(0), (task.horizon, task.outcome_dim)))
    rest = continued(task, task.prior, xis[:2].tolist(), ys[:2].tolist())
    assert isinstance(rest, kind)
    assert rest.horizon == task.horizon - 2
    parts = log_likelihood(task, theta, ys[:2], xis[:2]) + log_likelihood(
        rest, theta, ys[2:], xis[2:]
    )
    np.testing.assert_allclose(log_likelihood(task, theta, ys, xis), parts, rtol=1e-5)


def test_a_constraint_goes_on_from_the_last_design():
    task = of("SamplingTimes")
    rest = continued(task, task.prior, [[1.0], [20.0]], [[5.0], [1.0]])
    xis = reference_sampler(rest)[0].sample(key=jr.key(0))
    assert (xis[0] >= 20.0) & (jnp.diff(xis[:, 0]) > 0).all()
    assert xis.shape == (task.horizon - 2, 1)


def test_training_leaves_the_past_alone():
    """A score holds its task, and whatever of it has a gradient is trained: the outcome from which
    the rest starts may not be.
    """
    rest = continued(LinearMarkov(), LinearMarkov().prior, [[1.0]], [[0.5]])
    theta, ys, xis = jnp.asarray([0.7]), jnp.asarray([[0.3], [0.1]]), jnp.asarray([[1.0], [-1.0]])
    slopes = eqx.filter_jit(eqx.filter_grad(lambda rest: log_likelihood(rest, theta, ys, xis)))(
        rest
    )
    assert (rest.start().tolist(), slopes.last.tolist()) == ([0.5], [0.0])


def test_a_wrong_history_is_refused():
    task = of("SamplingTimes")
    for xis, ys in (
        ([], []),
        ([[1.0]], []),
        ([[1.0, 2.0]], [[1.0]]),
        ([[1.0]] * task.horizon, [[1.0]] * task.horizon),
    ):
        with pytest.raises(InvalidValueError, match="the history of a task"):
            continued(task, task.prior, xis, ys)
    with pytest.raises(InvalidValueError, match="before 0 steps"):
        continued(task, task.prior, [], [], steps=0)


@pytest.mark.slow
def test_the_prior_after_a_history_is_the_exact_posterior():
    """y = ξθ + ε: variance 1/(1 + Σξ²), mean by it. 2048 particles and a mixture of them know both
    to 4.892 standard errors; the prior itself would be 40 away.
    """
    task = LinearGaussian(horizon=4)
    xis, ys = [[1.0], [-1.0]], [[1.3], [-0.4]]
    rest = continue_after(task, xis, ys, key=jr.key(0))
    variance = 1 / 3
    mean = variance * (1.3 + 0.4)
    n = 4096
    draws = np.asarray(
        jax.jit(jax.vmap(lambda k: rest.prior.sample(key=k)))(jr.split(jr.key(1), n))
    )[:, 0]
    assert abs(draws.mean() - mean) <= 4.892 * (variance / 1024) ** 0.5
    assert abs(draws.var() / variance - 1) <= 4.892 * (2 / 1024) ** 0.5


def write(path, text):
    path.write_text(text)
    return path


def test_a_file_is_read_by_its_names(tmp_path):
    task = of("ControlledSystem")
    file = write(
        tmp_path / "past.csv", "velocity,force [N],position [m]\n0.1,1.0,0.0\n\n0.2,-0.5,0.01\n"
    )
    past = read_history(file, task)
    assert past.designs == ((1.0,), (-0.5,))
    assert past.outcomes == ((0.0, 0.1), (0.01, 0.2))


BAD = {
    "no file": (None, "No such file"),
    "no rows": ("force,position,velocity\n", "got no steps"),
    "a column missing": ("force,position\n1,2\n", "one column named velocity"),
    "a column twice": ("force,position,velocity,force [N]\n1,2,3,4\n", "one column named force"),
    "no number": ("force,position,velocity\n1,2,\n", "step 1, 'velocity', got ''"),
    "a comma for a point": ('force,position,velocity\n1,"2,5",3\n', "got '2,5'"),
    "an infinity": ("force,position,velocity\n1,2,1e999\n", "expected a finite number"),
}


@pytest.mark.parametrize("fault", BAD)
def test_a_file_that_is_no_history_is_refused(tmp_path, fault):
    text, words = BAD[fault]
    path = tmp_path / "past.csv"
    if text is not None:
        write(path, text)
    with pytest.raises(InvalidValueError, match=words.replace("'", ".")):
        read_history(path, of("ControlledSystem"))


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"\x89PNG\r\n\x1a\n\x00\xff\xfe", "got a binary file, expected text in UTF-8"),
        (b"force,position\x00,velocity\n1,2,3\n", "got a binary file"),
        (b"x" * 3_000_000, "got a line of 3000000 characters"),
        (b"force,position,velocity\n1,2,3\n" + b"\n" * 2**24, "got more than 16777216 bytes"),
        (b'"' + b"force [" * 2_000 + b"\n1,2\n", "the name of a quantity|columns"),
    ],
)
def test_no_file_is_too_strange_for_one_line(tmp_path, data, words):
    """A pattern or a parser that takes its time over a long line would not end here."""
    path = tmp_path / "past.csv"
    path.write_bytes(data)
    with pytest.raises(InvalidValueError, match=words) as refused:
        read_history(path, of("ControlledSystem"))
    assert len(str(refused.value)) < 2_000


def test_a_mixture_that_does_not_fit_is_refused():
    with pytest.raises(InvalidValueError, match="make the run again"):
        after_history(
            of("ControlledSystem"), HistoryConfig(designs=((1.0,),), outcomes=((0.0, 0.0),))
        )


@pytest.mark.slow
def test_a_run_after_a_history(tmp_path, capsys):
    """What is kept in the run is enough to read it, and nothing is computed again."""
    past = write(tmp_path / "past.csv", "force,position,velocity\n1.0,0.02,0.11\n1.0,0.0,0.2\n")
    sizes = [
        "policy_training.steps=3",
        "policy_training.batch=4",
        "policy_training.inner=3",
        "evaluation.outer=4",
        "evaluation.tight_outer=0",
        "policy_training.monitor_every=3",
        "policy_training.monitor_inner=8",
        "evaluation.inner=8",
    ]
    settings = [part for value in sizes for part in ("--set", value)]
    arguments = [
        "train",
        example("ControlledSystem"),
        "--method",
        "pce",
        "--history",
        str(past),
        *settings,
    ]
    assert run([*arguments, "--json", "--out", str(tmp_path / "run")]) == 0
    assert set(json.loads(capsys.readouterr().out)["references"]) == {"random", "spaced", "static"}
    loaded = sb.load(tmp_path / "run", task=of("ControlledSystem"))
    assert loaded.task.horizon == 6
    assert loaded.task.start().tolist() == pytest.approx([0.0, 0.2])
    again = after_history(of("ControlledSystem"), loaded.config.history)
    assert fingerprint(again) == fingerprint(loaded.task)
    assert dataclasses.asdict(loaded.config.history)["designs"] == ((1.0,), (1.0,))
    run_of = sb.simulate(loaded.task, loaded.policy, key=jr.key(0))
    assert run_of.xis.shape == (6, 1)


def test_a_history_that_is_too_long_is_refused_before_anything_is_made(
    tmp_path, capsys, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    past = write(tmp_path / "past.csv", "force,position,velocity\n" + "1,0,0\n" * 8)
    assert run(["train", example("ControlledSystem"), "--history", str(past)]) == 2
    assert "1 to 7 steps" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()
