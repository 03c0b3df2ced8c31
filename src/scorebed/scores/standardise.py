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

# Of the paper's network: as many draws of the sampler as the authors' program takes.
DRAWS = 10_000
# A step whose coordinate hardly varies, such as a design that is always the same, has the spread of
# all steps: divided by next to nothing, any other value would be enormous.
LEAST_SHARE = 1e-3


class Standardiser(eqx.Module):
    """Fixed statistics, one per coordinate and shared by all steps, or one per step and coordinate;
    never trained.
    """

    mean_y: Float[Array, "*T dy"]
    scale_y: Float[Array, "*T dy"]
    scale_step: Float[Array, " dy"]
    mean_xi: Float[Array, "*T dx"]
    scale_xi: Float[Array, "*T dx"]

    def y(self, ys: Float[Array, "*b dy"]) -> Float[Array, "*b dy"]:
        """Outcomes of order one."""
        return (ys - jax.lax.stop_gradient(self.mean_y)) / jax.lax.stop_gradient(self.scale_y)

    def step(self, steps: Float[Array, "*b dy"]) -> Float[Array, "*b dy"]:
        """Differences y_t − y_{t−1} of order one."""
        return steps / jax.lax.stop_gradient(self.scale_step)

    def xi(self, xis: Float[Array, "*b dx"]) -> Float[Array, "*b dx"]:
        """Designs of order one."""
        return (xis - jax.lax.stop_gradient(self.mean_xi)) / jax.lax.stop_gradient(self.scale_xi)

    @property
    def sizes(self) -> tuple[int, int]:
        """Numbers of outcome and design coordinates."""
        return self.scale_y.shape[-1], self.scale_xi.shape[-1]

    def require_for(self, task: Task, owner: str) -> None:
        """Refuse one that was made for another task, by its sizes."""
        require(
            self.sizes == (task.outcome_dim, task.designs.dim),
            f"the standardiser of {owner}",
            got=f"{self.sizes[0]} outcome and {self.sizes[1]} design coordinates",
            expected=f"{task.outcome_dim} and {task.designs.dim}, as the task has",
            fix="make it with standardiser(task, sampler, key=…).",
        )


def with_parameters(standardise: Standardiser, thetas: Float[Array, "pilot g"]) -> Standardiser:
    """The same for designs with these parameters appended (`tasks/conditioned.py`)."""
    spread = jnp.maximum(thetas.std(0), jnp.finfo(thetas.dtype).tiny)

    def appended(xi: Float[Array, "*T dx"], theta: Float[Array, " g"]) -> Float[Array, "*T dx_g"]:
        return jnp.concatenate([xi, jnp.broadcast_to(theta, (*xi.shape[:-1], theta.size))], axis=-1)

    return Standardiser(
        standardise.mean_y,
        standardise.scale_y,
        standardise.scale_step,
        appended(standardise.mean_xi, thetas.mean(0)),
        appended(standardise.scale_xi, spread),
    )


def standardiser(task: Task, sampler: DesignSampler, *, key: PRNGKeyArray) -> Standardiser:
    """Statistics of a pilot of 1,024 experiments. Simulations only: no likelihood is evaluated."""
    runs = pilot_runs(task, sampler, key=named(key, "pilot"))
    return _shared(task, runs.ys, runs.xis)


def stepwise_standardiser(task: Task, sampler: DesignSampler, *, key: PRNGKeyArray) -> Standardiser:
    """Statistics of 10⁴ experiments for every step and coordinate. Simulations only.

    Steps that can be exchanged share theirs: statistics by step would be the one thing in a network
    without positions that tells steps apart (docs/decisions/026)."""
    runs = pilot_runs(task, sampler, count=DRAWS, key=named(key, "pilot"))
    shared = _shared(task, runs.ys, runs.xis)
    if task.exchangeable_steps:
        return shared

    def spread(draws: Float[Array, "n T d"], least: Float[Array, " d"]) -> Float[Array, "T d"]:
        found = draws.std(0)
        return jnp.where(found > LEAST_SHARE * least, found, least)

    return Standardiser(
        runs.ys.mean(0),
        spread(runs.ys, shared.scale_y),
        shared.scale_step,
        runs.xis.mean(0),
        spread(runs.xis, shared.scale_xi),
    )


def _shared(task: Task, ys: Float[Array, "n T dy"], xis: Float[Array, "n T dx"]) -> Standardiser:
    """Statistics of all steps together."""
    flat_y, flat_xi = ys.reshape(-1, task.outcome_dim), xis.reshape(-1, task.designs.dim)
    steps = (ys[:, 1:] - ys[:, :-1]).reshape(-1, task.outcome_dim)
    tiny = jnp.finfo(flat_y.dtype).tiny
    return Standardiser(
        flat_y.mean(0),
        jnp.maximum(flat_y.std(0), tiny),
        jnp.maximum(steps.std(0), tiny) if steps.size else jnp.maximum(flat_y.std(0), tiny),
        flat_xi.mean(0),
        jnp.maximum(flat_xi.std(0), tiny),
    )
