"""Densities for importance sampling: normalised, drawn from as they say, and close to the points
they were fitted to.
"""

import math

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from scorebed.errors import InvalidValueError
from scorebed.inference.blocks import Balls
from scorebed.inference.gaussian_mixture import (
    Defensive,
    Exchangeable,
    HeavyTailedMixture,
    fit_heavy_tailed,
    standard_normal_log_prob,
)


def mixture(k: int) -> HeavyTailedMixture:
    """Two components in a skewed frame, none of them round."""
    lower = jnp.tril(jnp.full((k, k), 0.3)) + 0.4 * jnp.eye(k)
    return HeavyTailedMixture(
        centre=jnp.linspace(0.2, -0.5, k),
        frame=lower,
        log_weights=jnp.log(jnp.asarray([0.3, 0.7])),
        means=jnp.stack([jnp.full(k, -1.5), jnp.linspace(1.0, 1.6, k)]),
        factors=jnp.stack([0.3 * jnp.eye(k) + 0.2 * lower, lower]),
    )


DENSITIES = {
    "exchangeable": Defensive(Exchangeable(mixture(2), 2), 2, 0.2),
    "balls": Balls(
        jnp.asarray([0.2, 0.8]), jnp.asarray([[-0.8, -0.8], [0.9, 0.9]]), jnp.asarray([0.4, 0.7])
    ),
}


@pytest.mark.parametrize("name", DENSITIES)
def test_densities_are_normalised_and_their_draws_follow_them(name):
    density = DENSITIES[name]
    axis = jnp.linspace(-12, 12, 301)
    grid = jnp.stack(jnp.meshgrid(axis, axis), -1).reshape(-1, 2)

    @jax.jit
    def run(grid, key):
        draws = jax.vmap(lambda k: density.sample(key=k))(jr.split(key, 4000))
        return jax.vmap(density.log_prob)(grid), draws

    log_probs, draws = run(grid, jr.key(0))
    probs = np.exp(np.asarray(log_probs, np.float64)) * (24 / 300) ** 2
    # The sum misses what lies outside, some 10⁻⁴. Without 1/K! it would be 2.
    np.testing.assert_allclose(probs.sum(), 1, atol=2e-3)
    table = np.asarray(log_probs).reshape(301, 301)
    np.testing.assert_allclose(
        table, table.T, rtol=1e-5
    )  # the order of the sources does not matter
    # Means of functions under the draws are those under the density: cells, moments of the tails,
    # and the order of coordinates.
    for function in (
        lambda z: z[:, 0],
        lambda z: np.abs(z).sum(1),
        lambda z: z[:, 0] < z[:, 1],
        lambda z: z[:, 0] * z[:, 1],
    ):
        truth = (probs * function(np.asarray(grid))).sum()
        found = function(np.asarray(draws)).astype(np.float64)
        assert abs(found.mean() - truth) < 4.892 * found.std() / math.sqrt(len(found)) + 2e-3


def test_too_many_blocks_to_order_are_refused():
    with pytest.raises(InvalidValueError, match="exchangeable blocks"):
        Exchangeable(mixture(5), 5)


def test_a_fit_finds_narrow_modes_and_survives_bad_points():
    # Two narrow correlated modes far apart. A single Gaussian would lose 3 nats, diagonal
    # components 0.8.
    random = np.random.default_rng(0)
    shape = np.asarray([[0.05, 0.0], [0.045, 0.02]])
    means = np.asarray([[-1.0, 0.5], [1.0, 0.7]])
    which = random.integers(2, size=2000)
    points = means[which] + random.normal(size=(2000, 2)) @ shape.T
    fit = jax.jit(
        lambda points, fresh: jax.vmap(fit_heavy_tailed(points, 3, key=jr.key(0)).log_prob)(fresh)
    )
    points, fresh = map(jnp.asarray, np.split(points.astype(np.float32), 2))
    entropy = math.log(2) + math.log(2 * math.pi * math.e) + math.log(np.linalg.det(shape))
    # The wider copies of a component, by which its tails are heavier, take a third of a nat.
    assert -entropy - 0.5 < np.mean(fit(points, fresh)) < -entropy + 0.1
    # Points that are not numbers give a standard normal, with the same tails.
    plain = np.asarray(fit(points * jnp.nan, fresh))
    normal = np.asarray(jax.vmap(standard_normal_log_prob)(fresh))
    assert (np.abs(plain - normal) < 1).all()
