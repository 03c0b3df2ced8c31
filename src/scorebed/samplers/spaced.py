"""Designs that are spread evenly over the design space, chosen without any model: what every
experimenter would do first.

One coordinate takes T equally spaced values of its range, ends included; so does every coordinate
that has to rise. Further ones follow a Kronecker sequence, frac(½ + t α), α = 1/ρ, 1/ρ², … with
ρ^{d+1} = ρ + 1, which fills a box evenly for any T. Without limits the same places are quantiles of
the Gaussian that random designs are drawn from."""

import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtri
from jaxtyping import Array, Float

from scorebed.tasks.base import Task
from scorebed.tasks.spaces import Box


def spaced_designs(task: Task) -> Float[Array, "T dx"]:
    """Evenly spread designs of a task. Under a constraint each is the nearest to its place that may
    follow the one before.
    """
    T, dx, reach = task.horizon, task.designs.dim, task.reach
    places = _kronecker(T, dx)
    line = np.linspace(0.0, 1.0, T) if T > 1 else np.asarray([0.5])
    for i in range(dx):
        if dx == 1 or (reach is not None and reach.limits[i].rising):
            places[:, i] = line
    if isinstance(task.designs, Box):
        low, high = np.asarray(task.designs.low), np.asarray(task.designs.high)
        xis = jnp.asarray(low + (high - low) * places, jnp.result_type(float))
    else:
        middles = (
            (np.round(places * (T - 1)) + 0.5) / T if dx == 1 else places
        )  # no quantile at 0 and 1
        xis = task.designs.constrain(ndtri(jnp.asarray(middles, jnp.result_type(float))))
    if reach is None:
        return xis
    previous, found = reach.start().astype(xis.dtype), []
    for t in range(T):
        previous = jnp.clip(xis[t], *reach.interval(previous, jnp.asarray(t)))
        found.append(previous)
    return jnp.stack(found)


def _kronecker(points: int, dim: int) -> np.ndarray:
    """frac(½ + t α), t = 0, …"""
    ratio = 2.0
    for _ in range(64):
        ratio = (1 + ratio) ** (1 / (dim + 1))
    alpha = ratio ** -np.arange(1.0, dim + 1)
    return (0.5 + np.arange(points)[:, None] * alpha) % 1
