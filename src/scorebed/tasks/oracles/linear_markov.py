"""A linear system with an unknown gain.

    θ ~ N(0, τ²),   y_t = α y_{t−1} + θ ξ_t + σ ε_t,   y₀ = 0

With the innovations z_t = y_t − α y_{t−1} it is scalar linear regression. Posterior N(m, V):

    V = (1/τ² + Σ_t ξ_t²/σ²)⁻¹,   m = V Σ_t z_t ξ_t/σ²,   w_t = (z_t − ξ_t m)/σ²,   w_{T+1} = 0
    s^y_t = −w_t + α w_{t+1},   s^ξ_t = m w_t − V ξ_t/σ²
    EIG = ½ log(1 + (τ²/σ²) Σ_t ξ_t²),   ∂EIG/∂ξ_t = V ξ_t/σ²
"""

import math

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Scalar

from scorebed.errors import require
from scorebed.tasks.base import Gaussian, Markov
from scorebed.tasks.oracles.closed_form import ClosedForm, GaussianPosterior
from scorebed.tasks.priors import GaussianPrior, gaussian
from scorebed.tasks.spaces import Box, Quantity, Space


class LinearMarkov(Markov, Gaussian, ClosedForm):
    """`memory` is α; inputs are |ξ| ≤ `bound`. The information gain does not depend on the
    outcomes.
    """

    horizon: int = eqx.field(static=True)
    prior: GaussianPrior
    designs: Space = eqx.field(static=True)
    outcomes: tuple[Quantity, ...] = eqx.field(static=True)
    memory: float = eqx.field(static=True)
    prior_scale: float = eqx.field(static=True)
    noise: float = eqx.field(static=True)
    bound: float = eqx.field(static=True)
    additive_noise: bool = eqx.field(static=True)

    def __init__(
        self,
        *,
        memory: float = 0.8,
        prior_scale: float = 1.0,
        noise: float = 1.0,
        bound: float = 2.0,
        horizon: int = 3,
    ):
        require(
            horizon >= 1 and min(prior_scale, noise, bound) > 0,
            "a linear Markov task",
            got=f"horizon={horizon}, prior_scale={prior_scale}, noise={noise}, bound={bound}",
            expected="at least one step, and positive numbers",
            fix="leave them out for 3, 1, 1 and 2.",
        )
        self.horizon, self.memory, self.prior_scale, self.noise, self.bound = (
            horizon,
            memory,
            prior_scale,
            noise,
            bound,
        )
        self.prior = gaussian((Quantity("gain"),), (0.0,), ((prior_scale**2,),))
        self.designs = Box((Quantity("input"),), (-bound,), (bound,))
        self.outcomes = (Quantity("state"),)
        self.additive_noise = True

    def start(self) -> Float[Array, " 1"]:
        return jnp.zeros(1)

    def mean(
        self, theta: Float[Array, " 1"], state: Float[Array, " 1"], xi: Float[Array, " 1"]
    ) -> Float[Array, " 1"]:
        return self.memory * state + theta * xi

    def scale(
        self, theta: Float[Array, " 1"], state: Float[Array, " 1"], xi: Float[Array, " 1"]
    ) -> tuple[float]:
        del theta, state, xi
        return (self.noise,)

    def posterior(self, ys: Float[Array, "T 1"], xis: Float[Array, "T 1"]) -> GaussianPosterior:
        """N(m, V)."""
        V = self._posterior_variance(xis)
        return GaussianPosterior(
            (V * (self._innovations(ys) * xis).sum() / self.noise**2)[None], V[None, None]
        )

    def marginal_log_prob(self, ys: Float[Array, "T 1"], xis: Float[Array, "T 1"]) -> Scalar:
        z, m = self._innovations(ys), self.posterior(ys, xis).mean
        square = ((z - xis * m) ** 2).sum() / self.noise**2 + (m[0] / self.prior_scale) ** 2
        return (
            -0.5 * square - self.eig(xis) - len(ys) * math.log(self.noise * math.sqrt(2 * math.pi))
        )

    def score(
        self, ys: Float[Array, "T 1"], xis: Float[Array, "T 1"]
    ) -> tuple[Float[Array, "T 1"], Float[Array, "T 1"]]:
        posterior = self.posterior(ys, xis)
        w = (self._innovations(ys) - xis * posterior.mean) / self.noise**2
        following = jnp.concatenate([w[1:], jnp.zeros_like(w[:1])])
        return -w + self.memory * following, posterior.mean * w - posterior.covariance[
            0
        ] * xis / self.noise**2

    def information_gain(self, ys: Float[Array, "T 1"], xis: Float[Array, "T 1"]) -> Scalar:
        del ys
        return self.eig(xis)

    def eig(self, xis: Float[Array, "T 1"]) -> Scalar:
        return 0.5 * jnp.log1p((self.prior_scale / self.noise) ** 2 * (xis**2).sum())

    def eig_gradient(self, xis: Float[Array, "T 1"]) -> Float[Array, "T 1"]:
        return self._posterior_variance(xis) * xis / self.noise**2

    def optimal_eig(self) -> float:
        return 0.5 * math.log1p(self.horizon * (self.prior_scale * self.bound / self.noise) ** 2)

    def _innovations(self, ys: Float[Array, "T 1"]) -> Float[Array, "T 1"]:
        """z_t = y_t − α y_{t−1}."""
        return ys - self.memory * jnp.concatenate([jnp.zeros_like(ys[:1]), ys[:-1]])

    def _posterior_variance(self, xis: Float[Array, "T 1"]) -> Scalar:
        """V."""
        return 1 / (self.prior_scale**-2 + (xis**2).sum() / self.noise**2)
