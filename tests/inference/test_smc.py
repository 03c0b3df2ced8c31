"""Tempered SMC, against closed forms where there are any and against many draws of the prior where
there are none.
"""

import functools
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jaxtyping import Array

from scorebed.errors import InvalidValueError
from scorebed.inference.importance import importance_moments
from scorebed.inference.smc import tempered_smc, update_smc
from scorebed.tasks import ORACLE_TASKS, TASKS
from scorebed.tasks.base import IID, History
from scorebed.tasks.oracles.linear_gaussian import LinearGaussian
from scorebed.tasks.oracles.linear_markov import LinearMarkov
from scorebed.tasks.priors import standard_normal
from scorebed.tasks.spaces import Quantity, Real

REPEATS, PARTICLES, MOVES = 64, 256, 6


def temper(task, ys, xis):
    return lambda key: tempered_smc(
        task, ys, xis, particles=PARTICLES, moves=MOVES, levels=16, key=key
    )


def covariances(theta):
    """Covariance of the particles of every repeat."""
    away = np.asarray(theta) - np.mean(theta, axis=1, keepdims=True)
    return np.einsum("rni,rnj->rij", away, away) / away.shape[1]


@pytest.fixture(scope="module")
def gaussian(history, repeat):
    """(task, ys, xis, repeated posteriors) of a correlated linear-Gaussian model, with data that
    take several levels.
    """
    task = ORACLE_TASKS["linear-gaussian-2d"](noise=0.2, horizon=6)
    ys, xis = history(task)
    return task, ys, xis, repeat(temper(task, ys, xis), REPEATS)


def test_particles_are_the_exact_posterior(gaussian, assert_mean):
    # The standard error is about 1% of the posterior's scale, the adaptation biases by 1/N. Without
    # moves, or with moves at the temperature before, the covariance is 20% off and more.
    task, ys, xis, posterior = gaussian
    exact = jax.jit(task.posterior)(ys, xis)
    scale = np.sqrt(np.diag(exact.covariance))
    assert_mean(posterior.theta.mean(1), exact.mean, 2 * scale / PARTICLES)
    assert_mean(
        covariances(posterior.theta), exact.covariance, 4 * np.outer(scale, scale) / PARTICLES
    )


def test_evidence_is_unbiased(gaussian, assert_mean):
    # The standard error is about 2%: an increment that is forgotten, or log N for log(N − 1) at
    # each level, is 50% or more.
    task, ys, xis, posterior = gaussian
    truth = float(jax.jit(task.marginal_log_prob)(ys, xis))
    assert_mean(np.exp(np.asarray(posterior.log_evidence) - truth), 1.0, 2 / PARTICLES)


def test_ladder_rises_to_one_and_keeps_the_effective_sample_size(gaussian):
    *_, posterior = gaussian
    levels = (np.asarray(posterior.passes) - 1) // MOVES
    assert levels.min() >= 3
    for r, count in enumerate(levels):
        ladder, ess, acceptance = (
            np.asarray(a[r]) for a in (posterior.ladder, posterior.ladder_ess, posterior.acceptance)
        )
        assert np.all(np.diff(ladder[:count], prepend=0) > 0)
        assert ladder[count - 1] == 1
        assert np.all(ess[:count] >= 0.4999 * PARTICLES)
        # All but the last increment are as large as they may be.
        np.testing.assert_allclose(ess[: count - 1], 0.5 * PARTICLES, rtol=2e-3)
        assert np.all((acceptance[:count] > 0.1) & (acceptance[:count] < 0.9))
        assert np.all(np.isnan(ladder[count:]) & np.isnan(acceptance[count:]))


