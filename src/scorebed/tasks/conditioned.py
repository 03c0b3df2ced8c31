"""A task some of whose parameters are told: ψ becomes a design, the same in every step, and what
remains unknown is η.

    p(y | ξ′, η) = p(y | ξ, ψ, η),   ξ′ = (ξ, ψ)

The score of p(y | ξ, ψ), which the EIG on ψ needs, is the *marginal* score of this task: every
network that learns the one learns the other. θ keeps its length; its ψ are overwritten by those of
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

Begun: TypeAlias = tuple[Bool[Array, ""], State]


class _Known(Task):
    task: eqx.AbstractVar[Task]
    known: eqx.AbstractVar[tuple[int, ...]]

    @property
    def horizon(self) -> int:  # type: ignore[override]
        return self.task.horizon

    @property
    def prior(self) -> Prior:  # type: ignore[override]
        return self.task.prior

    @property
    def designs(self) -> Space:  # type: ignore[override]
        """Names for ξ′; it is put together from ξ and ψ, and never drawn or constrained."""
        return Real(
            self.task.designs.quantities + tuple(self.task.prior.quantities[i] for i in self.known)
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

    def told(
        self, theta: Float[Array, " k"], xi: Float[Array, " dx"]
    ) -> tuple[Float[Array, " k"], Float[Array, " own"]]:
        """θ with ψ from the design, and ξ. Written out in scalars, as tasks are."""
        dx = self.task.designs.dim
        place = {i: dx + n for n, i in enumerate(self.known)}
        return jnp.stack(
            [xi[place[i]] if i in place else theta[i] for i in range(self.prior.dim)]
        ), xi[:dx]

    @abc.abstractmethod
    def own_state(self, theta: Float[Array, " k"], state: State) -> State:
        """The state of the task itself, all of θ being told."""

    def outcome(
        self,
        theta: Float[Array, " k"],
        state: State,
        xi: Float[Array, " dx"],
        noise: Float[Array, " dn"],
    ) -> Float[Array, " dy"]:
        theta, xi = self.told(theta, xi)
        return self.task.outcome(theta, self.own_state(theta, state), xi, noise)

    def log_prob(
        self,
        y: Float[Array, " dy"],
        theta: Float[Array, " k"],
        state: State,
        xi: Float[Array, " dx"],
    ) -> Scalar:
        theta, xi = self.told(theta, xi)
        return self.task.log_prob(y, theta, self.own_state(theta, state), xi)


class KnownIID(_Known, IID):
    """Steps are independent given ψ and η."""

    task: IID
    known: tuple[int, ...] = eqx.field(static=True)

    def __init__(self, task: IID, known: tuple[int, ...]):
        self.task, self.known = task, known

    def own_state(self, theta: Float[Array, " k"], state: None) -> None:
        del theta, state


class KnownMarkov(_Known, Markov):
    """The state is the previous outcome."""

    task: Markov
    known: tuple[int, ...] = eqx.field(static=True)

    def __init__(self, task: Markov, known: tuple[int, ...]):
        self.task, self.known = task, known

    def start(self) -> Float[Array, " dy"]:
        return self.task.start()

    def own_state(
        self, theta: Float[Array, " k"], state: Float[Array, " dy"]
    ) -> Float[Array, " dy"]:
        del theta
        return state


class KnownHistory(_Known, History):
    """The first state may depend on ψ, which only the first design tells: until then it is
    put off.
    """

    task: Task
    known: tuple[int, ...] = eqx.field(static=True)

    def __init__(self, task: Task, known: tuple[int, ...]):
        self.task, self.known = task, known

    def initial(self, theta: Float[Array, " k"]) -> Begun:
        return jnp.asarray(False), self.task.initial(theta)

    def own_state(self, theta: Float[Array, " k"], state: Begun) -> State:
        begun, before = state
        return jax.tree.map(lambda a, b: jnp.where(begun, a, b), before, self.task.initial(theta))

    def advance(
        self,
        theta: Float[Array, " k"],
        state: Begun,
        xi: Float[Array, " dx"],
        y: Float[Array, " dy"],
    ) -> Begun:
        theta, xi = self.told(theta, xi)
        return jnp.asarray(True), self.task.advance(theta, self.own_state(theta, state), xi, y)


def with_known(task: Task, known: tuple[int, ...]) -> KnownIID | KnownMarkov | KnownHistory:
    """`task` with the parameters of these coordinates told by the design."""
    if isinstance(task, IID):
        return KnownIID(task, known)
    return KnownMarkov(task, known) if isinstance(task, Markov) else KnownHistory(task, known)


def append_parameters(
    xis: Float[Array, "T dx"], psi: Float[Array, " g"]
) -> Float[Array, "T dx_and_g"]:
    """ξ′ = (ξ, ψ) of every step."""
    return jnp.concatenate([xis, jnp.broadcast_to(psi, (len(xis), len(psi)))], axis=-1)
