"""Linear regression with designed covariates:   θ ~ N(μ₀, Σ₀),   y_t = ξ_tᵀθ + σ ε_t.

In the scalar case the information gain of any trajectory, adaptive or not, is
½ log(1 + (τ²/σ²) Σ_t ξ_t²)."""

import math
from collections.abc import Sequence
from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from scorebed.errors import ScorebedError, require
from scorebed.tasks.oracles.linear_model import LinearModel
from scorebed.tasks.priors import GaussianPrior, gaussian
from scorebed.tasks.spaces import Box, Quantity, Space


class LinearGaussian(LinearModel):
    """Linear regression with one covariate per coefficient, each with |ξ| ≤ `bound`. Scores,
    posteriors and gains have closed forms.

    Arguments:
        mean: prior means of the coefficients; by default there is one, with mean 0.
        covariance: prior covariance of the coefficients.
        noise: standard deviation of the response, σ.
        bound: largest size of a covariate.
        horizon: number of measurements, T.

    Raises:
        InvalidValueError: if a size is out of range, or the covariance does not fit the mean.

    Example:
        >>> round(sb.LinearGaussian().optimal_eig(), 3)
        1.282
    """

    horizon: int = eqx.field(static=True)
    prior: GaussianPrior
    designs: Space = eqx.field(static=True)
    outcomes: tuple[Quantity, ...] = eqx.field(static=True)
    noise: float = eqx.field(static=True)
    bound: float = eqx.field(static=True)
    additive_noise: bool = eqx.field(static=True)
    preset_file: ClassVar[str] = "linear-gaussian.toml"

    def __init__(
        self,
        *,
        mean: Sequence[float] = (0.0,),
        covariance: Sequence[Sequence[float]] = ((1.0,),),
        noise: float = 1.0,
        bound: float = 2.0,
        horizon: int = 3,
    ):
        require(
            horizon >= 1 and noise > 0 and bound > 0,
            "a linear-Gaussian task",
            got=f"horizon={horizon}, noise={noise}, bound={bound}",
            expected="at least one step, a positive noise and a positive bound",
            fix="leave them out for 3, 1 and 2.",
        )
        indices = [""] if len(mean) == 1 else [f" {i + 1}" for i in range(len(mean))]
        self.horizon, self.noise, self.bound = horizon, noise, bound
        self.prior = gaussian(tuple(Quantity(f"coefficient{i}") for i in indices), mean, covariance)
        limits = (bound,) * len(mean)
        self.designs = Box(
            tuple(Quantity(f"covariate{i}") for i in indices), tuple(-b for b in limits), limits
        )
        self.outcomes = (Quantity("response"),)
        self.additive_noise = True

    def features(self, xi: Float[Array, " k"]) -> Float[Array, " k"]:
        return xi

    def feature_jacobian(self, xi: Float[Array, " k"]) -> Float[Array, "k k"]:
        return jnp.eye(len(xi), dtype=xi.dtype)

    def optimal_eig(self) -> float:
        if self.prior.dim > 1:
            raise ScorebedError(
                f"the optimal EIG of a linear-Gaussian task, got {self.prior.dim} coefficients, "
                f"expected one. Fix: compare with the best of many static designs."
            )
        signal = self.prior.cholesky[0][0] * self.bound / self.noise
        return 0.5 * math.log1p(self.horizon * signal**2)
