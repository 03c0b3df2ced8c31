"""Importance sampling from the prior, against closed forms and against its own definition in
NumPy.
"""

import functools

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from scorebed.errors import InvalidValueError
from scorebed.inference.importance import (
    importance_draws,
    importance_moments,
    prior_draws,
    shifted_weights,
)
from scorebed.inference.resampling import effective_sample_size, systematic_resample
from scorebed.rollout import log_likelihoods
from scorebed.tasks import ORACLE_TASKS
from scorebed.tasks.oracles.linear_gaussian import LinearGaussian

# Chunks that do not divide the draws, and so small that the largest weight comes late.
REPEATS, INNER, CHUNK = 128, 1000, 7
# Stronger designs leave no doubt of a sign.
SETTINGS = {"linear-gaussian-2d": {}, "linear-markov": {}, "sign": {"bound": 0.5}}


def posterior_moments(task, ys, xis):
    """Exact mean and covariance of θ."""
    if hasattr(task, "posterior"):
        exact = jax.jit(task.posterior)(ys, xis)
        return np.asarray(exact.mean), np.asarray(exact.covariance)
    mean = np.tanh(
        np.sum(ys * xis, axis=0) / task.noise**2
    )  # a sign: mean tanh Λ, variance 1 − tanh² Λ
    return mean, (1 - mean**2)[:, None]


@pytest.fixture(scope="module")
def repeated(history, repeat):
    """name → (task, ys, xis, the first key, the estimates under 128 keys)."""

    @functools.cache
    def run(name):
        task = ORACLE_TASKS[name](**SETTINGS[name])
        ys, xis = history(task)
        estimate = functools.partial(importance_moments, task, ys, xis, inner=INNER, chunk=CHUNK)
        return (
            task,
            ys,
            xis,
            jr.fold_in(jr.key(1), 0),
            repeat(lambda key: estimate(key=key), REPEATS),
        )

    return run


