"""Flows in place of the marginal likelihood: densities, with the sampler's own density taken off
the joint one.
"""

import functools
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from flowjax.distributions import MultivariateNormal

from scorebed._jit import jit_once
from scorebed.densities import flow_marginal as marginal
from scorebed.densities.flow_marginal import (
    PAPER_SIZES,
    ConditionalFlow,
    FlowCoordinates,
    FlowSizes,
    JointFlow,
    flow_coordinates,
    marginal_flow,
)
from scorebed.errors import InvalidValueError, NoDensityError
from scorebed.samplers.gaussian import IsotropicGaussian
from scorebed.samplers.low_rank import LowRank
from scorebed.tasks.base import IID, Gaussian
from scorebed.tasks.oracles.linear_gaussian import LinearGaussian
from scorebed.tasks.priors import Prior, standard_normal
from scorebed.tasks.spaces import Box, Quantity, Real, Space

TINY = FlowSizes(layers=2, width=8, depth=1)
SPREAD = 0.7


class Shift(IID, Gaussian):
    """y_t = θ + u_t/2 + σ ε_t, ξ = constrain(u): with Gaussian u, all of (y, u) is jointly
    Gaussian.
    """

    designs: Space = eqx.field(static=True)
    horizon: int = eqx.field(static=True, default=2)
    prior: Prior = standard_normal((Quantity("shift"),))
    outcomes: tuple = eqx.field(static=True, default=(Quantity("response"),))
    noise: float = eqx.field(static=True, default=0.6)
    additive_noise: bool = eqx.field(static=True, default=True)

    def mean(self, theta, state, xi):
        del state
        return theta + 0.5 * self.designs.unconstrain(xi)

    def scale(self, theta, state, xi):
        del theta, state, xi
        return (self.noise,)


NAME = (Quantity("input"),)
SPACES = {"real": Real(NAME, scale=2.5), "box": Box(NAME, (-1.0,), (5.0,))}
COORDINATES = FlowCoordinates(
    jnp.asarray([[0.3], [-0.2]]),
    jnp.asarray([[1.7], [0.8]]),
    jnp.asarray([[0.1], [0.4]]),
    jnp.asarray([[0.5], [1.4]]),
)


@pytest.mark.parametrize("space", SPACES)
def test_the_samplers_density_and_all_scales_are_taken_off_an_analytic_joint(space, monkeypatch):
    task = Shift(SPACES[space])
    # (u_1, y_1, u_2, y_2) = M (u_1, u_2, θ, ε_1, ε_2), standardised as the flow standardises.
    M = np.asarray([[1, 0, 0, 0, 0], [0.5, 0, 1, 1, 0], [0, 1, 0, 0, 0], [0, 0.5, 1, 0, 1]])
    M = M * np.asarray([SPREAD, SPREAD, 1, task.noise, task.noise])
    scale = np.asarray([0.5, 1.7, 1.4, 0.8])
    away = np.asarray([0.1, 0.3, 0.4, -0.2])
    joint = jit_once(MultivariateNormal)(
        jnp.asarray(-away / scale), jnp.asarray((M / scale[:, None]) @ (M / scale[:, None]).T)
    )
    monkeypatch.setattr(marginal, "_spline_flow", lambda *_, **__: joint)
    sampler = IsotropicGaussian(task.horizon, task.designs, scale=SPREAD)
    exact = JointFlow(task, sampler, COORDINATES, key=jr.key(0))
    ys, xis = jnp.asarray([[0.4], [-1.3]]), task.designs.constrain(jnp.asarray([[0.6], [-0.9]]))
    residual = np.asarray(ys - 0.5 * np.asarray([[0.6], [-0.9]]))[:, 0]
    covariance = task.noise**2 * np.eye(2) + 1
    truth = -0.5 * (
        residual @ np.linalg.solve(covariance, residual) + math.log(np.linalg.det(covariance))
    )
    truth -= math.log(2 * math.pi)
    np.testing.assert_allclose(jit_once(exact.log_prob)(ys, xis), truth, rtol=2e-5)


ONE = Shift(SPACES["real"], horizon=1)


@functools.cache
def tiny(kind):
    """An untrained flow for one experiment step."""
    sampler = IsotropicGaussian(1, ONE.designs, scale=SPREAD)
    return kind(ONE, sampler, jax.tree.map(lambda a: a[:1], COORDINATES), TINY, key=jr.key(0))


