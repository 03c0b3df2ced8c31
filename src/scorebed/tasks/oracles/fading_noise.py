"""A constant measured with noise that the design controls.

    θ ~ N(0, τ²),   y_t = θ + σ e^{−ξ_t} ε_t

The noise is not additive, so the likelihood term of the EIG gradient is not zero: it is +1 for
every sample and step. With D_t = σ² e^{−2ξ_t} and the posterior N(m, V):

    V = (1/τ² + Σ_t 1/D_t)⁻¹,   m = V Σ_t y_t/D_t
    s^y_t = −(y_t − m)/D_t,   s^ξ_t = 1 − ((y_t − m)² + V)/D_t
    EIG = ½ log(1 + τ² Σ_t 1/D_t),   ∂EIG/∂ξ_t = V/D_t
"""

import math

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Scalar

from scorebed.errors import require
from scorebed.tasks.base import IID, Gaussian
from scorebed.tasks.oracles.closed_form import ClosedForm, GaussianPosterior
from scorebed.tasks.priors import GaussianPrior, gaussian
from scorebed.tasks.spaces import Box, Quantity, Space


class FadingNoise(IID, Gaussian, ClosedForm):
    """Designs are |ξ| ≤ `bound`. The information gain does not depend on the outcomes."""

    horizon: int = eqx.field(static=True)
    prior: GaussianPrior
    designs: Space = eqx.field(static=True)
    outcomes: tuple[Quantity, ...] = eqx.field(static=True)
    prior_scale: float = eqx.field(static=True)
    noise: float = eqx.field(static=True)
    bound: float = eqx.field(static=True)
    additive_noise: bool = eqx.field(static=True)

    def __init__(
        self, *, prior_scale: float = 1.0, noise: float = 1.0, bound: float = 1.0, horizon: int = 3
    ):
        require(
            horizon >= 1 and min(prior_scale, noise, bound) > 0,
            "a fading-noise task",
            got=f"horizon={horizon}, prior_scale={prior_scale}, noise={noise}, bound={bound}",
            expected="at least one step, and positive numbers",
            fix="leave them out for 3, 1, 1 and 1.",
        )
        self.horizon, self.prior_scale, self.noise, self.bound = horizon, prior_scale, noise, bound
        self.prior = gaussian((Quantity("constant"),), (0.0,), ((prior_scale**2,),))
        self.designs = Box((Quantity("log precision"),), (-bound,), (bound,))
        self.outcomes = (Quantity("response"),)
        self.additive_noise = False

    def mean(
        self, theta: Float[Array, " 1"], state: None, xi: Float[Array, " 1"]
    ) -> Float[Array, " 1"]:
        del state, xi
        return theta

    def scale(
        self, theta: Float[Array, " 1"], state: None, xi: Float[Array, " 1"]
    ) -> tuple[Scalar]:
        del theta, state
        return (self.noise * jnp.exp(-xi[0]),)

    def posterior(self, ys: Float[Array, "T 1"], xis: Float[Array, "T 1"]) -> GaussianPosterior:
        """N(m, V)."""
        precision = self._precisions(xis)
        V = 1 / (self.prior_scale**-2 + precision.sum())
        return GaussianPosterior((V * (ys * precision).sum())[None], V[None, None])

    def marginal_log_prob(self, ys: Float[Array, "T 1"], xis: Float[Array, "T 1"]) -> Scalar:
        precision, m = self._precisions(xis), self.posterior(ys, xis).mean
        square = ((ys - m) ** 2 * precision).sum() + (m[0] / self.prior_scale) ** 2
        log_scale = math.log(self.noise * math.sqrt(2 * math.pi)) * len(ys) - xis.sum()
        return -0.5 * square - self.eig(xis) - log_scale

    def score(
        self, ys: Float[Array, "T 1"], xis: Float[Array, "T 1"]
    ) -> tuple[Float[Array, "T 1"], Float[Array, "T 1"]]:
        precision, posterior = self._precisions(xis), self.posterior(ys, xis)
        residual = ys - posterior.mean
        return -residual * precision, 1 - (residual**2 + posterior.covariance[0]) * precision

    def information_gain(self, ys: Float[Array, "T 1"], xis: Float[Array, "T 1"]) -> Scalar:
        del ys
        return self.eig(xis)

    def eig(self, xis: Float[Array, "T 1"]) -> Scalar:
        return 0.5 * jnp.log1p(self.prior_scale**2 * self._precisions(xis).sum())

    def eig_gradient(self, xis: Float[Array, "T 1"]) -> Float[Array, "T 1"]:
        precision = self._precisions(xis)
        return precision / (self.prior_scale**-2 + precision.sum())

    def optimal_eig(self) -> float:
        return 0.5 * math.log1p(
            self.horizon * (self.prior_scale * math.exp(self.bound) / self.noise) ** 2
        )

    def _precisions(self, xis: Float[Array, "T 1"]) -> Float[Array, "T 1"]:
        """1/D_t."""
        return jnp.exp(2 * xis) / self.noise**2