@pytest.mark.parametrize("name", SETTINGS)
def test_moments_are_the_weighted_moments_of_the_draws(name, repeated):
    task, ys, xis, key, estimates = repeated(name)
    theta = jax.jit(lambda key: prior_draws(task.prior, jnp.arange(INNER), key=key))(key)
    log_weights = np.asarray(
        jax.jit(lambda theta: log_likelihoods(task, theta, ys, xis))(theta), np.float64
    )
    theta, weights = np.asarray(theta, np.float64), np.exp(log_weights)
    mean = weights @ theta / weights.sum()
    covariance = (weights[:, None] * (theta - mean)).T @ (theta - mean) / weights.sum()
    np.testing.assert_allclose(estimates.mean[0], mean, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(estimates.covariance[0], covariance, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(estimates.log_evidence[0], np.log(weights.mean()), rtol=1e-5)
    np.testing.assert_allclose(estimates.ess[0], weights.sum() ** 2 / (weights**2).sum(), rtol=1e-4)


@pytest.mark.parametrize("name", SETTINGS)
def test_moments_are_those_of_the_exact_posterior(name, repeated, assert_mean):
    # The standard error is about half a percent of the posterior's scale: the draws of another key
    # in every chunk, or a likelihood that leaves out a step, are caught.
    task, ys, xis, _, estimates = repeated(name)
    mean, covariance = posterior_moments(task, ys, xis)
    scale = np.sqrt(np.diag(covariance))
    bias = 2 / np.mean(estimates.ess)
    assert_mean(estimates.mean, mean, bias * scale)
    assert_mean(estimates.covariance, covariance, bias * np.outer(scale, scale))


@pytest.mark.parametrize("name", SETTINGS)
def test_evidence_is_unbiased(name, repeated, assert_mean):
    # The standard error is below 0.01; a weight too many in each chunk is 14%.
    task, ys, xis, _, estimates = repeated(name)
    truth = float(jax.jit(task.marginal_log_prob)(ys, xis))
    assert_mean(np.exp(np.asarray(estimates.log_evidence) - truth), 1.0)


def test_chunk_size_changes_nothing(repeated, repeat):
    task, ys, xis, _, estimates = repeated("linear-gaussian-2d")
    run = functools.partial(importance_moments, task, ys, xis, inner=INNER, chunk=10 * INNER)
    whole = repeat(lambda key: run(key=key), 1)
    for name in ("mean", "covariance", "log_evidence", "ess"):
        np.testing.assert_allclose(
            getattr(whole, name)[0], getattr(estimates, name)[0], rtol=1e-4, atol=1e-5
        )


def test_covariance_keeps_its_digits_far_from_zero(repeat):
    # E[θθᵀ] − E[θ]E[θ]ᵀ in single precision is off by about 1 beside a mean of 5000; the truth is
    # 0.31.
    task = LinearGaussian(mean=(5000.0,))
    xis = jnp.asarray([[0.5], [-1.0], [1.0]])
    estimates = repeat(
        lambda key: importance_moments(task, 5000 * xis, xis, inner=INNER, chunk=CHUNK, key=key), 1
    )
    np.testing.assert_allclose(estimates.covariance, [[[1 / (1 + 2.25)]]], rtol=0.3)


def test_draws_are_the_posterior(repeated, repeat):
    task, ys, xis, _, estimates = repeated("linear-gaussian-2d")
    draw = functools.partial(
        importance_draws, task, ys, xis, inner=INNER, draws=20_000, chunk=CHUNK
    )
    draws = jax.tree.map(lambda leaf: leaf[0], repeat(lambda key: draw(key=key), 1))
    # An index is taken as often as its weight says, up to once in 20,000, and these errors of both
    # signs nearly cancel.
    scale = np.sqrt(np.diag(np.asarray(estimates.covariance[0])))
    np.testing.assert_allclose((draws.theta.mean(0) - estimates.mean[0]) / scale, 0, atol=0.01)
    error = (np.cov(draws.theta.T) - estimates.covariance[0]) / np.outer(scale, scale)
    np.testing.assert_allclose(error, 0, atol=0.01)
    np.testing.assert_allclose(draws.log_evidence, estimates.log_evidence[0], rtol=1e-5)
    np.testing.assert_allclose(draws.ess, estimates.ess[0], rtol=1e-4)


@pytest.mark.parametrize(
    ("weights", "expected"),
    [([1.0] * 7, 7.0), ([0.0, 5.0, 0.0], 1.0), ([1.0, 3.0], 1.6), ([1e-30, 1.0, 1.0], 2.0)],
)
def test_effective_sample_size(weights, expected):
    log_weights = jnp.log(jnp.asarray(weights))
    np.testing.assert_allclose(effective_sample_size(log_weights), expected, rtol=1e-5)
    np.testing.assert_allclose(effective_sample_size(log_weights - 5000), expected, rtol=1e-3)


def test_systematic_resampling_takes_each_index_in_proportion(repeat, assert_mean):
    weights = np.asarray([0.0, 0.31, 0.0, 0.04, 0.6, 0.05, 0.0], np.float32)
    picks = np.asarray(
        repeat(lambda key: systematic_resample(key, jnp.asarray(weights * 3), 10), 4000)
    )
    counts = np.stack([(picks == m).sum(1) for m in range(len(weights))], axis=1)
    assert np.all(np.abs(counts - 10 * weights) < 1 + 1e-5)
    assert np.all(counts[:, weights == 0] == 0)
    # An offset that is not uniform shifts the 3.1 of the second index by 0.1 and more; the standard
    # error is 0.005.
    assert_mean(counts[:, [1, 3, 5]], 10 * weights[[1, 3, 5]])


def test_weights_of_a_stream_survive_any_offset():
    shift = jax.jit(shifted_weights)
    weights, top, shrink = shift(jnp.asarray([-jnp.inf, -1e4, -1e4 - 1]), jnp.asarray(-2e4))
    np.testing.assert_allclose(weights, [0, 1, np.exp(-1)], rtol=1e-3)
    assert top == -1e4
    assert 0 < shrink < 1e-30
    weights, top, shrink = shift(jnp.full(3, -jnp.inf), jnp.asarray(-jnp.inf))
    assert np.isneginf(top)
    assert np.isfinite(shrink)
    np.testing.assert_array_equal(weights, 0)


def test_impossible_sizes_are_refused():
    task, ys, xis = LinearGaussian(), jnp.zeros((3, 1)), jnp.zeros((3, 1))
    with pytest.raises(InvalidValueError, match="inner=0"):
        importance_moments(task, ys, xis, inner=0, key=jr.key(0))
    with pytest.raises(InvalidValueError, match="posterior draws"):
        importance_draws(task, ys, xis, inner=5, draws=0, key=jr.key(0))
