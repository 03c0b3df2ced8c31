"""Gaussian designs, independent between steps: of one scale, or of a random scale per trajectory.

    u_t ~ N(0, σ² I),   ξ_t = constrain(u_t)

The paper's ablation finds the random scale decisive: an untrained policy starts with small designs
that grow, and a score that has seen one scale only is wrong for the others."""

import math

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float, PRNGKeyArray, Scalar

from scorebed.errors import require
from scorebed.samplers import quadrature
from scorebed.samplers.base import Unconstrained
from scorebed.tasks.spaces import Space


class IsotropicGaussian(Unconstrained):
    """u ~ N(0, scale² I)."""

    horizon: int = eqx.field(static=True)
    space: Space = eqx.field(static=True)
    scale: float = eqx.field(static=True, default=1.0)

    def __check_init__(self) -> None:
        require(
            0 < self.scale < math.inf,
            "the scale of Gaussian designs",
            got=self.scale,
            expected="a positive number",
            fix="leave it out for 1, the typical size of a design.",
        )

    def sample_unconstrained(self, *, key: PRNGKeyArray) -> Float[Array, "T dx"]:
        return self.scale * jr.normal(key, (self.horizon, self.space.dim))

    def log_prob_unconstrained(self, us: Float[Array, "T dx"]) -> Scalar:
        return -0.5 * ((us / self.scale) ** 2).sum() - us.size * (
            math.log(self.scale) + 0.5 * math.log(2 * math.pi)
        )


class RandomScaleGaussian(Unconstrained):
    """σ ~ U(low, high) once per trajectory, then u ~ N(0, σ² I). The density integrates σ out by
    quadrature.

    The defaults are those of the paper's ablation; its gravimetry uses (0.3, 1.2).
    """

    horizon: int = eqx.field(static=True)
    space: Space = eqx.field(static=True)
    low: float = eqx.field(static=True, default=0.5)
    high: float = eqx.field(static=True, default=2.0)

    def __check_init__(self) -> None:
        require_scales(self.low, self.high)

    def sample_unconstrained(self, *, key: PRNGKeyArray) -> Float[Array, "T dx"]:
        key_scale, key_normal = jr.split(key)
        sigma = jr.uniform(key_scale, minval=self.low, maxval=self.high)
        return sigma * jr.normal(key_normal, (self.horizon, self.space.dim))

    def log_prob_unconstrained(self, us: Float[Array, "T dx"]) -> Scalar:
        log_factors, half_precisions = scale_rule(self.low, self.high, us.size)
        log_q = (
            jnp.asarray(log_factors, us.dtype)
            - jnp.asarray(half_precisions, us.dtype) * (us**2).sum()
        )
        return logsumexp(log_q) - us.size * 0.5 * math.log(2 * math.pi)


def require_scales(low: float, high: float) -> None:
    """Refuse a range of random scales that is empty or reaches zero."""
    require(
        0 < low < high < math.inf,
        "the range of a random scale",
        got=f"low={low}, high={high}",
        expected="0 < low < high",
        fix="for one fixed scale use IsotropicGaussian.",
    )


def scale_rule(
    low: float, high: float, n: int
) -> tuple[Float[np.ndarray, " nodes"], Float[np.ndarray, " nodes"]]:
    """(a, c) with E_σ[σ^{−n} exp(−S / 2σ²)] ≈ Σ_i exp(a_i − c_i S), σ ~ U(low, high).

    In log σ the integrand is a bell of width 1/√(2n) wherever it peaks. For S outside of n·low² …
    n·high² its peak lies beyond an end, where the nodes are dense. For designs ten times larger
    than `high` they are too sparse even there, and log q is wrong by 0.2%."""
    count = quadrature.count_for(math.log(high / low), 1 / math.sqrt(2 * n))
    sigma, log_weights = quadrature.log_spread(low, high, count)
    return log_weights - n * np.log(sigma), 0.5 / sigma**2
