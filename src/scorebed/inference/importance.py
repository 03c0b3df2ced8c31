"""Posterior of θ by self-normalised importance sampling from the prior, for one history h =
(y_{1:T}, ξ_{1:T}).

    w_m = p(y_{1:T} | ξ_{1:T}, θ_m),  θ_m ~ p(θ),     Ẑ = 1/M Σ_m w_m,
    E[f(θ) | h] ≈ Σ_m w_m f(θ_m) / Σ_m w_m

Ẑ is unbiased for the marginal likelihood; the posterior averages have a bias of order 1/ESS. Only
draws of the prior are needed. When wrong: the effective sample size falls like M e^{−information
gain}, and below some tens neither the averages nor the effective sample size itself can be trusted.
`smc.py` is for such histories.

The key of draw m follows from m, so results do not depend on the chunk size (up to rounding), a
draw can be repeated from its number alone, and no more than a chunk is ever held."""

import functools
import math
from collections.abc import Callable
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Int, PRNGKeyArray, Scalar

from scorebed.errors import require
from scorebed.inference.resampling import effective_sample_size, systematic_resample
from scorebed.keys import named
from scorebed.rollout import log_likelihoods
from scorebed.tasks.base import Task
from scorebed.tasks.priors import Prior

CHUNK = 4096
# exp of anything below this is a denormal, slow, and less than 10⁻³⁴ of the largest term.
NEGLIGIBLE = -80.0

Carry = TypeVar("Carry")

# A ground truth must not inherit an accelerator's short products.
_dot = functools.partial(jnp.matmul, precision="highest")


class ImportanceMoments(eqx.Module):
    """Mean and covariance of θ given one history, log Ẑ, and the effective sample size. M·T NLE."""

    mean: Float[Array, " k"]
    covariance: Float[Array, "k k"]
    log_evidence: Scalar
    ess: Scalar


class ImportanceDraws(eqx.Module):
    """Equally weighted posterior draws by resampling, worth at most about `ess` independent ones.
    M·T NLE.
    """

    theta: Float[Array, "draws k"]
    log_evidence: Scalar
    ess: Scalar


def prior_draws(
    prior: Prior, indices: Int[Array, " M"], *, key: PRNGKeyArray
) -> Float[Array, "M k"]:
    """θ_m of these numbers m: equal numbers under one key give equal draws."""
    base = named(key, "prior")
    return jax.vmap(lambda m: prior.sample(key=jr.fold_in(base, m)))(indices)


def stream(
    add: Callable[[Carry, Int[Array, " chunk"], Float[Array, " chunk"]], Carry],
    start: Carry,
    inner: int,
    chunk: int,
) -> Carry:
    """Fold `add` over the numbers 0 … inner − 1, a chunk at a time; its third argument is 0, and −∞
    past the end.
    """
    size = min(chunk, inner)

    def step(carry: Carry, first: Array) -> tuple[Carry, None]:
        indices = first + jnp.arange(size)
        return add(carry, indices, jnp.where(indices < inner, 0.0, -jnp.inf)), None

    return jax.lax.scan(step, start, jnp.arange(0, inner, size))[0]


def shifted_weights(
    log_weights: Float[Array, " M"], top: Scalar
) -> tuple[Float[Array, " M"], Scalar, Scalar]:
    """w_m e^{−new top}, the new top, and the factor e^{top − new top} that brings older sums
    to it.
    """
    new = jnp.maximum(top, log_weights.max())
    # Where every weight so far is zero, any finite top does.
    finite = jnp.maximum(new, jnp.finfo(new.dtype).min)
    weights = jnp.where(
        jnp.isneginf(log_weights), 0, jnp.exp(jnp.maximum(log_weights - finite, NEGLIGIBLE))
    )
    return weights, new, jnp.exp(jnp.maximum(top - finite, NEGLIGIBLE))


