"""The posterior of a live experiment, against closed forms; and what it makes of outcomes to
come.
"""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm

from scorebed.errors import ScorebedError
from scorebed.session.events import ProposedDesign, StepRecord
from scorebed.session.posterior import IMPROBABLE, PARTICLES, Beliefs
from scorebed.session.session import Session
from scorebed.tasks.base import Gaussian, History
from scorebed.tasks.oracles.linear_gaussian import LinearGaussian
from scorebed.tasks.oracles.linear_markov import LinearMarkov
from scorebed.tasks.priors import GaussianPrior, gaussian
from scorebed.tasks.spaces import Box, Quantity, Space

Z_ALARM = 4.892  # a false alarm in a million
XIS, YS = (1.2, -0.7, 2.0), (0.5, -1.0, 2.4)


def records(ys=YS, xis=XIS):
    return [
        StepRecord(
            i + 1, ProposedDesign(0, i + 1, (xi,), ""), (xi,), None if y is None else (y,), "", 0
        )
        for i, (y, xi) in enumerate(zip(ys, xis, strict=True))
    ]


def exact(ys, xis):
    """Posterior N(m, V) of a standard normal coefficient with unit noise."""
    V = 1 / (1 + sum(xi**2 for xi in xis))
    return V * sum(xi * y for xi, y in zip(xis, ys, strict=True)), V


def assert_mean(samples, truth, bias=0.0):
    samples = np.asarray(samples)
    assert (
        abs(samples.mean() - truth)
        <= Z_ALARM * samples.std(ddof=1) / math.sqrt(len(samples)) + bias
    )


@pytest.fixture(scope="module")
def repeated():
    """Posteriors after three measurements, from many seeds."""
    found = []
    for seed in range(24):
        beliefs = Beliefs(LinearGaussian(), seed=seed)
        found.append((beliefs.posterior(records()), beliefs.information(records())))
    return found


def test_it_is_the_exact_posterior(repeated):
    # The standard error of the means is 0.5% of the posterior's scale: a measurement that is
    # forgotten, or counted twice, shifts them by 20% and more. SMC itself is biased by O(1/N).
    m, V = exact(YS, XIS)
    scale = math.sqrt(V)
    assert_mean([p.marginals[0].mean for p, _ in repeated], m, 2 * scale / PARTICLES)
    assert_mean([p.marginals[0].sd for p, _ in repeated], scale, 4 * scale / PARTICLES)
    for i, level in enumerate((0.05, 0.25, 0.5, 0.75, 0.95)):
        assert_mean(
            [p.marginals[0].quantiles[i] for p, _ in repeated],
            m + scale * norm.ppf(level),
            4 * scale / PARTICLES,
        )


def test_evidence_and_information_are_exact_after_every_measurement(repeated):
    # Information is the divergence of this posterior from the prior, not the loss of entropy: m² is
    # in it. A step's evidence left out shifts it by more than a nat.
    for t in range(4):
        m, V = exact(YS[:t], XIS[:t])
        truth = 0.5 * (V + m**2 - 1 - math.log(V))
        assert_mean([information[t] for _, information in repeated], truth, 0.002)
    covariance = np.eye(3) + np.outer(XIS, XIS)
    log_evidence = -0.5 * (
        YS @ np.linalg.solve(covariance, YS) + np.linalg.slogdet(2 * np.pi * covariance)[1]
    )
    assert_mean([p.log_evidence for p, _ in repeated], log_evidence, 0.002)


def test_it_knows_how_well_it_was_made(repeated):
    for posterior, _ in repeated:
        assert 0.05 * PARTICLES < posterior.ess <= PARTICLES
        assert 0.1 < posterior.acceptance < 1
        assert posterior.warning is None
        assert posterior.theta.shape == (PARTICLES, 1)


def test_it_depends_on_the_data_alone_and_not_on_the_way_there():
    straight, detour = (Beliefs(LinearGaussian(), seed=1) for _ in range(2))
    detour.posterior(records((3.0, 1.0, 1.0)))
    detour.posterior(records()[:1])
    skipped = records((YS[0], None, *YS[1:]), (XIS[0], 0.0, *XIS[1:]))
    np.testing.assert_array_equal(
        straight.posterior(records()).theta, detour.posterior(skipped).theta
    )
    assert straight.information(records()[:2]) == detour.information(records())[:3]


def test_the_predictive_band_and_the_surprise_are_exact():
    beliefs = Beliefs(LinearGaussian(), seed=2)
    for known in ([], records()[:2]):
        m, V = exact(YS[: len(known)], XIS[: len(known)])
        mean, sd = 1.5 * m, math.sqrt(1 + 1.5**2 * V)
        (band,) = beliefs.predict(known, (1.5,))
        # One sample of N outcomes from N particles, which are good for a sample of a few hundred: a
        # band without the noise of the outcome, or without the spread of the parameters, is
        # narrower by 20% at least.
        assert abs(band.mean - mean) < 0.1 * sd
        assert abs(band.sd / sd - 1) < 0.1
        for away in (0.0, 0.5, 1.5, 2.5):
            tail = 2 * norm.sf(away)
            found = beliefs.surprise(known, (1.5,), (mean + away * sd,))
            assert abs(found - tail) < 0.12 * math.sqrt(tail * (1 - tail)) + 0.03
        assert beliefs.surprise(known, (1.5,), (mean + 8 * sd,)) < IMPROBABLE
        assert beliefs.surprise(known, (1.5,), (3e38,)) < IMPROBABLE


