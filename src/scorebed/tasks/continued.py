"""A task some of whose steps are over: the same model, with what they taught as its prior, and only the other steps to come.

What follows from the past besides the prior: a Markov task starts from its last outcome, a task with a state of its own from the
state that its past led to (for every θ by itself), and a constraint from the last design.
"""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Scalar

from scorebed.errors import require
from scorebed.tasks.base import IID, History, Markov, State, Task
from scorebed.tasks.constraints import Constraint, Limit
from scorebed.tasks.cost import Cost
from scorebed.tasks.priors import Prior
from scorebed.tasks.spaces import Quantity, Space

Rows = tuple[tuple[float, ...], ...]


class _Continued(Task):
    """What all three structures share: the model of `base`."""

    base: eqx.AbstractVar[Task]
    past_xis: eqx.AbstractVar[Rows]
    past_ys: eqx.AbstractVar[Rows]

    @property
    def cost(self) -> Cost | None:  # type: ignore[override]
        return self.base.cost

    @property
    def interest(self) -> tuple[str, ...]:  # type: ignore[override]
        return self.base.interest

    @property
    def extra_noise(self) -> int:  # type: ignore[override]
        return self.base.extra_noise

    @property
    def constraint(self) -> Constraint | None:  # type: ignore[override]
        reach = self.base.reach
        if reach is None or self.base.constraint is None:
            return None
        tied = zip(reach.limits, self.base.designs.quantities, self.past_xis[-1], strict=True)
        return self.base.constraint & Constraint(
            tuple((q.name, Limit(start=last)) for limit, q, last in tied if limit != Limit())
        )

    def outcome(
        self, theta: Float[Array, " k"], state: State, xi: Float[Array, " dx"], noise: Float[Array, " dn"]
    ) -> Float[Array, " dy"]:
        return self.base.outcome(theta, state, xi, noise)

    def log_prob(
        self, y: Float[Array, " dy"], theta: Float[Array, " k"], state: State, xi: Float[Array, " dx"]
    ) -> Scalar:
        return self.base.log_prob(y, theta, state, xi)


class ContinuedIID(_Continued, IID):
    """Independent steps: the past is in the prior alone."""

    base: Task
    prior: Prior
    horizon: int = eqx.field(static=True)
    designs: Space = eqx.field(static=True)
    outcomes: tuple[Quantity, ...] = eqx.field(static=True)
    additive_noise: bool = eqx.field(static=True)
    past_xis: Rows = eqx.field(static=True)
    past_ys: Rows = eqx.field(static=True)


class ContinuedMarkov(_Continued, Markov):
    """The state before the next step is the last outcome."""

    base: Task
    prior: Prior
    horizon: int = eqx.field(static=True)
    designs: Space = eqx.field(static=True)
    outcomes: tuple[Quantity, ...] = eqx.field(static=True)
    additive_noise: bool = eqx.field(static=True)
    past_xis: Rows = eqx.field(static=True)
    past_ys: Rows = eqx.field(static=True)

    def start(self) -> Float[Array, " dy"]:
        return jnp.asarray(self.past_ys[-1])


class ContinuedHistory(_Continued, History):
    """The state before the next step is the one that the past led to, replayed for every θ."""

    base: Task
    prior: Prior
    horizon: int = eqx.field(static=True)
    designs: Space = eqx.field(static=True)
    outcomes: tuple[Quantity, ...] = eqx.field(static=True)
    additive_noise: bool = eqx.field(static=True)
    past_xis: Rows = eqx.field(static=True)
    past_ys: Rows = eqx.field(static=True)

    def initial(self, theta: Float[Array, " k"]) -> State:
        def step(state: State, data: tuple[Array, Array]) -> tuple[State, None]:
            return self.base.advance(theta, state, *data), None

        past = (jnp.asarray(self.past_xis, theta.dtype), jnp.asarray(self.past_ys, theta.dtype))
        return jax.lax.scan(step, self.base.initial(theta), past)[0]

    def advance(
        self, theta: Float[Array, " k"], state: State, xi: Float[Array, " dx"], y: Float[Array, " dy"]
    ) -> State:
        return self.base.advance(theta, state, xi, y)


def continued(task: Task, prior: Prior, xis: Sequence[Sequence[float]], ys: Sequence[Sequence[float]]) -> Task:
    """What is left of `task` after the designs and outcomes of its first steps, with `prior` as what is known by now."""
    dims = (task.designs.dim, task.outcome_dim)
    fits = len(xis) == len(ys) and all(len(x) == dims[0] and len(y) == dims[1] for x, y in zip(xis, ys, strict=True))
    require(fits and 0 < len(xis) < task.horizon, "the history of a task",
            got=f"{len(xis)} designs and {len(ys)} outcomes",
            expected=f"1 to {task.horizon - 1} steps of {dims[0]} designs and {dims[1]} outcomes",
            fix="leave at least one step to be designed, or raise the horizon.")  # fmt: skip
    past_xis, past_ys = (tuple(tuple(float(v) for v in row) for row in rows) for rows in (xis, ys))
    made: dict[str, Any] = {
        "base": task, "prior": prior, "horizon": task.horizon - len(xis), "designs": task.designs, "outcomes": task.outcomes,
        "additive_noise": task.additive_noise, "past_xis": past_xis, "past_ys": past_ys,
    }  # fmt: skip
    if isinstance(task, IID):
        return ContinuedIID(**made)
    return ContinuedMarkov(**made) if isinstance(task, Markov) else ContinuedHistory(**made)
