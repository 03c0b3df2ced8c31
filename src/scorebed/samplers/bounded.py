"""Designs in a box: uniform, and switching from one side to the other (paper: dynamical systems).

Switching designs sit just inside the boundary, with a sign process per coordinate:

    λ ~ U(rate_low, rate_high),   P(s_{t+1} = −s_t) = 1 − e^{−λ}
    ξ_t = centre + half-width · tanh(s_t u_B + ε_t)

s_1 is a fair coin, ε ~ N(0, jitter²). Each coordinate switches by itself, at a rate λ of its
own."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float, PRNGKeyArray, Scalar

from scorebed.errors import require
from scorebed.samplers import quadrature
from scorebed.samplers.base import DesignSampler, Unconstrained, inside
from scorebed.tasks.spaces import Space


class UniformBox(DesignSampler):
    """ξ_t ~ U(low, high), independent between steps and coordinates; designs from a list have equal
    chances.
    """

    horizon: int = eqx.field(static=True)
    space: Space = eqx.field(static=True)

    def __check_init__(self) -> None:
        require_bounded(self)

    def sample(self, *, key: PRNGKeyArray) -> Float[Array, "T dx"]:
        if self.space.listed:
            return self.space.evenly(jr.uniform(key, (self.horizon, self.space.dim)))
        low, high = map(jnp.asarray, self.space.limits)
        return jr.uniform(key, (self.horizon, self.space.dim), minval=low, maxval=high)

    def log_prob(self, xis: Float[Array, "T dx"]) -> Scalar:
        widths = [high - low for low, high in zip(*self.space.limits, strict=True)]
        log_volume = self.horizon * sum(map(math.log, widths))
        return jnp.where(inside(self.space, xis), jnp.full((), -log_volume, xis.dtype), -jnp.inf)

    def log_prob_unconstrained(self, us: Float[Array, "T dx"]) -> Scalar:
        # 2u is logistic: the density of u is ½ (1 − tanh² u).
        return (math.log(2) - 2 * us - 2 * jax.nn.softplus(-2 * us)).sum()


class Switching(Unconstrained):
    """Designs close to the boundary that change sides at random. `level` is u_B, which the paper
    does not give: 5, as the authors' program has it, with a jitter of 1.5.

    The density is a product over coordinates. Each factor is that of a hidden Markov model with two
    states, by its forward pass, with λ integrated out by quadrature."""

    horizon: int = eqx.field(static=True)
    space: Space = eqx.field(static=True)
    rate_low: float = eqx.field(static=True, default=0.02)
    rate_high: float = eqx.field(static=True, default=0.1)
    level: float = eqx.field(static=True, default=5.0)
    jitter: float = eqx.field(static=True, default=1.5)

    def __check_init__(self) -> None:
        require_bounded(self)
        require(
            0 < self.rate_low < self.rate_high < math.inf,
            "the switching rate",
            got=f"rate_low={self.rate_low}, rate_high={self.rate_high}",
            expected="0 < rate_low < rate_high",
            fix="leave them out for the paper's 0.02 and 0.1.",
        )
        require(
            0 < self.level < math.inf and 0 < self.jitter < math.inf,
            "the boundary level and its jitter",
            got=f"level={self.level}, jitter={self.jitter}",
            expected="two positive numbers",
            fix="leave them out for the authors' 5 and 1.5.",
        )

    def sample_unconstrained(self, *, key: PRNGKeyArray) -> Float[Array, "T dx"]:
        key_rate, key_flip, key_jitter = jr.split(key, 3)
        shape = (self.horizon, self.space.dim)
        rates = jr.uniform(key_rate, (self.space.dim,), minval=self.rate_low, maxval=self.rate_high)
        # The first step flips a + with probability ½.
        chances = jnp.broadcast_to(-jnp.expm1(-rates), shape).at[0].set(0.5)
        flips = jr.uniform(key_flip, shape) < chances
        signs = jnp.cumprod(jnp.where(flips, -1.0, 1.0), axis=0)
        return self.level * signs + self.jitter * jr.normal(key_jitter, shape)

    def log_prob_unconstrained(self, us: Float[Array, "T dx"]) -> Scalar:
        # The integrand is a mixture of p^k (1−p)^{n−k}, p ≈ λ: polynomials in λ of degree n, of
        # relative width above 1/√n.
        count = 16 + math.ceil(4 * math.sqrt(len(us)))
        rates, log_weights = (
            jnp.asarray(a, us.dtype)
            for a in quadrature.uniform(self.rate_low, self.rate_high, count)
        )
        flip = -jnp.expm1(-rates)[:, None]
        emissions = jnp.stack(
            [-0.5 * ((us - side) / self.jitter) ** 2 for side in (self.level, -self.level)], axis=1
        )
        # Relative to the likelier sign, the likelihood of a step is at least `flip`, so that the
        # forward pass needs no logarithms.
        peaks = jax.lax.stop_gradient(emissions.max(axis=1, keepdims=True))

        def step(up: Float[Array, "n dx"], emission: Float[Array, "2 dx"]) -> tuple[Array, Array]:
            """P(s_t = 1 | u_{1:t}, λ) and p(u_t | u_{1:t−1}, λ), at every node λ and coordinate."""
            predicted = up + flip * (1 - 2 * up)
            joint = predicted * emission[0]
            likelihood = joint + (1 - predicted) * emission[1]
            return joint / likelihood, likelihood

        start = jnp.full((count, us.shape[1]), 0.5, us.dtype)
        _, likelihoods = jax.lax.scan(step, start, jnp.exp(emissions - peaks))
        log_q = logsumexp(log_weights[:, None] + jnp.log(likelihoods).sum(axis=0), axis=0)
        constant = 0.5 * math.log(2 * math.pi) + math.log(self.jitter)
        return log_q.sum() + peaks.sum() - us.size * constant


def require_bounded(sampler: DesignSampler) -> None:
    """Refuse a design space without limits."""
    require(
        sampler.space.bounded,
        f"the design space of {type(sampler).__name__}",
        got=type(sampler.space).__name__,
        expected="a Box with finite limits",
        fix="give the designs limits, or use AR1 or RandomScaleGaussian for unbounded designs.",
    )
