"""Two scores: where log p(y | ψ, ξ), the first term of the EIG, is as intractable as the second, it
too is learned by its score.

    ∇_φ I = E { s_c(y, ξ, ψ) d(y, ξ)/dφ − s_m(y, ξ) d(y, ξ)/dφ },
    s_c = ∇ log p(y | ξ, ψ),   s_m = ∇ log p(y | ξ)

s_c is the marginal score of a task in which ψ is part of the design (`tasks/conditioned.py`), so
any network will do. Both are regressed on the same target ∇ log p(y | ξ, ψ, η): its mean given
(y, ξ, ψ) is s_c, given (y, ξ) alone it is s_m."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from scorebed.scores.base import Score, ScoreValue
from scorebed.tasks.conditioned import append_parameters


class ScorePair(Score):
    """The marginal score, which is its value, and a conditional one; ψ is θ at the coordinates
    `known`.
    """

    marginal: Score
    conditional: Score
    known: tuple[int, ...] = eqx.field(static=True)

    def __call__(self, ys: Float[Array, "T dy"], xis: Float[Array, "T dx"]) -> ScoreValue:
        return self.marginal(ys, xis)

    def conditional_at(self, theta: Float[Array, " k"]) -> "ConditionalAt":
        """The score of p(y | ξ, ψ) at the ψ of one θ."""
        return ConditionalAt(self.conditional, theta[jnp.asarray(self.known)])

    @property
    def nle(self) -> int:
        return self.marginal.nle + self.conditional.nle


class ConditionalAt(Score):
    """s_c( · , ψ) at one ψ."""

    score: Score
    psi: Float[Array, " g"]

    def __call__(self, ys: Float[Array, "T dy"], xis: Float[Array, "T dx"]) -> ScoreValue:
        s = self.score(ys, append_parameters(xis, jax.lax.stop_gradient(self.psi)))
        return ScoreValue(s.y, s.xi[:, : xis.shape[1]])

    @property
    def nle(self) -> int:
        return self.score.nle
