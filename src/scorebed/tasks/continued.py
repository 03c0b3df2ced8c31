"""The rest of a task, after its first steps: the same model, with what those steps taught as its
prior, and the remaining steps as its horizon.

The past matters in three other ways: a Markov task starts from its last outcome, a `History` task
from the state that its past led to (for each θ separately), and a constraint continues from the
last design.

The past is stored in arrays, so that one compiled program serves every history of the same length
(under a constraint, with the same last design). They are not trained."""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Scalar

from scorebed.errors import require
from scorebed.tasks.base import IID, History, Markov, State, Task
from scorebed.tasks.constraints import Constraint, Limit
from scorebed.tasks.cost import DesignCost
from scorebed.tasks.priors import Prior
from scorebed.tasks.sketch import Sketch
from scorebed.tasks.spaces import Quantity, Space


class Continued(Task):
    """What the three structures share: the model of `base`. Made by `continued`."""

    base: eqx.AbstractVar[Task]

    @property
    def designs(self) -> Space:  # type: ignore[override]
        return self.base.designs

    @property
    def outcomes(self) -> tuple[Quantity, ...]:  # type: ignore[override]
        return self.base.outcomes

    @property
    def additive_noise(self) -> bool:  # type: ignore[override]
        return self.base.additive_noise

    @property
    def has_density(self) -> bool:
        return self.base.has_density

    @property
    def cost(self) -> DesignCost | None:  # type: ignore[override]
        return self.base.cost

    @property
    def interest(self) -> tuple[str, ...]:  # type: ignore[override]
        return self.base.interest

    @property
    def extra_noise(self) -> int:  # type: ignore[override]
        return self.base.extra_noise

    def sketch(self) -> Sketch:
        return self.base.sketch()

    def typical_noise(self) -> Float[Array, " dy"]:
        return self.base.typical_noise()

    def outcome(
        self,
        theta: Float[Array, " k"],
        state: State,
        xi: Float[Array, " dx"],
        noise: Float[Array, " dn"],
    ) -> Float[Array, " dy"]:
        return self.base.outcome(theta, state, xi, noise)

    def log_prob(
        self,
        y: Float[Array, " dy"],
        theta: Float[Array, " k"],
        state: State,
        xi: Float[Array, " dx"],
    ) -> Scalar:
        return self.base.log_prob(y, theta, state, xi)

    def log_probs(
        self, theta: Float[Array, " k"], state: State, xi: Float[Array, " dx"]
    ) -> Float[Array, " Y"]:
        return self.base.log_probs(theta, state, xi)


class ContinuedIID(Continued, IID):
    """Independent steps: the past is in the prior only."""

    base: Task
    prior: Prior
    horizon: int = eqx.field(static=True)
    constraint: Constraint | None = eqx.field(static=True)  # type: ignore[misc]


class ContinuedMarkov(Continued, Markov):
    """The state before the next step is the last outcome."""

    base: Task
    prior: Prior
    horizon: int = eqx.field(static=True)
    constraint: Constraint | None = eqx.field(static=True)  # type: ignore[misc]
    last: Float[Array, " dy"]

    def start(self) -> Float[Array, " dy"]:
        return jax.lax.stop_gradient(self.last)


class ContinuedHistory(Continued, History):
    """The state before the next step is where the past led to, replayed for each θ."""

    base: Task
    prior: Prior
    horizon: int = eqx.field(static=True)
    constraint: Constraint | None = eqx.field(static=True)  # type: ignore[misc]
    past_ys: Float[Array, "t dy"]
    past_xis: Float[Array, "t dx"]

    def initial(self, theta: Float[Array, " k"]) -> State:
        past = jax.lax.stop_gradient((self.past_ys, self.past_xis))
        return state_after(self.base, theta, *(rows.astype(theta.dtype) for rows in past))

    def advance(
        self,
        theta: Float[Array, " k"],
        state: State,
        xi: Float[Array, " dx"],
        y: Float[Array, " dy"],
    ) -> State:
        return self.base.advance(theta, state, xi, y)


def continued(
    task: Task,
    prior: Prior,
    xis: Sequence[Sequence[float]],
    ys: Sequence[Sequence[float]],
    *,
    steps: int | None = None,
) -> Continued:
    """The rest of `task` after the designs and outcomes of its first steps; `prior` is what they
    taught.

    `steps` is the number of steps to come: by default the rest of the task's horizon, after at
    least one step. If it is given, it may be smaller or larger than that, and the past may be
    empty."""
    dims = (task.designs.dim, task.outcome_dim)
    left = task.horizon - len(xis) if steps is None else steps
    fits = len(xis) == len(ys) and all(
        len(x) == dims[0] and len(y) == dims[1] for x, y in zip(xis, ys, strict=True)
    )
    require(
        fits and left >= 1 and (len(xis) > 0 or steps is not None),
        "the history of a task",
        got=f"{len(xis)} designs and {len(ys)} outcomes"
        + ("" if steps is None else f" before {steps} steps"),
        expected=f"{f'1 to {task.horizon - 1}' if steps is None else 'any number of'} steps of "
        f"{dims[0]} designs and {dims[1]} outcomes",
        fix="leave at least one step to be designed, or raise the horizon.",
    )
    made: dict[str, Any] = {
        "base": task,
        "prior": prior,
        "horizon": left,
        "constraint": _constraint(task, xis),
    }
    if isinstance(task, IID):
        return ContinuedIID(**made)
    past_ys, past_xis = _rows(ys, dims[1]), _rows(xis, dims[0])
    if isinstance(task, Markov):
        return ContinuedMarkov(
            **made, last=past_ys[-1] if len(ys) else task.start().astype(past_ys.dtype)
        )
    return ContinuedHistory(**made, past_ys=past_ys, past_xis=past_xis)


def state_after(
    task: Task, theta: Float[Array, " k"], ys: Float[Array, "t dy"], xis: Float[Array, "t dx"]
) -> State:
    """The state of a task after a history."""

    def step(state: State, data: tuple[Array, Array]) -> tuple[State, None]:
        return task.advance(theta, state, *data), None

    return jax.lax.scan(step, task.initial(theta), (xis, ys))[0]


def _constraint(task: Task, xis: Sequence[Sequence[float]]) -> Constraint | None:
    """That of the task, continued from the last design. The numbers are Python's, because ranges
    are checked at construction.
    """
    feasible = task.feasible
    if feasible is None or task.constraint is None or not len(xis):
        return task.constraint
    coordinates = zip(feasible.limits, task.designs.quantities, xis[-1], strict=True)
    return task.constraint & Constraint(
        tuple(
            (q.name, Limit(start=float(last))) for limit, q, last in coordinates if limit != Limit()
        )
    )


def _rows(values: Sequence[Sequence[float]], dim: int) -> Float[Array, "t dim"]:
    """As arrays of the default precision, which is less than that of Python's floats."""
    return jnp.asarray(
        np.asarray(values, np.float64).reshape(len(values), dim), jnp.result_type(float)
    )
