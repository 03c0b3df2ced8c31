"""The mixture posterior: a density, blind to the order of what can be exchanged, with the K! of
sources in canonical order.
"""

import functools
import itertools
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from scorebed._jit import jit_once
from scorebed.densities.mixture_posterior import DiagonalMixture, MixturePosterior
from scorebed.errors import InvalidValueError
from scorebed.estimators.variational import posterior_surrogate
from scorebed.inference.blocks import canonical
from scorebed.policies.random import RandomDesigns
from scorebed.rollout import draw_noise
from scorebed.samplers.gaussian import IsotropicGaussian
from scorebed.scores.standardise import Standardiser
from scorebed.tasks.base import Task
from scorebed.tasks.library.location import LocationFinding
from scorebed.tasks.library.pendulum import Pendulum

LINE = LocationFinding(dim=1, sources=2, horizon=3)
PLANE = LocationFinding(dim=2, sources=3, horizon=3)


def plain(task: Task) -> Standardiser:
    """Statistics that change nothing."""
    dy, dx = task.outcome_dim, task.designs.dim
    return Standardiser(jnp.zeros(dy), jnp.ones(dy), jnp.ones(dy), jnp.zeros(dx), jnp.ones(dx))


@functools.cache
def tiny(task: Task) -> MixturePosterior:
    sizes = {
        "components": 3,
        "width": 8,
        "blocks": 1,
        "heads": 2,
        "features": 4,
        "sigma": 0.3,
        "hidden": (8,),
    }
    return jit_once(lambda key: MixturePosterior(task, plain(task), **sizes, key=key))(jr.key(0))


@eqx.filter_jit
def log_probs(
    posterior: MixturePosterior, zs: jax.Array, ys: jax.Array, xis: jax.Array
) -> jax.Array:
    return jax.vmap(lambda z: posterior.log_prob(z, ys, xis))(zs)


@eqx.filter_jit
def sorted_log_probs(
    posterior: MixturePosterior, zs: jax.Array, ys: jax.Array, xis: jax.Array
) -> jax.Array:
    """Of the mixture alone, which takes the sources as they come."""
    return jax.vmap(posterior.mixture(ys, xis).log_prob)(zs)


def data(task: Task) -> tuple[jax.Array, jax.Array]:
    rng = np.random.default_rng(0)
    ys, xis = (
        rng.normal(size=(task.horizon, task.outcome_dim)),
        rng.normal(size=(task.horizon, task.designs.dim)),
    )
    return jnp.asarray(ys, jnp.float32), jnp.asarray(xis, jnp.float32)


def square_grid(half: float, count: int):
    axis = np.linspace(-half, half, count)
    points = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)
    return jnp.asarray(points, jnp.float32), (axis[1] - axis[0]) ** 2


def test_the_mixture_is_the_sum_of_its_gaussians():
    mixture = DiagonalMixture(
        jnp.log(jnp.asarray([0.3, 0.7])),
        jnp.asarray([[0.5, -1.0], [0.0, 0.4]]),
        jnp.log(jnp.asarray([[0.5, 2.0], [1.0, 0.7]])),
    )
    z = np.asarray([0.2, -0.3])
    density = 0.0
    for weight, m, s in zip(
        (0.3, 0.7), ((0.5, -1.0), (0.0, 0.4)), ((0.5, 2.0), (1.0, 0.7)), strict=True
    ):
        density += weight * math.prod(
            math.exp(-0.5 * ((x - a) / b) ** 2) / (b * math.sqrt(2 * math.pi))
            for x, a, b in zip(z, m, s, strict=True)
        )
    found = jit_once(mixture.log_prob)(jnp.asarray(z, jnp.float32))
    np.testing.assert_allclose(found, math.log(density), rtol=1e-5)


def test_over_all_orders_the_density_has_the_mass_of_the_canonical_one():
    # Without the K! it would have twice the mass of the cone.
    points, cell = square_grid(10.0, 201)
    total = np.exp(log_probs(tiny(LINE), points, *data(LINE))).sum() * cell
    # Half of every point on the diagonal, where the sources are equal.
    share = 0.5 * (np.sign(points[:, 1] - points[:, 0]) + 1)
    cone = (share * np.exp(sorted_log_probs(tiny(LINE), points, *data(LINE)))).sum() * cell
    assert 0.1 < cone < 1
    np.testing.assert_allclose(total, cone, rtol=2e-3)


def test_sources_are_sorted_whole_by_their_first_coordinate():
    rows = np.asarray([[-0.7, 2.0], [0.1, -1.0], [0.9, 0.3]], np.float32)
    orders = jnp.asarray([rows[list(p)].reshape(-1) for p in itertools.permutations(range(3))])
    np.testing.assert_array_equal(
        jit_once(jax.vmap(lambda z: canonical(z, 3)))(orders), np.tile(rows.reshape(-1), (6, 1))
    )


def test_every_order_of_the_sources_has_an_equal_share():
    in_order = sorted_log_probs(tiny(LINE), jnp.asarray([[-0.7, 0.9]]), *data(LINE))
    found = log_probs(tiny(LINE), jnp.asarray([[-0.7, 0.9], [0.9, -0.7]]), *data(LINE))
    np.testing.assert_allclose(found, in_order[0] - math.log(2), rtol=1e-5)


def test_a_posterior_that_knows_nothing_is_log_k_factorial_below_zero():
    # q_sorted = N(0, I): it knows neither the data nor that sources come sorted, so the bound is
    # −log 2! for every sample.
    last = tiny(LINE).to_components.layers[-1]
    blind = eqx.tree_at(
        lambda q: q.to_components.layers[-1], tiny(LINE), jax.tree.map(jnp.zeros_like, last)
    )
    policy = RandomDesigns(IsotropicGaussian(LINE.horizon, LINE.designs))

    def one(key):
        z = jr.normal(key, (LINE.prior.dim,))
        return posterior_surrogate(LINE, blind, policy, z, draw_noise(LINE, policy, key=key))

    found = jit_once(jax.vmap(one))(jr.split(jr.key(3), 16))
    np.testing.assert_allclose(found, -math.log(2), atol=1e-5)


def test_only_exchangeable_steps_may_be_exchanged():
    ys, xis = data(LINE)
    zs, order = jnp.asarray([[0.3, 0.3]]), np.asarray([2, 0, 1])
    here = log_probs(tiny(LINE), zs, ys, xis)[0]
    assert abs(here - log_probs(tiny(LINE), zs, ys[order], xis[order])[0]) < 1e-5
    assert abs(here - log_probs(tiny(LINE), zs, ys[order], xis)[0]) > 1e-4
    dynamical = Pendulum()
    assert eqx.filter_eval_shape(
        lambda: MixturePosterior(dynamical, plain(dynamical), key=jr.key(0))
    ).backbone.positions


def test_the_papers_sizes():
    shapes = eqx.filter_eval_shape(lambda: MixturePosterior(PLANE, plain(PLANE), key=jr.key(0)))
    assert len(shapes.backbone.blocks) == 3
    assert shapes.to_weights.layers[-1].weight.shape == (256, 10)
    assert shapes.to_components.layers[-1].weight.shape == (10, 256, 2 * 6)


def test_refusals():
    with pytest.raises(InvalidValueError, match="components"):
        MixturePosterior(LINE, plain(LINE), components=0, key=jr.key(0))
    with pytest.raises(InvalidValueError, match="standardiser"):
        MixturePosterior(PLANE, plain(LINE), key=jr.key(0))
