"""Contrastive bounds of the EIG, differentiated through the rollout (paper, "Baselines": PCE, and
nested Monte Carlo).

    PCE  log p(y|θ_0,ξ) − log 1/(M+1) Σ_{m=0..M} p(y|θ_m,ξ)   ≤ EIG in mean
    NMC  log p(y|θ_0,ξ) − log 1/M     Σ_{m=1..M} p(y|θ_m,ξ)   ≥ EIG in mean

Each function maps one trajectory to its value of the bound; the gradient in the policy, through
designs and outcomes alike, is the estimator's integrand. No two trajectories share contrastive
parameters θ_{1:M} ~ p(θ). The bias of both is O(e^{2 EIG}/M), in value and in gradient, and no
value of PCE exceeds log(M+1). (M + 1)·T NLE."""

import jax
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray, Scalar

from scorebed.errors import require
from scorebed.estimators.log_ratios import log_mean, lower_log_ratio, upper_log_ratio
from scorebed.keys import named
from scorebed.policies.base import Policy
from scorebed.rollout import Noise, Trajectory, log_likelihood, log_likelihoods, price, rollout
from scorebed.tasks.base import Task
from scorebed.tasks.nuisance import refuse_nuisance, resample_nuisance


def pce(
    task: Task,
    policy: Policy,
    theta: Float[Array, " k"],
    noise: Noise,
    *,
    inner: int,
    key: PRNGKeyArray,
) -> Scalar:
    """Prior contrastive estimation: θ_0 is one of the M + 1 terms of the marginal, which makes it a
    lower bound.
    """
    refuse_nuisance(task, "this PCE", "use pce_of_interest.")
    run = rollout(task, policy, theta, noise)
    log_p0 = log_likelihood(task, theta, run.ys, run.xis)
    others = contrastive(task, run, inner, key=key)
    return lower_log_ratio(log_p0, log_p0, others, inner) - price(task, run.xis)


def pce_of_interest(
    task: Task,
    policy: Policy,
    z: Float[Array, " k"],
    noise: Noise,
    *,
    inner: int,
    key: PRNGKeyArray,
) -> Scalar:
    """PCE where some parameters are a nuisance (`bounds/nuisance.py`), at θ_0 = f(z): the first
    term too is an average, over M draws of p(η | ψ_0). (2M + 1)·T NLE.

    z ~ N(0, I) are latent numbers: an estimate that `train_policies` calls with θ draws them
    itself.
    """
    run = rollout(task, policy, task.prior.from_latent(z), noise)
    log_p0 = log_likelihood(task, run.theta, run.ys, run.xis)
    others = contrastive(task, run, inner, key=key)
    fresh = resample_nuisance(task, z, jr.normal(named(key, "nuisance"), (inner, len(z))))
    first = jax.nn.logsumexp(
        log_likelihoods(task, jax.vmap(task.prior.from_latent)(fresh), run.ys, run.xis)
    )
    lower = lower_log_ratio(log_mean(first, inner), log_p0, others, inner)
    return lower - price(task, run.xis)


def nmc(
    task: Task,
    policy: Policy,
    theta: Float[Array, " k"],
    noise: Noise,
    *,
    inner: int,
    key: PRNGKeyArray,
) -> Scalar:
    """Nested Monte Carlo: without θ_0 in the marginal it is an upper bound, without a ceiling, and
    of larger variance.
    """
    refuse_nuisance(task, "nested Monte Carlo", "use the score, or pce_of_interest.")
    run = rollout(task, policy, theta, noise)
    log_p0 = log_likelihood(task, theta, run.ys, run.xis)
    others = contrastive(task, run, inner, key=key)
    return upper_log_ratio(log_p0, others, inner) - price(task, run.xis)


def contrastive(task: Task, run: Trajectory, inner: int, *, key: PRNGKeyArray) -> Scalar:
    """log Σ_{m=1..M} p(y|θ_m,ξ). M·T NLE."""
    return jax.nn.logsumexp(
        log_likelihoods(task, prior_draws(task, inner, key=key), run.ys, run.xis)
    )


def prior_draws(task: Task, count: int, *, key: PRNGKeyArray) -> Float[Array, "M k"]:
    """θ_{1:M} ~ p(θ), from one block of latents: a key for each would cost as much again as the
    draws.
    """
    require(
        count >= 1,
        "contrastive parameters",
        got=count,
        expected="at least one",
        fix="the paper's PCE uses 3 to 399.",
    )
    return jax.vmap(task.prior.from_latent, in_axes=1)(jr.normal(key, (task.prior.dim, count)))
