"""Temporally correlated Gaussian designs with random scale and correlation (paper: location
finding).

    σ ~ U(low, high),   ρ ~ U(rho_low, rho_high)
    u ~ N(0, σ² K_ρ ⊗ I_d),   [K_ρ]_{s,t} = ρ^{|s−t|}

The density integrates σ and ρ out on a grid. It is written in δ = 1 − ρ, because its mass may lie
anywhere from δ of order one to δ → 0. With Δ_t = u_t − u_{t−1}, the quadratic form of the inverse
of K_ρ is

    Q = [ρ |u_1|² + |u_T|² + (ρ/δ) Σ_{t≥2} |Δ_t|² + δ Σ_{t<T} |u_t|²] / (1 + ρ)
    log det K_ρ = (T − 1) log(δ (2 − δ)),

in which every term is positive, so nothing cancels as ρ → 1. Given the data, δ is determined up to
a factor of about 1 ± √(2/((T−1)d)) and σ up to 1 ± √(1/(2Td)): the nodes are spaced evenly in log δ
and log σ, at that resolution."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float, PRNGKeyArray, Scalar

from scorebed.errors import require
from scorebed.samplers import quadrature
from scorebed.samplers.base import Unconstrained
from scorebed.samplers.gaussian import require_scales, scale_rule
from scorebed.tasks.spaces import Space

# The smallest 1 − ρ. At zero all designs would be equal and have no density, and single precision
# cannot resolve smaller values in designs of order one (|Δ| ≈ √(2δ)). It removes 3e-8 of the
# paper's prior on ρ.
SMALLEST_GAP = 1e-8


class AR1(Unconstrained):
    """Smooth random designs. When all designs are equal the true density diverges; here it stays
    finite, since ρ ≤ 1 − 1e-8.

    The density costs about 110·T·d exponentials and no NLE. It is accurate to 1e-4 in single
    precision, except for designs several times larger than `high`, where log q is wrong by up to
    one part in a thousand."""

    horizon: int = eqx.field(static=True)
    space: Space = eqx.field(static=True)
    low: float = eqx.field(static=True, default=0.2)
    high: float = eqx.field(static=True, default=5.0)
    rho_low: float = eqx.field(static=True, default=0.7)
    rho_high: float = eqx.field(static=True, default=1.0)

    def __check_init__(self) -> None:
        require_scales(self.low, self.high)
        require(
            0 <= self.rho_low < self.rho_high <= 1 and self.rho_low < 1 - SMALLEST_GAP,
            "the range of a correlation",
            got=f"rho_low={self.rho_low}, rho_high={self.rho_high}",
            expected="0 <= rho_low < rho_high <= 1",
            fix="leave them out for the paper's 0.7 and 1.",
        )

    @property
    def _gaps(self) -> tuple[float, float]:
        """The range of δ = 1 − ρ."""
        return max(1 - self.rho_high, SMALLEST_GAP), 1 - self.rho_low

    def sample_unconstrained(self, *, key: PRNGKeyArray) -> Float[Array, "T dx"]:
        key_hyper, key_normal = jr.split(key)
        # δ is drawn, not ρ: 1 − ρ² would lose its digits.
        low, high = (
            jnp.asarray(limits) for limits in zip((self.low, self.high), self._gaps, strict=True)
        )
        sigma, delta = jr.uniform(key_hyper, (2,), minval=low, maxval=high)
        noise = sigma * jr.normal(key_normal, (self.horizon, self.space.dim))
        innovations = noise.at[1:].multiply(jnp.sqrt(delta * (2 - delta)))
        decay = jnp.full((self.horizon, 1), 1 - delta)

        def after(first: tuple[Array, Array], second: tuple[Array, Array]) -> tuple[Array, Array]:
            """u ↦ a u + b of two successive stretches of steps."""
            return first[0] * second[0], second[0] * first[1] + second[1]

        return jax.lax.associative_scan(after, (decay, innovations))[1]

    def log_prob_unconstrained(self, us: Float[Array, "T dx"]) -> Scalar:
        m = us.size - us.shape[1]
        low, high = self._gaps
        count = quadrature.count_for(math.log(high / low), math.sqrt(2 / max(m, 1)))
        delta, log_weights = quadrature.log_spread(low, high, count)
        log_factors = jnp.asarray(log_weights - m / 2 * np.log(delta * (2 - delta)), us.dtype)
        coefficients = np.stack([1 - delta, np.ones_like(delta), (1 - delta) / delta, delta]) / (
            2 - delta
        )
        squares = (us**2).sum(axis=1)
        steps = (jnp.diff(us, axis=0) ** 2).sum()
        statistics = jnp.stack([squares[0], squares[-1], steps, squares[:-1].sum()])
        quadratic = (jnp.asarray(coefficients, us.dtype) * statistics[:, None]).sum(axis=0)
        scale_factors, half_precisions = (
            jnp.asarray(a, us.dtype) for a in scale_rule(self.low, self.high, us.size)
        )
        log_q = log_factors[:, None] + scale_factors - quadratic[:, None] * half_precisions
        return logsumexp(log_q) - us.size * 0.5 * math.log(2 * math.pi)
