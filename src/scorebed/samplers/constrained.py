"""Random designs that obey a constraint of the task: those of any sampler, placed in the range that
is left to each.

Uniform designs in a box become uniform designs in order, with the density T!/volume; see
`tasks/constraints.py`."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, Scalar

from scorebed.samplers.base import DesignSampler
from scorebed.tasks.constraints import Reach
from scorebed.tasks.spaces import Space


class ConstrainedDesigns(DesignSampler):
    """ξ_{1:T} = obey(v_{1:T}), v ~ base. The density is that of v over the slopes of their places,
    whose matrix is a triangle.
    """

    base: DesignSampler
    reach: Reach = eqx.field(static=True)
    horizon: int = eqx.field(static=True)
    space: Space = eqx.field(static=True)

    def __init__(self, base: DesignSampler, reach: Reach):
        self.base, self.reach, self.horizon, self.space = base, reach, base.horizon, base.space

    def sample(self, *, key: PRNGKeyArray) -> Float[Array, "T dx"]:
        return self.reach.obey(self.base.sample(key=key))

    def log_prob(self, xis: Float[Array, "T dx"]) -> Scalar:
        frees, log_slopes = jax.vmap(self.reach.lift)(
            xis, self.reach.before(xis), jnp.arange(len(xis))
        )
        return jnp.where(
            self.reach.holds(xis), self.base.log_prob(frees) - log_slopes.sum(), -jnp.inf
        )

    def log_prob_unconstrained(self, us: Float[Array, "T dx"]) -> Scalar:
        return self.log_prob(self.space.constrain(us)) + self.space.log_jacobian(us).sum()
