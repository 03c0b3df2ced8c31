"""Contrastive estimators against closed forms: the bias of value and gradient, the ceiling, and
what is differentiated.
"""

import math
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from jaxtyping import Array

from scorebed.errors import InvalidValueError
from scorebed.estimators.log_ratios import lower_log_ratio, upper_log_ratio
from scorebed.estimators.pce import contrastive, nmc, pce, prior_draws
from scorebed.keys import named
from scorebed.policies.dad import DAD
from scorebed.policies.static import Static
from scorebed.rollout import draw_noise, log_likelihood, log_likelihoods, rollout
from scorebed.tasks.base import Task
from scorebed.tasks.oracles.fading_noise import FadingNoise
from scorebed.tasks.oracles.linear_gaussian import LinearGaussian
from scorebed.tasks.oracles.linear_markov import LinearMarkov
from scorebed.tasks.spaces import Real

ALARM = 4.892  # standard errors: one false alarm in a million
# One step of y = ξθ + σε, away from constants of value one: the signal-to-noise ratio τ²ξ²/σ² is
# 0.64.
TAU, SIGMA, XI = 1.2, 0.9, 0.6
STEP = LinearGaussian(covariance=((TAU**2,),), noise=SIGMA, horizon=1)


def fixed(task: Task, *xis: float) -> Static:
    """The designs as they are, whatever the space."""
    return Static(jnp.asarray(xis)[:, None], Real(task.designs.quantities))


@pytest.mark.usefixtures("float64")
def test_the_leading_bias_of_value_and_gradient():
    # ∓(e^{2 EIG} − 1)/(2M) and its derivative ∓τ²ξ/(σ²M), up to O(1/M²). PCE without θ_0, or with M
    # for M + 1, is off by at least twice the bias; a term of the wrong sign, or no gradient through
    # outcomes or designs, by far more.
    inner, count = 100, 30_000

    def errors(xi: Array, key: Array) -> Array:
        """Of PCE and NMC per trajectory, less the exact integrand and a control variate of mean
        zero given the outcomes.
        """
        policy = Static(xi[None, None], Real(STEP.designs.quantities))
        theta = STEP.prior.sample(key=named(key, "theta"))
        noise = draw_noise(STEP, policy, key=named(key, "noise"))
        run = rollout(STEP, policy, theta, noise)
        marginal = STEP.marginal_log_prob(run.ys, run.xis)
        exact = log_likelihood(STEP, theta, run.ys, run.xis) - marginal
        draws = named(key, "contrast")
        excess = jnp.exp(contrastive(STEP, run, inner, key=draws) - marginal - math.log(inner)) - 1
        both = jnp.stack(
            [e(STEP, policy, theta, noise, inner=inner, key=draws) for e in (pce, nmc)]
        )
        return both - exact + excess

    @jax.jit
    @jax.vmap
    def values_and_slopes(key: Array) -> tuple[Array, Array]:
        return jax.jvp(lambda xi: errors(xi, key), (jnp.asarray(XI),), (jnp.ones(()),))

    values, slopes = values_and_slopes(jr.split(jr.key(0), count))
    of_value, of_slope = (TAU * XI / SIGMA) ** 2 / (2 * inner), TAU**2 * XI / (SIGMA**2 * inner)
    for samples, bias in ((values, of_value), (slopes, of_slope)):
        tolerance = ALARM * samples.std(0) / math.sqrt(count)
        assert (tolerance < 0.4 * bias).all()
        assert (abs(samples.mean(0) - bias * jnp.asarray([-1.0, 1.0])) <= tolerance).all()