def test_latent_and_weights_belong_to_the_particles(gaussian):
    task, _, _, posterior = gaussian
    theta = jax.jit(jax.vmap(jax.vmap(task.prior.from_latent)))(posterior.z)
    np.testing.assert_allclose(theta, posterior.theta, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(np.asarray(posterior.weights).sum(1), 1, rtol=1e-5)
    assert posterior.nle == int(np.asarray(posterior.passes).sum()) * PARTICLES * 6


def test_a_discrete_posterior(history, repeat, assert_mean):
    # θ = sign z: the particles must cross z = 0 in proportion to the odds. The standard error is
    # about 0.01.
    task = ORACLE_TASKS["sign"](bound=0.5)
    ys, xis = history(task)
    posterior = repeat(temper(task, ys, xis), REPEATS)
    assert_mean(
        posterior.theta[..., 0].mean(1), np.tanh(np.sum(ys * xis) / task.noise**2), 2 / PARTICLES
    )
    truth = float(jax.jit(task.marginal_log_prob)(ys, xis))
    assert_mean(np.exp(np.asarray(posterior.log_evidence) - truth), 1.0, 2 / PARTICLES)


def compare_with_prior_draws(task, ys, xis, repeat, assert_mean):
    """Posterior, after its mean, covariance and evidence have been compared with those of 200,000
    draws of the prior.
    """
    truth = repeat(lambda key: importance_moments(task, ys, xis, inner=200_000, key=key), 1, 7)
    posterior = repeat(temper(task, ys, xis), REPEATS)
    scale, noise = np.sqrt(np.diag(truth.covariance[0])), 2 / PARTICLES + 4 / np.sqrt(truth.ess[0])
    assert noise < 0.1
    assert_mean(posterior.theta.mean(1), truth.mean[0], noise * scale)
    assert_mean(
        covariances(posterior.theta), truth.covariance[0], 2 * noise * np.outer(scale, scale)
    )
    assert_mean(np.exp(posterior.log_evidence - truth.log_evidence), 1.0, noise)
    return posterior


@pytest.mark.slow
def test_a_pendulum_agrees_with_many_draws_of_the_prior(history, repeat, assert_mean):
    # The standard errors are about 1% of the posterior's scale.
    task = TASKS["pendulum"](horizon=10)
    compare_with_prior_draws(task, *history(task, 3), repeat, assert_mean)


def test_all_of_several_narrow_modes_are_kept(repeat, assert_mean):
    """Two sources on a line: each may be left or right of the reading near it, and exchanging the
    two changes nothing.
    """
    task = TASKS["location-finding"](dim=1, horizon=3)
    xis = jnp.asarray([[-1.0], [0.2], [1.5]])
    ys = jnp.log(0.1 + 1 / (1e-4 + (xis - 1) ** 2) + 1 / (1e-4 + (xis + 0.7) ** 2))
    posterior = compare_with_prior_draws(task, ys, xis, repeat, assert_mean)
    share = np.mean(posterior.theta[..., 0] < posterior.theta[..., 1], axis=1)
    assert_mean(share, 0.5)
    # A run that loses a mode has a share of 0 or 1; independent particles would have a standard
    # deviation of 0.03.
    assert np.all((share > 0.2) & (share < 0.8)), (share.min(), share.max())


def test_particles_follow_the_data_step_by_step(history, repeat, assert_mean):
    """The live use: particles of h_2 become those of h_4, with padding after it; one compiled
    function does both.
    """
    task = LinearMarkov(horizon=4, noise=0.5)
    ys, xis = history(task, 1)
    ys, xis = (jnp.concatenate([a, jnp.full((2, 1), jnp.nan)]) for a in (ys, xis))

    def run(key):
        z = jr.normal(jr.fold_in(key, 0), (PARTICLES, 1))

        def step(z, data):
            t, known, observed = data
            key_step = jr.fold_in(key, t)
            after = update_smc(
                task,
                z,
                ys,
                xis,
                known=known,
                observed=observed,
                moves=MOVES,
                levels=16,
                key=key_step,
            )
            return after.z, after

        return jax.lax.scan(
            step, z, (jnp.asarray([1, 2]), jnp.asarray([0, 2]), jnp.asarray([2, 4]))
        )[1]

    both = repeat(run, REPEATS)
    evidence = 0.0
    for stage, observed in enumerate((2, 4)):
        exact = jax.jit(task.posterior)(ys[:observed], xis[:observed])
        posterior = jax.tree.map(lambda leaf, stage=stage: leaf[:, stage], both)
        scale = np.sqrt(float(exact.covariance[0, 0]))
        assert_mean(posterior.theta.mean(1), exact.mean, 2 * scale / PARTICLES)
        assert_mean(covariances(posterior.theta), exact.covariance, 4 * scale**2 / PARTICLES)
        evidence = evidence + np.asarray(posterior.log_evidence)
        truth = float(jax.jit(task.marginal_log_prob)(ys[:observed], xis[:observed]))
        assert_mean(np.exp(evidence - truth), 1.0, 4 / PARTICLES)
        assert posterior.nle == int(np.asarray(posterior.passes).sum()) * PARTICLES * observed


class Interval(IID):
    """y = θ within ± 0.2, and nothing else is possible: most of the prior has likelihood zero."""

    horizon: int = eqx.field(static=True, default=1)
    prior: eqx.Module = standard_normal((Quantity("place"),))
    designs: Real = eqx.field(static=True, default=Real((Quantity("nothing"),)))
    outcomes: tuple = eqx.field(static=True, default=(Quantity("place"),))
    additive_noise: bool = eqx.field(static=True, default=True)
    on_likelihood: Callable[[Array], None] | None = eqx.field(static=True, default=None)

    def outcome(self, theta, state, xi, noise):
        del state, xi, noise
        return theta

    def log_prob(self, y, theta, state, xi):
        del state, xi
        if self.on_likelihood is not None:
            jax.debug.callback(self.on_likelihood, theta[0])
        return jnp.where(jnp.abs(y[0] - theta[0]) < 0.2, -np.log(0.4), -jnp.inf)


def test_impossible_parameters_are_dropped(repeat, assert_mean):
    # Four fifths and more have likelihood zero, so no increment keeps half of the particles.
    task = Interval()
    ys = jnp.asarray([[0.8]])
    posterior = repeat(temper(task, ys, ys), REPEATS)
    assert np.all(np.abs(np.asarray(posterior.theta) - 0.8) < 0.2)
    np.testing.assert_array_equal(posterior.passes, 1 + 2 * MOVES)
    low, high = 0.7257468822, 0.8413447461  # Φ(0.6), Φ(1)
    assert_mean(np.exp(np.asarray(posterior.log_evidence)), (high - low) / 0.4, 2 / PARTICLES)
    density = lambda x: np.exp(-0.5 * x**2) / np.sqrt(2 * np.pi)  # noqa: E731
    assert_mean(posterior.theta[..., 0].mean(1), (density(0.6) - density(1.0)) / (high - low), 1e-3)


def test_a_batch_of_histories_counts_every_likelihood():
    calls = []
    task = Interval(on_likelihood=lambda _: calls.append(1))
    ys = jnp.asarray([[[0.0]], [[0.5]]])
    run = functools.partial(tempered_smc, task, particles=32, moves=1, levels=1)
    batch = jax.jit(
        jax.vmap(lambda y, key: run(y, y, key=key)),
        compiler_options={"xla_backend_optimization_level": 0},
    )
    posterior = batch(ys, jr.split(jr.key(0), 2))
    jax.effects_barrier()
    assert posterior.nle == len(calls) == 2 * 32 * (1 + 1)
    assert np.all(np.abs(posterior.theta - ys) < 0.2)
    # There was one level: it had to jump, and says what that cost.
    np.testing.assert_array_equal(posterior.ladder, 1)
    assert np.all(posterior.ladder_ess < 16)


@pytest.mark.slow
def test_compiled_equals_uncompiled():
    task = Interval()
    ys = jnp.asarray([[0.0]])
    run = functools.partial(
        tempered_smc, task, ys, ys, particles=16, moves=2, levels=3, key=jr.key(0)
    )
    compiled = jax.jit(run)()
    with jax.disable_jit():
        plain = run()
    for a, b in zip(jax.tree.leaves(compiled), jax.tree.leaves(plain), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_wrong_settings_are_refused():
    task, ys, xis = LinearGaussian(), jnp.zeros((3, 1)), jnp.zeros((3, 1))
    for wrong in ({"particles": 1}, {"moves": 0}, {"levels": 0}, {"target": 1.0}, {"target": 0.0}):
        with pytest.raises(InvalidValueError, match=next(iter(wrong))):
            tempered_smc(task, ys, xis, **wrong, key=jr.key(0))

    class Untold(History):
        """A task that is neither iid nor Markov."""

        horizon: int = 1
        prior: eqx.Module = None
        designs: Real = None
        outcomes: tuple = ()
        additive_noise: bool = True
        initial = outcome = log_prob = advance = None

    with pytest.raises(InvalidValueError, match="Untold"):
        update_smc(Untold(), jnp.zeros((4, 1)), ys, xis, known=0, observed=3, key=jr.key(0))
