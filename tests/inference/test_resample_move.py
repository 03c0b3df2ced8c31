"""Particles carried from outcome to outcome: against a closed form, and what their order means."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from scorebed.inference.resample_move import (
    MANY,
    after_outcome,
    in_order_of,
    parts_of,
    prior_cloud,
    prior_points,
    thetas_of,
    update_nle,
)
from scorebed.tasks import ORACLE_TASKS
from scorebed.tasks.library.gravimetry import Gravimetry
from scorebed.tasks.library.location import LocationFinding

REPEATS, PARTICLES, LEVELS, MOVES = 64, 128, 3, 6


@pytest.fixture(scope="module")
def gaussian(history, repeat):
    """(task, ys, xis, repeated clouds) of a correlated linear-Gaussian model, outcome by
    outcome.
    """
    task = ORACLE_TASKS["linear-gaussian-2d"](noise=0.2, horizon=6)
    ys, xis = history(task)

    def carried(key):
        def step(cloud, t):
            sizes = {"levels": LEVELS, "moves": MOVES}
            return after_outcome(task, cloud, ys, xis, t, **sizes, key=jr.fold_in(key, t)), None

        start = prior_cloud(jnp.asarray(prior_points(task, PARTICLES)))
        return jax.lax.scan(step, start, jnp.arange(len(ys)))[0]

    return task, ys, xis, repeat(carried, REPEATS)


def test_particles_are_the_exact_posterior(gaussian, assert_mean):
    """The standard error is about 2% of the posterior's scale, and particles that are resampled
    from few bias by 1/S. With moves at β = 1 on all levels, or without the ratio of redrawn parts,
    the covariance is more than 20% off.
    """
    task, ys, xis, clouds = gaussian
    theta = np.asarray(jax.vmap(lambda z: thetas_of(task, z))(clouds.z))
    exact = jax.jit(task.posterior)(ys, xis)
    scale = np.sqrt(np.diag(exact.covariance))
    away = theta - theta.mean(2, keepdims=True)
    covariance = np.einsum("ris,rjs->rij", away, away) / PARTICLES
    assert_mean(theta.mean(2), exact.mean, 4 * scale / PARTICLES)
    assert_mean(covariance, exact.covariance, 8 * np.outer(scale, scale) / PARTICLES)


def test_likelihoods_are_carried_along(gaussian):
    task, ys, xis, clouds = gaussian
    theta = thetas_of(task, clouds.z[0])
    each = jax.vmap(
        lambda y, xi: jax.vmap(lambda th: task.log_prob(y, th, None, xi), in_axes=1)(theta)
    )
    np.testing.assert_allclose(clouds.log_likelihood[0], each(ys, xis).sum(0), rtol=1e-4, atol=1e-3)


def test_particles_that_are_worth_many_stay_where_they_are():
    task = ORACLE_TASKS["linear-gaussian-2d"](noise=5.0, horizon=1)
    start = prior_cloud(jnp.asarray(prior_points(task, 2 * MANY)))
    ys, xis = jnp.ones((1, task.outcome_dim)), jnp.ones((1, task.designs.dim))

    @jax.jit
    def update(step):
        return after_outcome(task, start, ys, xis, step, levels=1, moves=1, key=jr.key(0))

    after = update(jnp.zeros((), int))
    np.testing.assert_array_equal(after.z, start.z)
    np.testing.assert_array_equal(after.log_weights, after.log_likelihood)
    assert float(after.weights.sum()) == pytest.approx(1, abs=1e-5)


def test_blocks_take_the_order_of_the_reference():
    """Also where one block of a particle is anywhere: the one that fits decides."""
    reference = jnp.asarray([0.0, 0.0, 3.0, 1.0, -2.0, 4.0])
    rng = np.random.default_rng(0)
    rows = np.asarray(reference).reshape(3, 2)
    orders = [rng.permutation(3) for _ in range(5)]
    z = np.stack([(rows[order] + 0.01 * rng.normal(size=(3, 2))).reshape(-1) for order in orders])
    found = np.asarray(in_order_of(jnp.asarray(z.T), reference, 3)).T
    np.testing.assert_allclose(found, np.tile(reference, (5, 1)), atol=0.06)
    lost = jnp.asarray([[2.9, 1.2, 50.0, 50.0, 0.1, 0.0]]).T
    np.testing.assert_allclose(
        in_order_of(lost, reference, 3)[:, 0], [0.1, 0.0, 2.9, 1.2, 50.0, 50.0], rtol=1e-6
    )


def test_parts_are_blocks_or_coordinates():
    assert parts_of(LocationFinding(dim=3, sources=10)) == 10
    assert parts_of(LocationFinding(dim=2, sources=1)) == 1
    assert parts_of(Gravimetry()) == 3


def test_what_updates_cost():
    assert update_nle(3, particles=8, levels=2, moves=5) == 8 * (3 + 2 * 5 * (1 + 2 + 3))
