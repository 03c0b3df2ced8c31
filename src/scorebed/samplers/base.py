"""What a design sampler is: the distribution q(ξ_{1:T}) of the designs on which the score is trained."""

import abc

import equinox as eqx
from jaxtyping import Array, Float, PRNGKeyArray, Scalar

from scorebed.tasks.spaces import Space


class DesignSampler(eqx.Module):
    """q(ξ_{1:T}) on a design space, drawn before any data."""

    horizon: eqx.AbstractVar[int]
    space: eqx.AbstractVar[Space]

    @abc.abstractmethod
    def sample(self, *, key: PRNGKeyArray) -> Float[Array, "T dx"]:
        """One sequence of designs."""

    @abc.abstractmethod
    def log_prob(self, xis: Float[Array, "T dx"]) -> Scalar:
        """log q(ξ_{1:T}); raises `NoDensityError` where there is none."""


class Unconstrained(DesignSampler):
    """Samplers defined on unconstrained u, with ξ = constrain(u)."""

    @abc.abstractmethod
    def sample_unconstrained(self, *, key: PRNGKeyArray) -> Float[Array, "T dx"]:
        """u_{1:T}."""

    @abc.abstractmethod
    def log_prob_unconstrained(self, us: Float[Array, "T dx"]) -> Scalar:
        """log density of u_{1:T}."""

    def sample(self, *, key: PRNGKeyArray) -> Float[Array, "T dx"]:
        return self.space.constrain(self.sample_unconstrained(key=key))

    def log_prob(self, xis: Float[Array, "T dx"]) -> Scalar:
        us = self.space.unconstrain(xis)
        return self.log_prob_unconstrained(us) - self.space.log_jacobian(us).sum()
