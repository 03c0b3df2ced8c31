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
from scorebed.training.dropped import share_of_good
from scorebed.training.fit import Gradient, Loss, Terms, gradient_of


def clip_per_trajectory(loss: Loss, *, batch: int, limit: float) -> Gradient:
    """The mean of `batch` gradients of a loss, none longer than `limit` times the median length of
    its chunk.

    It comes in units of that longest length; a small limit gives every trajectory the same say, a
    large one the direction of the plain mean. Biased: it finds a good policy in a tenth of the
    steps, and must then end (docs/decisions/010). Trajectories whose gradient is not finite are
    dropped and counted."""
    chunk = chunk_size(batch)

    def gradient(params: PyTree, key: PRNGKeyArray) -> tuple[Terms, PyTree]:
        def add(total: PyTree, keys: Array) -> tuple[PyTree, tuple[dict[str, Array], Array]]:
            terms, grads = jax.vmap(gradient_of(loss), in_axes=(None, 0))(params, shard_batch(keys))
            length = jax.vmap(optax.tree.norm)(grads)
            good = jnp.isfinite(jnp.stack([length, *terms.values()])).all(0)
            share = jnp.where(good, clip_factors(jnp.where(good, length, jnp.nan), limit), 0)
            kept = jax.vmap(lambda ok, g: jax.tree.map(lambda x: jnp.where(ok, x, 0), g))(
                good, grads
            )
            total = jax.tree.map(lambda t, g: t + jnp.tensordot(share / batch, g, 1), total, kept)
            return total, (terms, good)

        keys = jr.split(key, batch).reshape(batch // chunk, chunk)
        total, (terms, good) = jax.lax.scan(add, jax.tree.map(jnp.zeros_like, params), keys)
        sums = {name: jnp.where(good, each, 0).sum() for name, each in terms.items()}
        return share_of_good(sums, good.reshape(-1)), total

    return gradient
