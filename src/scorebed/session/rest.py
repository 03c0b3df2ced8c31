"""What goes on in the middle of an experiment: the posterior so far as a prior, the policy with its
memory, and the score.

With the task that is left (`tasks/continued.py`) they are an experiment of its own: what can be
asked of a task and a policy can be asked of it. After h_t the prior is p(θ | h_t), by particles;
the policy begins with the memory of h_t; and the gradient of what is still to be learned needs the
score of the whole history, restricted to the steps to come,

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
from scorebed.session.state import Limits
from scorebed.tasks.priors import Prior
from scorebed.tasks.spaces import Quantity


class Particles(Prior):
    """Equally weighted draws in the place of a distribution. It tells apart at most N values, so no
    EIG exceeds log N.
    """

    theta: Float[Array, "N k"]
    quantities: tuple[Quantity, ...] = eqx.field(static=True)

    def from_latent(self, z: Float[Array, " k"]) -> Float[Array, " k"]:
        """The first coordinate alone picks the particle."""
        n = len(self.theta)
        return self.theta[jnp.minimum(n * ndtr(z[0]), n - 1).astype(int)]

    def log_prob(self, theta: Float[Array, " k"]) -> Scalar:
        del theta
        raise NoDensityError(
            "the density of a posterior, got particles, expected a density. Fix: none; draw from "
            "it."
        )


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

    What the policy asks for outside of the limits is moved to them, but its gradient is that of the
    design which is used: at a limit it still says whether the policy should ask for less."""

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
