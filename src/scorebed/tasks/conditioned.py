"""A task conditioned on some of its parameters: ψ is appended to every design, and only η is
unknown.

    p(y | ξ′, η) = p(y | ξ, ψ, η),   ξ′ = (ξ, ψ)

The score of p(y | ξ, ψ), which the EIG on ψ needs, is the *marginal* score of this task, so every
network that can learn one can learn the other. θ keeps its length; its ψ is overwritten by that of
the design."""

import abc
from typing import TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Scalar

from scorebed.tasks.base import IID, History, Markov, State, Task
from scorebed.tasks.priors import Prior
from scorebed.tasks.spaces import Quantity, Real, Space

# Whether the first step is over, and the state of the task if it is.
Started: TypeAlias = tuple[Bool[Array, ""], State]


class _Conditioned(Task):
    """`given` are the coordinates of ψ in θ."""

    task: eqx.AbstractVar[Task]
    given: eqx.AbstractVar[tuple[int, ...]]

    @property
    def horizon(self) -> int:  # type: ignore[override]
        return self.task.horizon

    @property
    def prior(self) -> Prior:  # type: ignore[override]
        return self.task.prior

    @property
    def designs(self) -> Space:  # type: ignore[override]
        """Names of ξ′, which is made of ξ and ψ, and never drawn or constrained."""
        return Real(
            self.task.designs.quantities + tuple(self.task.prior.quantities[i] for i in self.given)
        )

    @property
    def outcomes(self) -> tuple[Quantity, ...]:  # type: ignore[override]
        return self.task.outcomes

    @property
    def additive_noise(self) -> bool:  # type: ignore[override]
        return self.task.additive_noise

    @property
    def has_density(self) -> bool:
        return self.task.has_density

    @property
    def extra_noise(self) -> int:  # type: ignore[override]
        return self.task.extra_noise

    def typical_noise(self) -> Float[Array, " dy"]:
        return self.task.typical_noise()

    def split(
        self, theta: Float[Array, " k"], xi: Float[Array, " dx"]
    ) -> tuple[Float[Array, " k"], Float[Array, " rest"]]:
        """θ with the ψ of ξ′, and ξ. Written out in scalars, as tasks are."""
        dx = self.task.designs.dim
        place = {i: dx + n for n, i in enumerate(self.given)}
        return jnp.stack(
            [xi[place[i]] if i in place else theta[i] for i in range(self.prior.dim)]
        ), xi[:dx]

    @abc.abstractmethod
    def task_state(self, theta: Float[Array, " k"], state: State) -> State:
        """The state of `task`, given all of θ."""

    def outcome(
        self,
        theta: Float[Array, " k"],
        state: State,
        xi: Float[Array, " dx"],
        noise: Float[Array, " dn"],
    ) -> Float[Array, " dy"]:
        theta, xi = self.split(theta, xi)
        return self.task.outcome(theta, self.task_state(theta, state), xi, noise)

    def log_prob(
        self,
        y: Float[Array, " dy"],
        theta: Float[Array, " k"],
        state: State,
        xi: Float[Array, " dx"],
    ) -> Scalar:
        theta, xi = self.split(theta, xi)
        return self.task.log_prob(y, theta, self.task_state(theta, state), xi)


class ConditionedIID(_Conditioned, IID):
    """Steps are independent given ψ and η."""

    task: IID
    given: tuple[int, ...] = eqx.field(static=True)

    def __init__(self, task: IID, given: tuple[int, ...]):
        self.task, self.given = task, given

    def task_state(self, theta: Float[Array, " k"], state: None) -> None:
        del theta, state


class ConditionedMarkov(_Conditioned, Markov):
    """The state is the previous outcome."""

    task: Markov
    given: tuple[int, ...] = eqx.field(static=True)

    def __init__(self, task: Markov, given: tuple[int, ...]):
        self.task, self.given = task, given

    def start(self) -> Float[Array, " dy"]:
        return self.task.start()

    def task_state(
        self, theta: Float[Array, " k"], state: Float[Array, " dy"]
    ) -> Float[Array, " dy"]:
        del theta
        return state


class ConditionedHistory(_Conditioned, History):
    """The first state may depend on ψ, which comes with the first design: until then the state is
    not used.
    """

    task: Task
    given: tuple[int, ...] = eqx.field(static=True)

    def __init__(self, task: Task, given: tuple[int, ...]):
        self.task, self.given = task, given

    def initial(self, theta: Float[Array, " k"]) -> Started:
        return jnp.asarray(False), self.task.initial(theta)

    def task_state(self, theta: Float[Array, " k"], state: Started) -> State:
        started, before = state
        return jax.tree.map(lambda a, b: jnp.where(started, a, b), before, self.task.initial(theta))

    def advance(
        self,
        theta: Float[Array, " k"],
        state: Started,
        xi: Float[Array, " dx"],
        y: Float[Array, " dy"],
    ) -> Started:
        theta, xi = self.split(theta, xi)
        return jnp.asarray(True), self.task.advance(theta, self.task_state(theta, state), xi, y)


def condition_on(
    task: Task, given: tuple[int, ...]
) -> ConditionedIID | ConditionedMarkov | ConditionedHistory:
    """`task` with these coordinates of θ appended to its designs."""
    if isinstance(task, IID):
        return ConditionedIID(task, given)
    if isinstance(task, Markov):
        return ConditionedMarkov(task, given)
    return ConditionedHistory(task, given)


def append_parameters(
    xis: Float[Array, "T dx"], psi: Float[Array, " g"]
) -> Float[Array, "T dx_and_g"]:
    """ξ′ = (ξ, ψ) of every step."""
    return jnp.concatenate([xis, jnp.broadcast_to(psi, (len(xis), len(psi)))], axis=-1)
