"""A hidden vector in the plane, measured along a chosen direction.

    y_t = θ₁ cos ξ_t + θ₂ sin ξ_t + σ ε_t

Its optimum lies in the interior of the design space. With Σ₀ = τ²I, T = 2, ρ = τ²/σ² and
Δ = ξ₁ − ξ₂, EIG = ½ log(1 + 2ρ + ρ² sin²Δ), which is largest at Δ = π/2: log(1 + ρ)."""

import math

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from scorebed.errors import require
from scorebed.tasks.oracles.linear_model import LinearModel
from scorebed.tasks.priors import GaussianPrior, gaussian
from scorebed.tasks.spaces import Quantity, Real, Space


class Projection(LinearModel):
    """θ ~ N(0, τ²I) in the plane; ξ is an angle."""

    horizon: int = eqx.field(static=True)
    prior: GaussianPrior
    designs: Space = eqx.field(static=True)
    outcomes: tuple[Quantity, ...] = eqx.field(static=True)
    noise: float = eqx.field(static=True)
    additive_noise: bool = eqx.field(static=True)

    def __init__(self, *, prior_scale: float = 1.0, noise: float = 1.0, horizon: int = 2):
        require(
            horizon >= 1 and noise > 0 and prior_scale > 0,
            "a projection task",
            got=f"horizon={horizon}, noise={noise}, prior_scale={prior_scale}",
            expected="at least one step, a positive noise and a positive prior scale",
            fix="leave them out for 2, 1 and 1.",
        )
        self.horizon, self.noise = horizon, noise
        variance = prior_scale**2
        self.prior = gaussian(
            (Quantity("vector x"), Quantity("vector y")),
            (0.0, 0.0),
            ((variance, 0.0), (0.0, variance)),
        )
        self.designs = Real((Quantity("direction", "rad"),))
        self.outcomes = (Quantity("component"),)
        self.additive_noise = True

    def features(self, xi: Float[Array, " 1"]) -> Float[Array, " 2"]:
        return jnp.stack([jnp.cos(xi[0]), jnp.sin(xi[0])])

    def feature_jacobian(self, xi: Float[Array, " 1"]) -> Float[Array, "2 1"]:
        return jnp.stack([-jnp.sin(xi[0]), jnp.cos(xi[0])])[:, None]

    def optimal_eig(self) -> float:
        # AᵀA has trace T, so det(I + ρAᵀA) is largest when AᵀA = T/2 I, for directions spread
        # evenly over half a turn.
        signal = (self.prior.cholesky[0][0] / self.noise) ** 2
        return (
            0.5 * math.log1p(signal) if self.horizon == 1 else math.log1p(signal * self.horizon / 2)
        )
