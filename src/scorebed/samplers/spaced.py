"""Designs spread evenly over the design space, chosen without a model: what an experimenter would
try first.

A single coordinate takes T equally spaced values of its range, ends included, and so does every
coordinate that has to rise. Several coordinates follow a Kronecker sequence, frac(½ + t α) with
α = 1/ρ, 1/ρ², … and ρ^{d+1} = ρ + 1, which fills a box evenly for any T. In an unbounded space the
same numbers are quantiles of the Gaussian that random designs are drawn from."""

import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtri
from jaxtyping import Array, Float

from scorebed.tasks.base import Task


def spaced_designs(task: Task) -> Float[Array, "T dx"]:
    """Evenly spread designs of a task. Under a constraint each is the feasible design nearest to
    its even place.
    """
    T, dx, feasible = task.horizon, task.designs.dim, task.feasible
    places = _kronecker(T, dx)
    line = np.linspace(0.0, 1.0, T) if T > 1 else np.asarray([0.5])
    for i in range(dx):
        if dx == 1 or (feasible is not None and feasible.limits[i].rising):
            places[:, i] = line
    if task.designs.listed:
        return task.designs.evenly(jnp.asarray(places, jnp.result_type(float)))
    if task.designs.bounded:
        low, high = map(np.asarray, task.designs.limits)
        xis = jnp.asarray(low + (high - low) * places, jnp.result_type(float))
    else:
        # The quantiles at 0 and 1 are infinite: take the middles of T equal shares.
        middles = (np.round(places * (T - 1)) + 0.5) / T if dx == 1 else places
        xis = task.designs.constrain(ndtri(jnp.asarray(middles, jnp.result_type(float))))
    if feasible is None:
        return xis
    previous, found = feasible.start().astype(xis.dtype), []
    for t in range(T):
        previous = jnp.clip(xis[t], *feasible.interval(previous, jnp.asarray(t)))
        found.append(previous)
    return jnp.stack(found)


def _kronecker(points: int, dim: int) -> np.ndarray:
    """frac(½ + t α), t = 0, …"""
    ratio = 2.0
    for _ in range(64):
        ratio = (1 + ratio) ** (1 / (dim + 1))
    alpha = ratio ** -np.arange(1.0, dim + 1)
    return (0.5 + np.arange(points)[:, None] * alpha) % 1
