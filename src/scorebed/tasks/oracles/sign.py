"""A hidden sign, whose posterior is not Gaussian:

    θ = ±1 with probability ½ each,   y_t = θ ξ_t + σ ε_t

With the log-odds 2Λ, Λ = Σ_t y_t ξ_t/σ², and the signal s = Σ_t ξ_t²/σ²:

    s^y_t = (ξ_t tanh Λ − y_t)/σ²,   s^ξ_t = (y_t tanh Λ − ξ_t)/σ²
    information gain = log 2 − H_b(sigmoid 2Λ)
    EIG = log 2 − E[log(1 + e^{−2Λ})],   ∂EIG/∂ξ_t = (ξ_t/σ²) E[1 − tanh Λ],   Λ ~ N(s, s)

The law of Λ is that under θ = 1, by symmetry; the gradient is the I-MMSE identity.
"""

import math
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Scalar

from scorebed.errors import require
from scorebed.tasks.base import IID, Gaussian
from scorebed.tasks.oracles.closed_form import ClosedForm
from scorebed.tasks.priors import Prior
from scorebed.tasks.spaces import Box, Quantity, Space

# The trapezoidal rule is spectrally accurate for analytic functions: the error is below 1e-12 up to
# a signal s of 40.
_NODES = np.linspace(-10.0, 10.0, 401)
_WEIGHTS = np.exp(-0.5 * _NODES**2) / np.exp(-0.5 * _NODES**2).sum()


class RandomSign(Prior):
    """θ = ±1 with probability ½ each. Discrete: `log_prob` is a probability, and θ = sign z has no
    useful derivative.
    """

    quantities: tuple[Quantity, ...] = eqx.field(static=True)

    def __check_init__(self) -> None:
        require(
            len(self.quantities) == 1,
            "a random sign",
            got=f"{len(self.quantities)} names",
            expected="one",
            fix="name one parameter.",
        )

    def from_latent(self, z: Float[Array, " 1"]) -> Float[Array, " 1"]:
        return jnp.where(z < 0, -jnp.ones_like(z), jnp.ones_like(z))

    def log_prob(self, theta: Float[Array, " 1"]) -> Scalar:
        return jnp.where(jnp.abs(theta[0]) == 1, -math.log(2.0), -jnp.inf)


class Sign(IID, Gaussian, ClosedForm):
    """Designs are |ξ| ≤ `bound`. At ξ = 0 use `eig_gradient`: differentiating `eig` involves the
    slope of √s, which is infinite there.
    """

    horizon: int = eqx.field(static=True)
    prior: Prior
    designs: Space = eqx.field(static=True)
    outcomes: tuple[Quantity, ...] = eqx.field(static=True)
    noise: float = eqx.field(static=True)
    bound: float = eqx.field(static=True)
    additive_noise: bool = eqx.field(static=True)

    def __init__(self, *, noise: float = 1.0, bound: float = 2.0, horizon: int = 3):
        require(
            horizon >= 1 and noise > 0 and bound > 0,
            "a sign task",
            got=f"horizon={horizon}, noise={noise}, bound={bound}",
            expected="at least one step, a positive noise and a positive bound",
            fix="leave them out for 3, 1 and 2.",
        )
        self.horizon, self.noise, self.bound = horizon, noise, bound
        self.prior = RandomSign((Quantity("sign"),))
        self.designs = Box((Quantity("amplitude"),), (-bound,), (bound,))
        self.outcomes = (Quantity("response"),)
        self.additive_noise = True

    def mean(
        self, theta: Float[Array, " 1"], state: None, xi: Float[Array, " 1"]
    ) -> Float[Array, " 1"]:
        del state
        return theta * xi

    def scale(self, theta: Float[Array, " 1"], state: None, xi: Float[Array, " 1"]) -> tuple[float]:
        del theta, state, xi
        return (self.noise,)

    def marginal_log_prob(self, ys: Float[Array, "T 1"], xis: Float[Array, "T 1"]) -> Scalar:
        odds = self._half_log_odds(ys, xis)
        log_cosh = jnp.logaddexp(odds, -odds) - math.log(2.0)
        square = (ys**2 + xis**2).sum() / self.noise**2
        return log_cosh - 0.5 * square - len(ys) * math.log(self.noise * math.sqrt(2 * math.pi))

    def score(
        self, ys: Float[Array, "T 1"], xis: Float[Array, "T 1"]
    ) -> tuple[Float[Array, "T 1"], Float[Array, "T 1"]]:
        mean = jnp.tanh(self._half_log_odds(ys, xis))
        return (xis * mean - ys) / self.noise**2, (ys * mean - xis) / self.noise**2

    def information_gain(self, ys: Float[Array, "T 1"], xis: Float[Array, "T 1"]) -> Scalar:
        log_odds = 2 * jnp.abs(self._half_log_odds(ys, xis))
        entropy = jax.nn.softplus(-log_odds) + log_odds * jax.nn.sigmoid(-log_odds)
        return math.log(2.0) - entropy

    def eig(self, xis: Float[Array, "T 1"]) -> Scalar:
        return math.log(2.0) - self._mean_over_odds(lambda odds: jax.nn.softplus(-2 * odds), xis)

    def eig_gradient(self, xis: Float[Array, "T 1"]) -> Float[Array, "T 1"]:
        return xis / self.noise**2 * self._mean_over_odds(lambda odds: 1 - jnp.tanh(odds), xis)

    def optimal_eig(self) -> float:
        # A weaker design is a stronger one with added noise, so the edge of the box is always
        # best.
        signal = self.horizon * (self.bound / self.noise) ** 2
        return float(
            math.log(2.0) - _WEIGHTS @ np.logaddexp(0.0, -2 * (signal + math.sqrt(signal) * _NODES))
        )

    def _half_log_odds(self, ys: Float[Array, "T 1"], xis: Float[Array, "T 1"]) -> Scalar:
        """Λ."""
        return (ys * xis).sum() / self.noise**2

    def _mean_over_odds(
        self, function: Callable[[Array], Array], xis: Float[Array, "T 1"]
    ) -> Scalar:
        """E[function(Λ)] with Λ ~ N(s, s)."""
        signal = (xis**2).sum() / self.noise**2
        nodes, weights = jnp.asarray(_NODES, xis.dtype), jnp.asarray(_WEIGHTS, xis.dtype)
        return (weights * function(signal + jnp.sqrt(signal) * nodes)).sum()
