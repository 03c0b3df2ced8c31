"""Gradients in which no trajectory outweighs the others.

The gradient of one trajectory has heavy tails (a design next to a source has a score thousands of
times the usual one), and the mean over a batch then points wherever its largest member does.
"""

import jax
import jax.numpy as jnp
import jax.random as jr
import optax
from jaxtyping import Array, PRNGKeyArray, PyTree

from scorebed._sharding import shard_batch
from scorebed.estimators.trajectory_clip import chunk_size, clip_factors
from scorebed.training.fit import Gradient, Loss, Terms, gradient_of


def clip_per_trajectory(loss: Loss, *, batch: int, limit: float) -> Gradient:
    """The mean of `batch` gradients of a loss, none longer than `limit` times the median length of
    its chunk.

    It comes in units of that longest length; a small limit gives every trajectory the same say, a
    large one the direction of the plain mean. Biased: it finds a good policy in a tenth of the
    steps, and must then end (docs/decisions/010)."""
    chunk = chunk_size(batch)

    def gradient(params: PyTree, key: PRNGKeyArray) -> tuple[Terms, PyTree]:
        def add(total: PyTree, keys: Array) -> tuple[PyTree, dict[str, Array]]:
            terms, grads = jax.vmap(gradient_of(loss), in_axes=(None, 0))(params, shard_batch(keys))
            length = jax.vmap(optax.tree.norm)(grads)
            share = clip_factors(length, limit) / batch
            return jax.tree.map(lambda t, g: t + jnp.tensordot(share, g, 1), total, grads), terms

        keys = jr.split(key, batch).reshape(batch // chunk, chunk)
        total, terms = jax.lax.scan(add, jax.tree.map(jnp.zeros_like, params), keys)
        return jax.tree.map(jnp.mean, terms), total

    return gradient
