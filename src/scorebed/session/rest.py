"""The remaining steps of an experiment, as an experiment of its own: what can be asked of a task and a policy can be asked of it.

After h_t the prior is p(θ | h_t), by particles; the state is that after h_t; the policy begins with the memory of h_t; and the
gradient of what is still to be learned needs the score of the whole history, restricted to the steps to come,

    ∇_{future} log p(y_{t+1:T} | ξ_{t+1:T}, h_t) = ∇_{future} log p(y_{1:T} | ξ_{1:T}),

so a score that was trained for T steps serves as long as there will be T measurements.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.special import ndtr
from jaxtyping import Array, Float, PRNGKeyArray, Scalar

from scorebed.errors import NoDensityError
from scorebed.policies.base import Memory, Policy
from scorebed.scores.base import Score, ScoreValue
from scorebed.session.data import state_after
from scorebed.session.state import Limits
from scorebed.tasks.base import IID, History, Markov, State, Task
from scorebed.tasks.cost import Cost
from scorebed.tasks.priors import Prior
from scorebed.tasks.spaces import Quantity, Space


class Particles(Prior):
    """Equally weighted draws in the place of a distribution. It tells apart at most N values, so no EIG exceeds log N."""

    theta: Float[Array, "N k"]
    quantities: tuple[Quantity, ...] = eqx.field(static=True)

    def from_latent(self, z: Float[Array, " k"]) -> Float[Array, " k"]:
        """The first coordinate alone picks the particle."""
        n = len(self.theta)
        return self.theta[jnp.minimum(n * ndtr(z[0]), n - 1).astype(int)]

    def log_prob(self, theta: Float[Array, " k"]) -> Scalar:
        del theta
        raise NoDensityError("the density of a posterior, got particles, expected a density. Fix: none; draw from it.")


class Rest(Task):
    """The last `horizon` steps of `whole`."""

    whole: eqx.AbstractVar[Task]

    @property
    def designs(self) -> Space:  # type: ignore[override]
        return self.whole.designs

    @property
    def outcomes(self) -> tuple[Quantity, ...]:  # type: ignore[override]
        return self.whole.outcomes

    @property
    def additive_noise(self) -> bool:  # type: ignore[override]
        return self.whole.additive_noise

    @property
    def cost(self) -> Cost | None:  # type: ignore[override]
        return self.whole.cost

    @property
    def extra_noise(self) -> int:  # type: ignore[override]
        return self.whole.extra_noise

    def outcome(
        self, theta: Float[Array, " k"], state: State, xi: Float[Array, " dx"], noise: Float[Array, " dn"]
    ) -> Float[Array, " dy"]:
        return self.whole.outcome(theta, state, xi, noise)

    def log_prob(
        self, y: Float[Array, " dy"], theta: Float[Array, " k"], state: State, xi: Float[Array, " dx"]
    ) -> Scalar:
        return self.whole.log_prob(y, theta, state, xi)


class IndependentRest(Rest, IID):
    """Of independent steps."""

    whole: Task
    prior: Prior
    horizon: int = eqx.field(static=True)

    def __init__(self, whole: Task, prior: Prior, horizon: int):
        self.whole, self.prior, self.horizon = whole, prior, horizon


class MarkovRest(Rest, Markov):
    """Of Markov transitions: it starts from the last outcome."""

    whole: Task
    prior: Prior
    last: Float[Array, " dy"]
    horizon: int = eqx.field(static=True)

    def __init__(self, whole: Task, prior: Prior, horizon: int, last: Float[Array, " dy"]):
        self.whole, self.prior, self.horizon, self.last = whole, prior, horizon, last

    def start(self) -> Float[Array, " dy"]:
        return self.last


class HistoryRest(Rest, History):
    """Of anything else: every parameter has a state of its own after the history."""

    whole: Task
    prior: Prior
    ys: Float[Array, "t dy"]
    xis: Float[Array, "t dx"]
    horizon: int = eqx.field(static=True)

    def __init__(self, whole: Task, prior: Prior, horizon: int, ys: Float[Array, "t dy"], xis: Float[Array, "t dx"]):
        self.whole, self.prior, self.horizon, self.ys, self.xis = whole, prior, horizon, ys, xis

    def initial(self, theta: Float[Array, " k"]) -> State:
        return state_after(self.whole, theta, self.ys, self.xis)

    def advance(
        self, theta: Float[Array, " k"], state: State, xi: Float[Array, " dx"], y: Float[Array, " dy"]
    ) -> State:
        return self.whole.advance(theta, state, xi, y)


def rest_of(
    task: Task, theta: Float[Array, "N k"], ys: Float[Array, "t dy"], xis: Float[Array, "t dx"], *, steps: int
) -> Rest:
    """The `steps` that remain after a history, whose posterior particles are `theta`; the prior itself if it is empty."""
    prior = Particles(theta=theta, quantities=task.prior.quantities) if len(ys) else task.prior
    if isinstance(task, IID):
        return IndependentRest(task, prior, steps)
    if isinstance(task, Markov):
        return MarkovRest(task, prior, steps, ys[-1] if len(ys) else task.start().astype(ys.dtype))
    return HistoryRest(task, prior, steps, ys, xis)


class Range(eqx.Module):
    """Limits of the designs as arrays, infinite where there are none."""

    low: Float[Array, " dx"]
    high: Float[Array, " dx"]

    @classmethod
    def of(cls, limits: Limits | None, dim: int) -> "Range":
        none = (None,) * dim
        low, high = (none, none) if limits is None else (limits.low, limits.high)
        lowest = jnp.asarray([-jnp.inf if value is None else value for value in low])
        return cls(lowest, jnp.asarray([jnp.inf if value is None else value for value in high]))


class Continuing(Policy):
    """A policy that has seen a history already, within limits.

    What the policy asks for outside of the limits is moved to them, but its gradient is that of the design which is used: at a
    limit it still says whether the policy should ask for less.
    """

    policy: Policy
    ys: Float[Array, "t dy"]
    xis: Float[Array, "t dx"]
    bounds: Range

    def sample_noise(self, horizon: int, *, key: PRNGKeyArray) -> Float[Array, "T n"]:
        return self.policy.sample_noise(horizon, key=key)

    def init(self) -> Memory:
        def step(memory: Memory, data: tuple[Array, Array]) -> tuple[Memory, None]:
            xi, y = data
            return self.policy.update(memory, xi, y), None

        return jax.lax.scan(step, self.policy.init(), (self.xis, self.ys))[0]

    def design(self, memory: Memory, noise: Float[Array, " n"]) -> Float[Array, " dx"]:
        wanted = self.policy.design(memory, noise)
        allowed = jnp.clip(wanted, self.bounds.low, self.bounds.high)
        return wanted + jax.lax.stop_gradient(allowed - wanted)

    def update(self, memory: Memory, xi: Float[Array, " dx"], y: Float[Array, " dy"]) -> Memory:
        return self.policy.update(memory, xi, y)


class FutureScore(Score):
    """The score of a whole history, at the steps to come."""

    whole: Score
    ys: Float[Array, "t dy"]
    xis: Float[Array, "t dx"]

    def __call__(self, ys: Float[Array, "n dy"], xis: Float[Array, "n dx"]) -> ScoreValue:
        value = self.whole(jnp.concatenate([self.ys, ys]), jnp.concatenate([self.xis, xis]))
        return ScoreValue(value.y[len(self.ys) :], value.xi[len(self.xis) :])

    @property
    def nle(self) -> int:
        return self.whole.nle