def axis(half: float, count: int):
    points = np.linspace(-half, half, count)
    return points, points[1] - points[0]


def grid_of(kind):
    """Points (y, u) with the width of a cell: of the plane, or of a line at one design far from the
    sampler's.
    """
    (ys, dy), (us, du) = (
        (axis(13, 281), axis(5, 281))
        if kind is JointFlow
        else (axis(15, 1201), (np.asarray([2.4]), 1.0))
    )
    points = np.stack(np.meshgrid(ys, us, indexing="ij"), axis=-1).reshape(-1, 2)
    return jnp.asarray(points, jnp.float32), dy * du


@pytest.mark.parametrize("kind", [JointFlow, pytest.param(ConditionalFlow, marks=pytest.mark.slow)])
def test_a_flow_is_a_density_with_gradients_in_outcomes_designs_and_networks_only(kind):
    params, static = eqx.partition(tiny(kind), eqx.is_inexact_array)
    points, cell = grid_of(kind)
    at, h = jnp.asarray([0.7, 0.16]), 1e-2
    ends = at + h * jnp.asarray([[1.0, 0], [-1, 0], [0, 1], [0, -1]])

    def log_prob(params, x):
        """log q(y | ξ) of x = (y, u)."""
        return eqx.combine(params, static).log_prob(x[:1, None], ONE.designs.constrain(x[1:, None]))

    def everything(params):
        gradient = jax.grad(log_prob, argnums=(0, 1))(params, at)
        return gradient, jax.vmap(lambda x: log_prob(params, x))(jnp.concatenate([ends, points]))

    (of_params, of_x), values = jit_once(everything)(params)
    ends, log_q = values[:4], np.asarray(values[4:])
    if kind is JointFlow:  # a density of (y, u), once the sampler's is put back
        log_q = (
            log_q
            - 0.5 * (np.asarray(points)[:, 1] / SPREAD) ** 2
            - math.log(SPREAD * math.sqrt(2 * math.pi))
        )
    np.testing.assert_allclose(np.exp(log_q).sum() * cell, 1, rtol=3e-3)
    slopes = (ends[0::2] - ends[1::2]) / (2 * h)
    np.testing.assert_allclose(of_x, slopes, rtol=0.03, atol=1e-3)
    assert np.abs(slopes).min() > 0.02
    assert all((leaf == 0).all() for leaf in jax.tree.leaves(of_params.coordinates))
    assert any((leaf != 0).any() for leaf in jax.tree.leaves(of_params.flow))


def test_coordinates_are_of_order_one_at_every_step():
    task = Shift(SPACES["box"])
    sampler = IsotropicGaussian(task.horizon, task.designs, scale=SPREAD)
    found = jit_once(lambda key: flow_coordinates(task, sampler, key=key))(jr.key(0))
    # Five standard errors of a standard deviation from 1,024 draws.
    np.testing.assert_allclose(found.scale_u, SPREAD, rtol=5 / math.sqrt(2048))
    np.testing.assert_allclose(
        found.scale_y, math.sqrt(1 + 0.36 + (0.5 * SPREAD) ** 2), rtol=5 / math.sqrt(2048)
    )


def test_without_a_density_of_designs_the_flow_is_conditional(monkeypatch):
    monkeypatch.setattr(marginal, "_spline_flow", lambda *_, **__: None)
    task = LinearGaussian(horizon=2)
    sampler = LowRank(task.horizon, task.designs)
    with pytest.raises(NoDensityError):
        JointFlow(task, sampler, COORDINATES, TINY, key=jr.key(0))
    assert isinstance(marginal_flow(task, sampler, key=jr.key(0)), ConditionalFlow)


def test_refusals():
    task = LinearGaussian(horizon=2)
    other = IsotropicGaussian(3, task.designs)
    with pytest.raises(InvalidValueError, match="sampler"):
        ConditionalFlow(task, other, COORDINATES, TINY, key=jr.key(0))
    right = IsotropicGaussian(2, task.designs)
    with pytest.raises(InvalidValueError, match="sizes of a flow"):
        JointFlow(task, right, COORDINATES, FlowSizes(bins=1), key=jr.key(0))
    assert PAPER_SIZES == (5, 80, 2, 8, 4.0)
