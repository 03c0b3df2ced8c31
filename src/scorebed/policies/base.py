"""What a policy is: memory of the history, and the next design from it. The same three methods
train, evaluate and deploy.
"""

import abc
from typing import Any, TypeAlias

import equinox as eqx
from jaxtyping import Array, Float, PRNGKeyArray, Scalar

Memory: TypeAlias = Any  # a PyTree of arrays; None where there is nothing to remember


class Policy(eqx.Module):
    """π(ξ_t | h_{t−1}) in the form `init` → `design` → `update` → `design` → …"""

    @abc.abstractmethod
    def sample_noise(self, horizon: int, *, key: PRNGKeyArray) -> Float[Array, "T n"]:
        """Everything random about the policy, drawn before the experiment; one row per step, n = 0
        if deterministic.
        """

    @abc.abstractmethod
    def init(self) -> Memory:
        """Memory of the empty history."""

    @abc.abstractmethod
    def design(self, memory: Memory, noise: Float[Array, " n"]) -> Float[Array, " dx"]:
        """The next design ξ_t."""

    @abc.abstractmethod
    def update(self, memory: Memory, xi: Float[Array, " dx"], y: Float[Array, " dy"]) -> Memory:
        """Memory after (ξ_t, y_t)."""

    @property
    def design_nle(self) -> int:
        """Likelihood evaluations of the designs of one experiment; 0 for a network."""
        return 0


class StochasticPolicy(Policy):
    """A policy whose next design has a density."""

    @abc.abstractmethod
    def log_prob(self, xi: Float[Array, " dx"], memory: Memory) -> Scalar:
        """log π(ξ | h_{t−1})."""
