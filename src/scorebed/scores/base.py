"""What a score is: (y_{1:T}, ξ_{1:T}) ↦ ∇_{y, ξ} log p(y_{1:T} | ξ_{1:T}), the one intractable part
of the EIG gradient.

It belongs to one task, prior and horizon, and to no policy.
"""

import abc
from typing import NamedTuple

import equinox as eqx
from jaxtyping import Array, Float


class ScoreValue(NamedTuple):
    """Stein and Fisher part of a score."""

    y: Float[Array, "T dy"]
    xi: Float[Array, "T dx"]


class Score(eqx.Module):
    """An approximation of the marginal score."""

    @abc.abstractmethod
    def __call__(self, ys: Float[Array, "T dy"], xis: Float[Array, "T dx"]) -> ScoreValue:
        """s(y, ξ) for one experiment."""

    @property
    @abc.abstractmethod
    def nle(self) -> int:
        """Likelihood evaluations of one call, the T steps included; 0 for a network."""