def test_values_are_those_of_the_bounds_on_the_same_draws():
    task, inner = LinearMarkov(noise=0.3), 7
    policy = DAD(task, hidden=(8,), encoding=4, key=jr.key(0))

    @eqx.filter_jit
    def both(key: Array) -> tuple[list[Array], tuple[Array, Array]]:
        theta, noise = task.prior.sample(key=jr.key(5)), draw_noise(task, policy, key=key)
        run = rollout(task, policy, theta, noise)
        each = log_likelihoods(task, prior_draws(task, inner, key=key), run.ys, run.xis)
        log_p0, total = log_likelihood(task, theta, run.ys, run.xis), jnp.log(jnp.exp(each).sum())
        bounds = (
            lower_log_ratio(log_p0, log_p0, total, inner),
            upper_log_ratio(log_p0, total, inner),
        )
        return [e(task, policy, theta, noise, inner=inner, key=key) for e in (pce, nmc)], bounds

    found, bounds = both(jr.key(1))
    np.testing.assert_allclose(found, bounds, rtol=1e-5, atol=1e-5)
    assert found[0] < found[1]


def test_no_value_of_pce_exceeds_its_ceiling():
    task, inner = LinearGaussian(noise=0.01, horizon=1), 3
    policy = fixed(task, 2.0)

    def one(key: Array) -> Array:
        theta, noise = (
            task.prior.sample(key=named(key, "theta")),
            draw_noise(task, policy, key=named(key, "noise")),
        )
        return pce(task, policy, theta, noise, inner=inner, key=named(key, "contrast"))

    values = jax.jit(jax.vmap(one))(jr.split(jr.key(0), 1000))
    assert (values <= np.float32(math.log(inner + 1))).all()
    assert (
        values.mean() > math.log(inner + 1) - 0.1
    )  # that of log M, a bound with θ_0 left out of the count, is below this


def check_gradient(task: Task, value: Callable[[DAD, Array], Array]) -> None:
    """The gradient of an adaptive policy against central differences, along random directions and
    with common random numbers.
    """
    params, rest = eqx.partition(
        DAD(task, hidden=(8,), encoding=4, emitter_bound=0.5, key=jr.key(3)), eqx.is_array
    )
    flat, unravel = ravel_pytree(params)
    of = jax.jit(
        jax.value_and_grad(lambda flat: value(eqx.combine(unravel(flat), rest), jr.key(4)))
    )
    gradient = of(flat)[1]
    assert gradient.dtype == jnp.float64
    for key in jr.split(jr.key(5), 3):
        direction = jr.normal(key, flat.shape)
        step = 1e-6
        slope = (of(flat + step * direction)[0] - of(flat - step * direction)[0]) / (2 * step)
        np.testing.assert_allclose(gradient @ direction, slope, rtol=1e-6, atol=1e-8)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("task", [FadingNoise(), LinearMarkov()], ids=["iid", "markov"])
def test_the_gradient_of_an_adaptive_policy_is_that_of_the_value(task):
    def value(policy: DAD, key: Array) -> Array:
        theta, noise = (
            task.prior.sample(key=named(key, "theta")),
            draw_noise(task, policy, key=named(key, "noise")),
        )
        lower, upper = (
            e(task, policy, theta, noise, inner=5, key=named(key, "contrast")) for e in (pce, nmc)
        )
        return lower + 0.7 * upper

    check_gradient(task, value)


def test_draws_are_independent_and_from_the_prior():
    task = LinearGaussian(mean=(1.0, -2.0), covariance=((2.0, 0.6), (0.6, 0.5)))
    thetas = np.asarray(prior_draws(task, 40_000, key=jr.key(0)))
    np.testing.assert_allclose(thetas.mean(0), (1.0, -2.0), atol=ALARM * math.sqrt(2 / 40_000))
    np.testing.assert_allclose(
        np.cov(thetas.T), ((2.0, 0.6), (0.6, 0.5)), atol=ALARM * 2 * math.sqrt(2 / 40_000)
    )
    assert len(np.unique(thetas[:, 0])) > 39_900


def test_at_least_one_contrastive_parameter_is_needed():
    with pytest.raises(InvalidValueError, match="contrastive parameters, got 0"):
        prior_draws(STEP, 0, key=jr.key(0))
