"""Random designs that obey the task's constraint: those of any sampler, each placed in the range
that the previous design leaves.

Uniform designs in a box become sorted uniform designs, with the density T!/volume; see
`tasks/constraints.py`."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, Scalar

from scorebed.samplers.base import DesignSampler
from scorebed.tasks.base import Task
from scorebed.tasks.constraints import FeasibleRange
from scorebed.tasks.spaces import Space


class ConstrainedDesigns(DesignSampler):
    """ξ_{1:T} = obey(v_{1:T}), v ~ base. The Jacobian of that map is triangular, so the density is
    that of v divided by the slopes of the single steps.
    """

    base: DesignSampler
    feasible: FeasibleRange = eqx.field(static=True)
    horizon: int = eqx.field(static=True)
    space: Space = eqx.field(static=True)

    def __init__(self, base: DesignSampler, feasible: FeasibleRange):
        self.base, self.feasible, self.horizon, self.space = (
            base,
            feasible,
            base.horizon,
            base.space,
        )

    def sample(self, *, key: PRNGKeyArray) -> Float[Array, "T dx"]:
        return self.feasible.obey(self.base.sample(key=key))

    def log_prob(self, xis: Float[Array, "T dx"]) -> Scalar:
        frees, log_slopes = jax.vmap(self.feasible.lift)(
            xis, self.feasible.before(xis), jnp.arange(len(xis))
        )
        return jnp.where(
            self.feasible.holds(xis), self.base.log_prob(frees) - log_slopes.sum(), -jnp.inf
        )

    def log_prob_unconstrained(self, us: Float[Array, "T dx"]) -> Scalar:
        return self.log_prob(self.space.constrain(us)) + self.space.log_jacobian(us).sum()


def constrained_designs(task: Task, sampler: DesignSampler) -> DesignSampler:
    """`sampler` under the task's constraint; itself if there is none, or if it obeys already."""
    if task.feasible is None or isinstance(sampler, ConstrainedDesigns):
        return sampler
    return ConstrainedDesigns(sampler, task.feasible)
