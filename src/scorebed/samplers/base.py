"""The protocol of a design sampler: the distribution q(ξ_{1:T}) of the designs that scores are
trained on.
"""

import abc

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray, Scalar

from scorebed.errors import require
from scorebed.tasks.spaces import Space


class DesignSampler(eqx.Module):
    """q(ξ_{1:T}) on a design space, drawn before any data. Inherit from it for a sampler of your
    own; `make_sampler` makes the built-in ones.

    Attributes:
        horizon: number of steps, T.
        space: the design space.

    Methods:
        sample: one sequence of designs, [T, dx].
        log_prob: its log-density.
        log_prob_unconstrained: the log-density of u with ξ = constrain(u).

    Example:
        >>> task = sb.make_task("linear-gaussian")
        >>> gaussian = sb.make_sampler("gaussian", task)
        >>> isinstance(gaussian, sb.DesignSampler), gaussian.horizon
        (True, 3)
    """

    horizon: eqx.AbstractVar[int]
    space: eqx.AbstractVar[Space]

    def __check_init__(self) -> None:
        require(
            self.horizon >= 1,
            "the horizon of a design sampler",
            got=self.horizon,
            expected="a whole number from 1",
            fix="give the horizon of the task.",
        )

    @abc.abstractmethod
    def sample(self, *, key: PRNGKeyArray) -> Float[Array, "T dx"]:
        """One sequence of designs."""

    @abc.abstractmethod
    def log_prob(self, xis: Float[Array, "T dx"]) -> Scalar:
        """log q(ξ_{1:T}), −∞ outside of the space; raises `NoDensityError` where there is none."""

    @abc.abstractmethod
    def log_prob_unconstrained(self, us: Float[Array, "T dx"]) -> Scalar:
        """log density of u_{1:T}, ξ = constrain(u). Its gradient has mean zero and stays precise at
        the edge of a box; that of `log_prob` does neither.
        """


class Unconstrained(DesignSampler):
    """Samplers that are defined on unconstrained u, with ξ = constrain(u)."""

    @abc.abstractmethod
    def sample_unconstrained(self, *, key: PRNGKeyArray) -> Float[Array, "T dx"]:
        """u_{1:T}."""

    def sample(self, *, key: PRNGKeyArray) -> Float[Array, "T dx"]:
        return self.space.constrain(self.sample_unconstrained(key=key))

    def log_prob(self, xis: Float[Array, "T dx"]) -> Scalar:
        us = self.space.unconstrain(xis)
        log_q = self.log_prob_unconstrained(us) - self.space.log_jacobian(us).sum()
        return jnp.where(inside(self.space, xis), log_q, -jnp.inf)


def inside(space: Space, xis: Float[Array, "T dx"]) -> Bool[Array, ""]:
    """Whether all designs lie in the space. The limits belong to it, with a tolerance of two units
    of rounding, since a draw close to the edge may be rounded onto or past it.
    """
    if not space.bounded:
        return jnp.asarray(True)
    low, high = (jnp.asarray(end, xis.dtype) for end in space.limits)
    slack = 2 * jnp.finfo(xis.dtype).eps * jnp.maximum(jnp.abs(low), jnp.abs(high))
    return jnp.all((low - slack <= xis) & (xis <= high + slack))
