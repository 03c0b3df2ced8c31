"""How much each trajectory has to say in the mean of their gradients, where none may outweigh the
others.
"""

import math

import jax.numpy as jnp
from jaxtyping import Array, Float

CHUNK = 64  # trajectories whose gradients are held at once


def chunk_size(batch: int) -> int:
    """Trajectories of a batch that are clipped together."""
    return math.gcd(batch, CHUNK)


def clip_factors(lengths: Float[Array, " N"], limit: float) -> Float[Array, " N"]:
    """1 / max(length, longest) with longest = `limit` · median of the lengths: no gradient times
    its factor is longer than one, and a shorter one keeps its proportion. A length that is NaN does
    not count.
    """
    tiny = jnp.finfo(lengths.dtype).tiny
    longest = jnp.maximum(limit * jnp.nanmedian(lengths), tiny)
    return jnp.minimum(1 / longest, 1 / jnp.maximum(lengths, tiny))
