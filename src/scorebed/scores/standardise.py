"""Inputs of order one: outcomes and designs minus their mean, over their standard deviation, under
the sampler's designs: y ↦ (y − m_y) / s_y, ξ ↦ (ξ − m_ξ) / s_ξ.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from scorebed.errors import require
from scorebed.keys import named
from scorebed.rollout import pilot_runs
from scorebed.samplers.base import DesignSampler
from scorebed.tasks.base import Task


class Standardiser(eqx.Module):
    """Fixed statistics, one per coordinate and shared by all steps; never trained."""

    mean_y: Float[Array, " dy"]
    scale_y: Float[Array, " dy"]
    scale_step: Float[Array, " dy"]
    mean_xi: Float[Array, " dx"]
    scale_xi: Float[Array, " dx"]

    def y(self, ys: Float[Array, "*b dy"]) -> Float[Array, "*b dy"]:
        """Outcomes of order one."""
        return (ys - jax.lax.stop_gradient(self.mean_y)) / jax.lax.stop_gradient(self.scale_y)

    def step(self, steps: Float[Array, "*b dy"]) -> Float[Array, "*b dy"]:
        """Differences y_t − y_{t−1} of order one."""
        return steps / jax.lax.stop_gradient(self.scale_step)

    def xi(self, xis: Float[Array, "*b dx"]) -> Float[Array, "*b dx"]:
        """Designs of order one."""
        return (xis - jax.lax.stop_gradient(self.mean_xi)) / jax.lax.stop_gradient(self.scale_xi)

    def require_for(self, task: Task, owner: str) -> None:
        """Refuse one that was made for another task, by its sizes."""
        sizes = self.scale_y.size, self.scale_xi.size
        require(
            sizes == (task.outcome_dim, task.designs.dim),
            f"the standardiser of {owner}",
            got=f"{sizes[0]} outcome and {sizes[1]} design coordinates",
            expected=f"{task.outcome_dim} and {task.designs.dim}, as the task has",
            fix="make it with standardiser(task, sampler, key=…).",
        )


def with_parameters(standardise: Standardiser, thetas: Float[Array, "pilot g"]) -> Standardiser:
    """The same for designs with these parameters appended (`tasks/conditioned.py`)."""
    spread = jnp.maximum(thetas.std(0), jnp.finfo(thetas.dtype).tiny)
    return Standardiser(
        standardise.mean_y,
        standardise.scale_y,
        standardise.scale_step,
        jnp.concatenate([standardise.mean_xi, thetas.mean(0)]),
        jnp.concatenate([standardise.scale_xi, spread]),
    )


def standardiser(task: Task, sampler: DesignSampler, *, key: PRNGKeyArray) -> Standardiser:
    """Statistics of a pilot of 1,024 experiments. Simulations only: no likelihood is evaluated."""
    runs = pilot_runs(task, sampler, key=named(key, "pilot"))
    flat_y, flat_xi = runs.ys.reshape(-1, task.outcome_dim), runs.xis.reshape(-1, task.designs.dim)
    steps = (runs.ys[:, 1:] - runs.ys[:, :-1]).reshape(-1, task.outcome_dim)
    tiny = jnp.finfo(flat_y.dtype).tiny
    return Standardiser(
        flat_y.mean(0),
        jnp.maximum(flat_y.std(0), tiny),
        jnp.maximum(steps.std(0), tiny) if steps.size else jnp.maximum(flat_y.std(0), tiny),
        flat_xi.mean(0),
        jnp.maximum(flat_xi.std(0), tiny),
    )
