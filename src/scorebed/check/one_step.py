"""The expected information gain of a single step, by nested Monte Carlo over a grid of designs.

    EIG₁(ξ) ≥ E[log p(y | θ₀, ξ) − log 1/(M+1) Σ_{m=0..M} p(y | θ_m, ξ)]

With nuisance parameters the first term is log 1/M Σ_{l=1..M} p(y | ψ₀, η_l, ξ), as in
`bounds/nuisance.py`."""

import itertools

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, Scalar

from scorebed._jit import jit_once
from scorebed.estimators.log_ratios import log_mean, lower_log_ratio
from scorebed.tasks.base import Task
from scorebed.tasks.nuisance import has_nuisance, resample_nuisance
from scorebed.tasks.spaces import Space

FAR = 3.0  # design units, the edge of the grid in an unbounded space


def axes(space: Space, points: int) -> list[np.ndarray]:
    """Equally spaced values of every design coordinate."""
    low, high = space.limits if space.bounded else _around(space)
    each = zip(low, high, space.quantities, strict=True)
    return [np.asarray(q.values) if q.values else np.linspace(a, b, points) for a, b, q in each]


def plane(x: np.ndarray, y: np.ndarray) -> Float[np.ndarray, "G 2"]:
    """All pairs of two axes; the second varies fastest."""
    return np.asarray(list(itertools.product(x, y)))


def line(space: Space, i: int, values: np.ndarray) -> Float[np.ndarray, "G dx"]:
    """One coordinate varies, the others are in the middle."""
    middle = np.asarray([[float(np.mean(axis)) for axis in axes(space, 2)]], np.float32)
    found = np.tile(np.asarray(space.nearest(jnp.asarray(middle))), (len(values), 1))
    found[:, i] = values
    return found


def _around(space: Space) -> tuple[tuple[float, ...], tuple[float, ...]]:
    edge = tuple(float(end) for end in space.constrain(FAR * jnp.ones(space.dim)))
    return tuple(-end for end in edge), edge


def one_step_eig(
    task: Task,
    xis: Float[np.ndarray, "G dx"],
    *,
    outer: int = 256,
    inner: int = 256,
    key: PRNGKeyArray,
) -> Float[np.ndarray, " G"]:
    """EIG of the first step at each design, with common draws. Costs G·N·(M + 1) NLE, with nuisance
    parameters G·N·(2M + 1).
    """
    random, k = np.random.default_rng(np.asarray(jr.key_data(key))), task.prior.dim
    sizes = ((outer, k), (inner, k), (outer, task.noise_dim))
    zs, other_zs, noise = (jnp.asarray(random.standard_normal(size), jnp.float32) for size in sizes)

    def at(xi: Float[Array, " dx"], others: Float[Array, "M k"]) -> Scalar:
        def gain(z: Array, eps: Array) -> Scalar:
            theta = task.prior.from_latent(z)
            y = task.outcome(theta, task.initial(theta), xi, eps)
            log_prob = lambda theta: task.log_prob(y, theta, task.initial(theta), xi)  # noqa: E731
            log_p0, rest = log_prob(theta), jax.nn.logsumexp(jax.vmap(log_prob)(others))
            first = log_p0
            if has_nuisance(task):
                alike = jax.vmap(task.prior.from_latent)(resample_nuisance(task, z, other_zs[::-1]))
                first = log_mean(jax.nn.logsumexp(jax.vmap(log_prob)(alike)), inner)
            return lower_log_ratio(first, log_p0, rest, inner)

        return jax.vmap(gain)(zs, noise).mean()

    def everywhere(xis: Float[Array, "G dx"]) -> Float[Array, " G"]:
        others = jax.vmap(task.prior.from_latent)(other_zs)
        return jax.lax.map(lambda xi: at(xi, others), xis)

    return np.asarray(jit_once(everywhere)(jnp.asarray(xis, jnp.float32)))