def stream_log_sum(
    log_weights: Callable[[Int[Array, " chunk"]], Float[Array, " chunk"]],
    inner: int,
    chunk: int,
    dtype: Any,
) -> Scalar:
    """log Σ_m w_m over m = 0 … inner − 1, from the log-weights of given numbers, a chunk at a time:
    the sum is kept as e^top · total, since a sum of logarithms would lose digits at every chunk.
    """

    def add(carry: tuple[Array, Array], indices: Array, valid: Array) -> tuple[Array, Array]:
        top, total = carry
        weights, top, shrink = shifted_weights(log_weights(indices) + valid.astype(dtype), top)
        return top, total * shrink + weights.sum()

    zero = jnp.zeros((), dtype)
    top, total = stream(add, (zero - jnp.inf, zero), inner, chunk)
    return top + jnp.log(total)


def importance_moments(
    task: Task,
    ys: Float[Array, "T dy"],
    xis: Float[Array, "T dx"],
    *,
    inner: int,
    chunk: int = CHUNK,
    key: PRNGKeyArray,
) -> ImportanceMoments:
    """Posterior mean and covariance from `inner` draws of the prior, holding one chunk of them."""
    _require_sizes(inner, chunk)
    k, dtype = task.prior.dim, ys.dtype

    def add(carry: tuple[Array, ...], indices: Array, valid: Array) -> tuple[Array, ...]:
        top, total, squares, mean, scatter = carry
        theta = prior_draws(task.prior, indices, key=key)
        log_weights = log_likelihoods(task, theta, ys, xis) + valid.astype(dtype)
        weights, top, shrink = shifted_weights(log_weights, top)
        # Mean and scatter about it are merged chunk by chunk: E[θθᵀ] − E[θ]E[θ]ᵀ would cancel for a
        # narrow posterior.
        old, new = total * shrink, weights.sum()
        part = _ratio(_dot(weights, theta), new)
        away = theta - part
        shift = part - mean
        share = _ratio(new, old + new)
        scatter = (
            scatter * shrink + _dot(away.T * weights, away) + old * share * jnp.outer(shift, shift)
        )
        return (
            top,
            old + new,
            squares * shrink**2 + (weights**2).sum(),
            mean + share * shift,
            scatter,
        )

    zero = jnp.zeros((), dtype)
    start: tuple[Array, ...] = (
        zero - jnp.inf,
        zero,
        zero,
        jnp.zeros(k, dtype),
        jnp.zeros((k, k), dtype),
    )
    top, total, squares, mean, scatter = stream(add, start, inner, chunk)
    log_evidence = top + jnp.log(total) - math.log(inner)
    # If no draw explains the history, there is no posterior mean either.
    safe = jnp.where(total > 0, total, jnp.nan)
    return ImportanceMoments(
        mean * (total / safe), scatter / safe, log_evidence, total**2 / squares
    )


def importance_draws(
    task: Task,
    ys: Float[Array, "T dy"],
    xis: Float[Array, "T dx"],
    *,
    inner: int,
    draws: int,
    chunk: int = CHUNK,
    key: PRNGKeyArray,
) -> ImportanceDraws:
    """`draws` posterior draws, resampled from `inner` of the prior. Holds the `inner` weights, and
    one chunk of parameters.
    """
    _require_sizes(inner, chunk)
    require(
        draws >= 1,
        "the number of posterior draws",
        got=draws,
        expected="at least one",
        fix="1000 is usual.",
    )
    size = min(chunk, inner)

    def weigh(first: Array) -> Array:
        indices = first + jnp.arange(size)
        theta = prior_draws(task.prior, indices, key=key)
        return log_likelihoods(task, theta, ys, xis)

    log_weights = jax.lax.map(weigh, jnp.arange(0, inner, size)).reshape(-1)[:inner]
    log_total = jax.nn.logsumexp(log_weights)
    chosen = systematic_resample(named(key, "resample"), jnp.exp(log_weights - log_total), draws)
    theta = prior_draws(task.prior, chosen, key=key)
    return ImportanceDraws(theta, log_total - math.log(inner), effective_sample_size(log_weights))


def _ratio(numerator: Array, denominator: Scalar) -> Array:
    """numerator / denominator, and 0 / 0 = 0."""
    return numerator / jnp.where(denominator > 0, denominator, 1)


def _require_sizes(inner: int, chunk: int) -> None:
    require(
        inner >= 1 and chunk >= 1,
        "the size of importance sampling",
        got=f"inner={inner}, chunk={chunk}",
        expected="at least one draw and chunks of at least one",
        fix="100000 and 4096 are usual.",
    )
