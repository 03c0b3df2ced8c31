"""Exchangeable blocks of θ (sources, peaks, components): their order, and where one of them may be.

The posterior of K exchangeable blocks has K! copies of every peak. A few blocks are described in
canonical order, and every order gets its share (`gaussian_mixture.Exchangeable`). Many blocks are
drawn independently from one density of a single block,

    g(x) = v N(x; 0, I) + (1 − v) 1/C Σ_c N(x; m_c, s_c² I)

with the balls of `Task.guess_block`; the prior is for blocks that no design came near. Blocks drawn
from g independently have no order, so that no sum over K! of them is needed."""

import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray, Scalar

from scorebed.errors import require
from scorebed.inference.gaussian_mixture import Density, gaussian_log_prob
from scorebed.tasks.base import Task

PRIOR_SHARE = 0.7  # v


def exchangeable_blocks(task: Task) -> int:
    """`task.exchangeable`, refused unless the parameters divide into that many blocks."""
    require(
        task.exchangeable >= 1 and task.prior.dim % task.exchangeable == 0,
        f"`exchangeable` of {type(task).__name__}",
        got=f"{task.exchangeable} blocks of {task.prior.dim} parameters",
        expected="equal blocks, one after another",
        fix="count the blocks that can be exchanged, and list the parameters block by block.",
    )
    return task.exchangeable


def canonical(z: Float[Array, " k"], blocks: int) -> Float[Array, " k"]:
    """z with its blocks sorted by their first coordinate."""
    rows = z.reshape(blocks, -1)
    return rows[jnp.argsort(rows[:, 0])].reshape(-1)


class Balls(Density):
    """Σ_c w_c N(x; m_c, s_c² I)."""

    weights: Float[Array, " C"]
    centres: Float[Array, "C d"]
    scales: Float[Array, " C"]

    def sample(self, *, key: PRNGKeyArray) -> Float[Array, " d"]:
        # One row of numbers: millions are drawn, and every further key costs as much as they do.
        which, *normal = jr.normal(key, (1 + self.centres.shape[1],), self.scales.dtype)
        c = (jnp.cumsum(self.weights[:-1]) < jax.scipy.special.ndtr(which)).sum()
        return self.centres[c] + self.scales[c] * jnp.stack(normal)

    def log_prob(self, z: Float[Array, " d"]) -> Scalar:
        squares = sum((z[i] - self.centres[:, i]) ** 2 for i in range(len(z)))
        each = gaussian_log_prob(
            squares / self.scales**2, len(z) * jnp.log(self.scales), dim=len(z)
        )
        return jax.nn.logsumexp(jnp.log(self.weights) + each)


def block_density(task: Task, ys: Float[Array, "T dy"], xis: Float[Array, "T dx"]) -> Balls:
    """g, which takes no likelihood at all."""
    d = task.prior.dim // exchangeable_blocks(task)
    guess = task.guess_block(ys, xis)
    origin, one = jnp.zeros((1, d), ys.dtype), jnp.ones(1, ys.dtype)
    if guess is None:
        return Balls(one, origin, one)
    count = len(guess.scales)
    return Balls(
        jnp.full(count + 1, (1 - PRIOR_SHARE) / count, ys.dtype).at[0].set(PRIOR_SHARE),
        jnp.concatenate([origin, guess.centres]),
        jnp.concatenate([one, guess.scales]),
    )
