"""A policy whose designs obey a constraint of the task: its free choice is placed in the range that
the constraint leaves.

    ξ_t = place(v_t; ξ_{t−1}, t),   v_t ~ π(· | h_{t−1})

The policy inside sees the designs as they were carried out. It can be any policy."""

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, Scalar

from scorebed.errors import InvalidValueError, require
from scorebed.policies.base import Memory, Policy, StochasticPolicy
from scorebed.tasks.base import Task
from scorebed.tasks.constraints import FeasibleRange


class ConstrainedMemory(NamedTuple):
    """The memory of the policy inside, the last design, and the number of steps taken."""

    inside: Memory
    previous: Float[Array, " dx"]
    step: Int[Array, ""]


class _Placed(Policy):
    """What both kinds share. Traits are those of the policy inside, up to the horizon of the
    constraint.
    """

    inside: eqx.AbstractVar[Policy]
    range: eqx.AbstractVar[FeasibleRange]

    @property
    def unwrapped(self) -> Policy:
        return self.inside

    @property
    def obeys_constraint(self) -> bool:
        return True

    @property
    def adaptive(self) -> bool:
        return self.inside.adaptive

    @property
    def trainable(self) -> bool:
        return self.inside.trainable

    @property
    def design_nle(self) -> int:
        return self.inside.design_nle

    @property
    def search_nle(self) -> int:
        return self.inside.search_nle

    @property
    def without_feedback(self) -> Float[Array, "T dx"] | None:
        return self.inside.without_feedback

    @property
    def noise_leaves(self) -> tuple[str, ...]:
        return self.inside.noise_leaves

    @property
    def max_steps(self) -> int:
        most = self.inside.max_steps
        return self.range.horizon if most is None else min(most, self.range.horizon)

    def extended(self, horizon: int, *, key: PRNGKeyArray) -> Policy:
        longest = self.range.horizon
        require(
            horizon <= longest,
            "the number of steps",
            got=horizon,
            expected=f"at most {longest}: the task ties the designs of so many steps together",
            fix="use a task with a longer horizon.",
        )
        inside = self.inside.extended(horizon, key=key)
        longer: Policy = eqx.tree_at(lambda policy: policy.inside, self, inside)
        return longer

    @property
    def beyond_training(self) -> str:
        return self.inside.beyond_training

    @property
    def short_of_training(self) -> str:
        return self.inside.short_of_training

    def sample_noise(self, horizon: int, *, key: PRNGKeyArray) -> Float[Array, "T n"]:
        return self.inside.sample_noise(horizon, key=key)

    def init(self) -> ConstrainedMemory:
        return ConstrainedMemory(self.inside.init(), self.range.start(), jnp.zeros((), jnp.int32))

    def design(self, memory: ConstrainedMemory, noise: Float[Array, " n"]) -> Float[Array, " dx"]:
        return self.range.place(
            self.inside.design(memory.inside, noise), memory.previous, memory.step
        )

    def update(
        self, memory: ConstrainedMemory, xi: Float[Array, " dx"], y: Float[Array, " dy"]
    ) -> ConstrainedMemory:
        return ConstrainedMemory(self.inside.update(memory.inside, xi, y), xi, memory.step + 1)


class Constrained(_Placed):
    """A policy that obeys; made by `obedient`."""

    inside: Policy
    range: FeasibleRange = eqx.field(static=True)


class ConstrainedStochastic(_Placed, StochasticPolicy):
    """A policy that obeys and whose designs have a density: that of the free choice, divided by the
    slope of `place`.
    """

    inside: StochasticPolicy
    range: FeasibleRange = eqx.field(static=True)

    def log_prob(self, xi: Float[Array, " dx"], memory: ConstrainedMemory) -> Scalar:
        free, log_slope = self.range.lift(xi, memory.previous, memory.step)
        return self.inside.log_prob(free, memory.inside) - log_slope.sum()


def obedient(task: Task, policy: Policy) -> Policy:
    """The same policy under the constraint of a task; itself if the task has none, or if it obeys
    already.
    """
    feasible = task.feasible
    if feasible is None:
        return policy
    if not isinstance(policy, Policy):
        raise InvalidValueError(
            "a policy",
            got=f"a {type(policy).__name__}",
            expected="a scorebed policy",
            fix="inherit from Policy of scorebed.policies.base.",
        )
    if policy.obeys_constraint:
        return policy
    if isinstance(policy, StochasticPolicy):
        return ConstrainedStochastic(policy, feasible)
    return Constrained(policy, feasible)