def test_the_next_outcome_of_a_markov_task_starts_from_the_last():
    task, beliefs = LinearMarkov(), Beliefs(LinearMarkov(), seed=0)
    known = records((5.0, 4.0), (1.0, 1.0))
    theta = beliefs.posterior(known).theta
    (band,) = beliefs.predict(known, (0.5,))
    assert abs(
        band.mean - (task.memory * 4.0 + 0.5 * theta.mean())
    ) < Z_ALARM * band.sd / math.sqrt(PARTICLES)
    truth = jax.jit(task.posterior)(
        jnp.asarray([[5.0], [4.0], [0.0]])[:2], jnp.asarray([[1.0], [1.0]])
    )
    assert abs(theta.mean() - truth.mean[0]) < 0.1 * math.sqrt(truth.covariance[0, 0])


class Drifting(History, Gaussian):
    """y_t = ξ_t θ + Σ_{s<t} ξ_s + ε_t: neither independent nor Markov."""

    horizon: int = eqx.field(static=True, default=3)
    prior: GaussianPrior = eqx.field(
        default_factory=lambda: gaussian((Quantity("slope"),), (0.0,), ((1.0,),))
    )
    designs: Space = eqx.field(static=True, default=Box((Quantity("covariate"),), (-2.0,), (2.0,)))
    outcomes: tuple[Quantity, ...] = eqx.field(static=True, default=(Quantity("response"),))
    additive_noise: bool = eqx.field(static=True, default=True)

    def initial(self, theta):
        return jnp.zeros_like(theta)

    def mean(self, theta, state, xi):
        return theta * xi + state

    def scale(self, theta, state, xi):
        del theta, state, xi
        return (1.0,)

    def advance(self, theta, state, xi, y):
        del theta, y
        return state + xi


def test_a_task_with_a_history_starts_anew_from_the_prior():
    beliefs = Beliefs(Drifting(), seed=0)
    known = records((0.5,), (1.2,))
    m, V = exact((0.5,), (1.2,))
    marginal = beliefs.posterior(known).marginals[0]
    assert abs(marginal.mean - m) < 0.15 * math.sqrt(V)
    assert abs(marginal.sd / math.sqrt(V) - 1) < 0.1
    (band,) = beliefs.predict(known, (2.0,))  # whose mean has the first design in it
    assert abs(band.mean - (2 * m + 1.2)) < 0.15 * math.sqrt(1 + 4 * V)


def test_an_impossible_outcome_is_said_and_left_out(run, db):
    with Session.create(run, db=db) as session:
        session.propose()
        session.observe(0.5)
        before = session.posterior()
        session.propose()
        session.observe(1e30)  # squares of it are infinite in single precision
        found = session.posterior()
        assert (found.measured, found.left_out) == (1, (2,))
        np.testing.assert_array_equal(found.theta, before.theta)
        assert session.summary()["problem"].startswith("The outcome of measurement 2 is left out")
        session.propose()
        session.observe(0.2)
        assert (session.posterior().measured, session.posterior().left_out) == (2, (2,))
        assert len(session.information()) == 4
        used = session.state.records
        session.correct(2, 1.0)
        assert (session.posterior().measured, session.summary()["problem"]) == (3, None)
    m, V = exact((0.5, 0.2), [used[0].used[0], used[2].used[0]])
    (marginal,) = Beliefs(run.task, seed=1).posterior(used).marginals
    assert abs(marginal.mean - m) < 0.2 * math.sqrt(V)


def test_where_steps_depend_on_each_other_an_impossible_outcome_ends_the_posterior():
    with pytest.raises(ScorebedError, match="the posterior after measurement 1, got no parameters"):
        Beliefs(Drifting(), seed=0).posterior(records((0.5,), (1e30,)))


def test_a_session_has_it_all_in_one_summary(run, db):
    with Session.create(run, db=db, experiment="bench", seed=3) as session:
        session.propose()
        session.observe(0.5)
        told = session.summary()
        (parameter,) = told["posterior"]
        assert parameter["name"] == "coefficient"
        assert set(parameter["quantiles"]) == {"0.05", "0.25", "0.5", "0.75", "0.95"}
        assert told["information"] == session.information()[-1] == session.posterior().information
        # Of this experiment, not of the run, whose bounds are 1.1 and 1.3.
        assert told["information"] < told["expected"]["lower"] < told["expected"]["upper"] < 1.1
        assert (told["name"], told["step"], told["finished"], len(told["records"])) == (
            "bench",
            2,
            False,
            1,
        )
        # An outcome that is to be corrected is judged by what was known before it.
        assert session.surprise(0.5, step=1) == Session.create(run, db=db, seed=3).surprise(0.5)
