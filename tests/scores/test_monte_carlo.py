"""Monte Carlo scores against the definition of what they estimate, and against closed forms."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from scorebed.errors import InvalidValueError
from scorebed.inference.importance import prior_draws
from scorebed.rollout import log_likelihoods
from scorebed.scores.monte_carlo import ImportanceScore, SMCScore
from scorebed.tasks.oracles.linear_gaussian import LinearGaussian
from scorebed.tasks.oracles.linear_markov import LinearMarkov

Z_ALARM = 4.892  # a false alarm in a million
REPEATS = 256
QUICK = {
    "xla_backend_optimization_level": 0
}  # everything here runs once: optimising it costs more than it saves
YS = jnp.asarray([[0.8], [-0.4], [1.9]])
XIS = jnp.asarray([[0.5], [-1.2], [1.5]])


def scores(make, task, count=REPEATS):
    """The score of one history under `count` keys, all coordinates in a row."""

    def estimate(i):
        value = make(task, key=jr.fold_in(jr.key(0), i))(YS, XIS)
        return jnp.concatenate([value.y.ravel(), value.xi.ravel()])

    run = jax.jit(lambda: jax.lax.map(estimate, jnp.arange(count)), compiler_options=QUICK)
    return np.asarray(run(), np.float64)


@functools.cache
def importance_scores(inner):
    return scores(functools.partial(ImportanceScore, inner=inner, chunk=7), LinearMarkov())


def exact_score(task):
    return np.concatenate([np.ravel(part) for part in jax.jit(task.score)(YS, XIS)])


def test_importance_score_is_the_gradient_of_the_log_mean():
    # Chunks of 7 do not divide 500, and the largest weight comes late: a chunk that is counted
    # twice, or scaled to the wrong maximum, shows here.
    task = LinearMarkov()

    def log_mean(ys, xis):
        theta = prior_draws(task.prior, jnp.arange(500), key=jr.fold_in(jr.key(0), 0))
        return jax.nn.logsumexp(log_likelihoods(task, theta, ys, xis)) - np.log(500)

    gradient = jax.jit(jax.grad(log_mean, argnums=(0, 1)), compiler_options=QUICK)(YS, XIS)
    expected = np.concatenate([np.ravel(part) for part in gradient])
    np.testing.assert_allclose(importance_scores(500)[0], expected, rtol=1e-4, atol=1e-5)


def test_chunk_size_changes_nothing():
    whole = scores(functools.partial(ImportanceScore, inner=500), LinearMarkov(), 1)
    np.testing.assert_allclose(whole[0], importance_scores(500)[0], rtol=1e-4, atol=1e-5)


def test_squared_error_shrinks_like_one_over_the_draws():
    # Eight times the draws, an eighth of the squared error; 256 repeats of 6 coordinates know the
    # ratio to about 15%. A bias that stays, such as the conditional score of one draw mixed in,
    # bends it towards 1.
    truth = exact_score(LinearMarkov())
    errors = [np.mean((importance_scores(inner) - truth) ** 2) for inner in (500, 4000)]
    assert 5 < errors[0] / errors[1] < 12.5


def test_two_keys_make_independent_halves():
    # The product of two independent errors averages to nothing, the square of one to its variance:
    # what a split-half estimate of a bias rests on. Halves that shared draws would give the square.
    error = importance_scores(500) - exact_score(LinearMarkov())
    products = (error[0::2] * error[1::2]).sum(1)
    squares = (error**2).sum(1)
    assert abs(products.mean()) < Z_ALARM * products.std(ddof=1) / np.sqrt(len(products))
    assert squares.mean() > Z_ALARM * products.std(ddof=1) / np.sqrt(len(products))


def test_smc_score_is_the_exact_score():
    # The standard error is about 0.01, the adaptation biases by 1/N; the conditional score at the
    # posterior mean, in place of the posterior mean of the conditional score, misses the variance
    # term: 0.1 and more in the designs' part.
    task = LinearGaussian()
    samples = scores(functools.partial(SMCScore, particles=256, moves=6, levels=8), task, 64)
    error = np.abs(samples.mean(0) - exact_score(task))
    assert np.all(error <= Z_ALARM * samples.std(0, ddof=1) / 8 + 4 / 256), error


@pytest.mark.slow
def test_compiled_equals_uncompiled():
    score = ImportanceScore(LinearGaussian(), 4, chunk=2, key=jr.key(0))
    with jax.disable_jit():
        plain = score(YS, XIS)
    for a, b in zip(eqx.filter_jit(score)(YS, XIS), plain, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_costs():
    task = LinearMarkov(horizon=3)
    assert ImportanceScore(task, 1000, key=jr.key(0)).nle == 3000
    score = SMCScore(task, 64, moves=2, levels=5, key=jr.key(0))
    assert score.nle == 64 * 3 * (1 + 2 * 5 + 1)
    with pytest.raises(InvalidValueError, match="inner=0"):
        ImportanceScore(task, 0, key=jr.key(0))
    with pytest.raises(InvalidValueError, match="particles=1"):
        SMCScore(task, 1, key=jr.key(0))
