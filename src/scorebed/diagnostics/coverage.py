"""Which of a policy's designs lie where its score was trained."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, Scalar

from scorebed.errors import require
from scorebed.keys import named
from scorebed.policies.base import Policy
from scorebed.rollout import simulate
from scorebed.samplers.base import DesignSampler
from scorebed.tasks.base import Task

NEIGHBOURS = 0.99  # quantile of the distances within the pool, each to its nearest neighbour
# Times that distance counts as uncovered: a step that always asks for one design must not fall into
# a gap of the pool by chance.
SLACK = 2.0


class Coverage(NamedTuple):
    """The share of the policy's designs that the sampler does not cover, by step."""

    outside: Float[np.ndarray, " T"]

    @property
    def share(self) -> float:
        return float(self.outside.mean())


def coverage(
    task: Task,
    sampler: DesignSampler,
    policy: Policy,
    *,
    outer: int = 512,
    pool: int = 1024,
    key: PRNGKeyArray,
) -> Coverage:
    """Which of the policy's designs resemble those that the score was trained on, step by step.

    A design is not covered if the nearest of `pool` sampler designs of the same step is more than
    twice as far as 99% of the pool are from their nearest neighbours, in normalised designs. It
    looks at one step at a time: a sequence of familiar designs may still be a new one. No NLE."""
    require(
        outer >= 1 and pool >= 100,
        "the size of a coverage check",
        got=f"outer={outer}, pool={pool}",
        expected="at least one trajectory and a pool of a hundred",
        fix="512 and 1024 are usual.",
    )

    return Coverage(np.asarray(_outside(task, sampler, policy, outer, pool, key)))


@eqx.filter_jit
def _outside(
    task: Task, sampler: DesignSampler, policy: Policy, outer: int, pool: int, key: PRNGKeyArray
) -> Float[Array, " T"]:
    pooled = jax.vmap(lambda k: sampler.sample(key=k))(jr.split(named(key, "pool"), pool))
    asked = jax.vmap(lambda k: simulate(task, policy, key=k).xis)(
        jr.split(named(key, "policy"), outer)
    )

    def step(each: tuple[Array, Array]) -> Scalar:
        pooled, asked = each
        within = jnp.where(jnp.eye(pool, dtype=bool), jnp.inf, _distances(pooled, pooled)).min(1)
        limit = (
            SLACK * jnp.quantile(within, NEIGHBOURS) + 1e-6
        )  # a sampler may repeat itself exactly
        return jnp.mean((_distances(asked, pooled).min(1) > limit).astype(asked.dtype))

    by_step = [jnp.swapaxes(task.designs.normalise(xis), 0, 1) for xis in (pooled, asked)]
    return jax.lax.map(step, (by_step[0], by_step[1]))


def _distances(a: Float[Array, "N dx"], b: Float[Array, "M dx"]) -> Float[Array, "N M"]:
    # Coordinate by coordinate: ‖a‖² − 2⟨a, b⟩ + ‖b‖² would lose short distances to rounding.
    return jnp.sqrt(sum((a[:, i, None] - b[None, :, i]) ** 2 for i in range(a.shape[1])))
