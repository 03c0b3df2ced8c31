"""Contrastive log-ratios: a likelihood over an average of M others, from the log of their sum.

With `log_w0` = log w_0, the term of the parameters that made the data, `total` = log Σ_{m=1..M}
w_m, and `first` = log p(y|ψ_0,ξ), which is `log_w0` itself unless there are nuisance parameters or
the w_m are importance weights:

    lower   first − log 1/(M+1) Σ_{m=0..M} w_m        upper   first − log 1/M Σ_{m=1..M} w_m

Every contrastive bound and estimator is one of these two, and log(M+1) bounds the lower one where
`first` is `log_w0`."""

import math

import jax.numpy as jnp
from jaxtyping import Array, Float


def lower_log_ratio(
    first: Float[Array, "*N"], log_w0: Float[Array, "*N"], total: Float[Array, "*N"], inner: int
) -> Float[Array, "*N"]:
    """With θ_0 among the M + 1 terms: too small in mean."""
    return first - jnp.logaddexp(total, log_w0) + math.log(inner + 1)


def upper_log_ratio(
    first: Float[Array, "*N"], total: Float[Array, "*N"], inner: int
) -> Float[Array, "*N"]:
    """Without θ_0: too large in mean, and without a ceiling."""
    return first - total + math.log(inner)


def log_mean_of_all(
    log_w0: Float[Array, "*N"], total: Float[Array, "*N"], inner: int
) -> Float[Array, "*N"]:
    """log 1/(M+1) Σ_{m=0..M} w_m."""
    return jnp.logaddexp(total, log_w0) - math.log(inner + 1)


def log_mean(total: Float[Array, "*N"], inner: int) -> Float[Array, "*N"]:
    """log 1/M Σ_{m=1..M} w_m."""
    return total - math.log(inner)
