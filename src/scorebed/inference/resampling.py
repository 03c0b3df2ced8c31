"""Resampling of weighted particles, and when it is due.

Both schemes take weights of any total. Systematic resampling has the smaller variance; multinomial
resampling draws every index independently, which makes it the only one under which a particle may
be pinned in its place (conditional SMC)."""

import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Int, PRNGKeyArray, Scalar


def effective_sample_size(log_weights: Float[Array, " M"]) -> Scalar:
    """(Σ w)² / Σ w²: M for equal weights, 1 when one weight is all. Any constant factor of the
    weights cancels.
    """
    weights = jnp.exp(log_weights - log_weights.max())
    return weights.sum() ** 2 / (weights**2).sum()


def normalised_sample_size(log_weights: Float[Array, "*N M"]) -> Float[Array, "*N"]:
    """The effective sample size 1 / Σ w² of weights that sum to one."""
    return 1 / jnp.exp(2 * log_weights).sum(-1)


def systematic_resample(
    key: PRNGKeyArray, weights: Float[Array, " M"], draws: int
) -> Int[Array, " draws"]:
    """Indices, each `draws` · w_m / Σ w times up to rounding to a neighbouring whole number, and
    that often on average.
    """
    total = jnp.cumsum(weights)
    # 1 − u lies in (0, 1]: no position falls on an index of weight zero, at either end.
    offset = 1 - jr.uniform(key, (), weights.dtype)
    positions = (jnp.arange(draws, dtype=weights.dtype) + offset) / draws
    return jnp.searchsorted(total, jnp.minimum(positions, 1) * total[-1])


def multinomial_resample(
    key: PRNGKeyArray, weights: Float[Array, " M"], draws: int
) -> Int[Array, " draws"]:
    """Independent draws of indices."""
    total = jnp.cumsum(weights)
    # 1 − u lies in (0, 1]: no draw falls on an index of weight zero.
    return jnp.searchsorted(total, (1 - jr.uniform(key, (draws,), total.dtype)) * total[-1])
