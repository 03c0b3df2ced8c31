"""A policy whose designs obey a constraint of the task: what it chooses freely is placed in the
range that is left to it.

    ξ_t = place(v_t; ξ_{t−1}, t),   v_t ~ π(· | h_{t−1})

The policy inside sees the designs as they were carried out, and any policy will do: networks,
static designs, a user's own."""

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, Scalar

from scorebed.errors import InvalidValueError
from scorebed.policies.base import Memory, Policy, StochasticPolicy
from scorebed.policies.random import Predetermined
from scorebed.policies.static import Static
from scorebed.tasks.base import Task
from scorebed.tasks.constraints import FeasibleRange


class Since(NamedTuple):
    """The memory of the policy inside, the last design, and the number of steps taken."""

    inside: Memory
    previous: Float[Array, " dx"]
    step: Int[Array, ""]


class _Placed(Policy):
    """What both kinds share."""

    inside: eqx.AbstractVar[Policy]
    reach: eqx.AbstractVar[FeasibleRange]

    @property
    def design_nle(self) -> int:
        return self.inside.design_nle

    def sample_noise(self, horizon: int, *, key: PRNGKeyArray) -> Float[Array, "T n"]:
        return self.inside.sample_noise(horizon, key=key)

    def init(self) -> Since:
        return Since(self.inside.init(), self.reach.start(), jnp.zeros((), jnp.int32))

    def design(self, memory: Since, noise: Float[Array, " n"]) -> Float[Array, " dx"]:
        return self.reach.place(
            self.inside.design(memory.inside, noise), memory.previous, memory.step
        )

    def update(self, memory: Since, xi: Float[Array, " dx"], y: Float[Array, " dy"]) -> Since:
        return Since(self.inside.update(memory.inside, xi, y), xi, memory.step + 1)


class Constrained(_Placed):
    """A policy that obeys; made by `obedient`."""

    inside: Policy
    reach: FeasibleRange = eqx.field(static=True)


class ConstrainedStochastic(_Placed, StochasticPolicy):
    """A policy that obeys and whose designs have a density: that of the free choice over the slope
    of its place.
    """

    inside: StochasticPolicy
    reach: FeasibleRange = eqx.field(static=True)

    def log_prob(self, xi: Float[Array, " dx"], memory: Since) -> Scalar:
        free, log_slope = self.reach.lift(xi, memory.previous, memory.step)
        return self.inside.log_prob(free, memory.inside) - log_slope.sum()


def obedient(task: Task, policy: Policy) -> Policy:
    """The same policy under the constraint of a task; itself if there is none, or if it obeys
    already.
    """
    reach = task.feasible
    if reach is None or isinstance(policy, _Placed | Predetermined):
        return policy
    if isinstance(policy, StochasticPolicy):
        return ConstrainedStochastic(policy, reach)
    if not isinstance(policy, Policy):
        raise InvalidValueError(
            "a policy",
            got=f"a {type(policy).__name__}",
            expected="a scorebed policy",
            fix="inherit from Policy of scorebed.policies.base.",
        )
    return Constrained(policy, reach)


def is_static(policy: Policy) -> bool:
    """Whether trained designs are blind to the outcomes, under a constraint or without one."""
    return isinstance(policy.inside if isinstance(policy, Constrained) else policy, Static)
