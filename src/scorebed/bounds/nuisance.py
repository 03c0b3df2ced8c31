"""The first term of the bounds where some parameters are a nuisance, θ = (ψ, η): log p(y | ψ_0, ξ)
is an average too.

With fresh draws η_1 … η_L ~ p(η | ψ_0) and η_0 the one that made the data,

    lower  log 1/L     Σ_{l=1..L} p(y | ψ_0, η_l, ξ)  −  log 1/(M+1) Σ_{m=0..M} p(y | θ_m, ξ)
    upper  log 1/(L+1) Σ_{l=0..L} p(y | ψ_0, η_l, ξ)  −  log 1/M     Σ_{m=1..M} p(y | θ_m, ξ)

**Without η_0** the average is an unbiased estimate of p(y | ψ_0, ξ), so that its logarithm is too
small in mean (Jensen). **With η_0**, which given (y, ψ_0) is a draw of the posterior, it is too
large in mean, for the reason that makes the marginal of sPCE too large with θ_0. So the first term
of the lower bound leaves η_0 out, and the second includes θ_0.

Here L = M. A single value of the lower bound has no ceiling, but its mean has one: given (y, ψ_0)
the mean of 1/p(y | ψ_0, η_0, ξ) is 1/p(y | ψ_0, ξ), hence E log (average without η_0) ≤ E log p(y |
ψ_0, η_0, ξ), and the mean is below log(M+1), as that of sPCE is."""

from typing import NamedTuple

import jax
import jax.random as jr
from jaxtyping import Array, Float, Int, PRNGKeyArray, Scalar

from scorebed.estimators.log_ratios import log_mean, log_mean_of_all
from scorebed.inference.importance import stream_log_sum
from scorebed.rollout import log_likelihoods
from scorebed.tasks.base import Task
from scorebed.tasks.nuisance import resample_nuisance

CHUNK = 4096


class FirstTerms(NamedTuple):
    """log p(y | ψ_0, ξ) of trajectories, from below and from above in mean."""

    lower: Float[Array, "*N"]
    upper: Float[Array, "*N"]


def first_terms(
    task: Task,
    z: Float[Array, "N k"],
    log_p0: Float[Array, " N"],
    ys: Float[Array, "N T dy"],
    xis: Float[Array, "N T dx"],
    inner: int,
    *,
    key: PRNGKeyArray,
) -> FirstTerms:
    """Of trajectories with latent parameters z and likelihoods `log_p0` = log p(y | ψ_0, η_0, ξ).
    N·inner·T NLE.

    The latent η are shared by the N trajectories, as contrastive parameters are.
    """
    total = jax.vmap(lambda z, y, xi: _conditional_sum(task, z, y, xi, inner, key=key))(z, ys, xis)
    return FirstTerms(log_mean(total, inner), log_mean_of_all(log_p0, total, inner))


def _conditional_sum(
    task: Task,
    z: Float[Array, " k"],
    ys: Float[Array, "T dy"],
    xis: Float[Array, "T dx"],
    inner: int,
    *,
    key: PRNGKeyArray,
) -> Scalar:
    """log Σ_{l=1..L} p(y | ψ_0, η_l, ξ), streamed in chunks."""

    def likelihoods(indices: Int[Array, " chunk"]) -> Float[Array, " chunk"]:
        fresh = jr.normal(jr.fold_in(key, indices[0]), (len(indices), len(z)))
        thetas = jax.vmap(task.prior.from_latent)(resample_nuisance(task, z, fresh))
        return log_likelihoods(task, thetas, ys, xis)

    return stream_log_sum(likelihoods, inner, CHUNK, ys.dtype)
