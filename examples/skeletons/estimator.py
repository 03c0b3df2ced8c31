"""Skeleton: your own estimator of the EIG, and policies trained by it. Change the lines marked
with «.

python estimator.py
"""

import math

import jax
import jax.numpy as jnp
import jax.random as jr

import scorebed as sb
from scorebed.rollout import log_likelihood, log_likelihoods, price, rollout

INNER = 64  # «


def estimate(task, policy, theta, noise, *, key):
    """One trajectory → a scalar whose gradient in the policy estimates that of the EIG.
    (2·INNER + 1)·T NLE. «

    log p(y | θ, ξ) − log 1/2M Σ_m [p(y | f(z_m), ξ) + p(y | f(−z_m), ξ)]: nested Monte Carlo with
    parameters in mirrored pairs."""
    run = rollout(task, policy, theta, noise)
    z = jr.normal(key, (INNER, task.prior.dim))
    others = jax.vmap(task.prior.from_latent)(jnp.concatenate([z, -z]))
    marginal = jax.nn.logsumexp(log_likelihoods(task, others, run.ys, run.xis)) - math.log(
        2 * INNER
    )
    return log_likelihood(task, theta, run.ys, run.xis) - marginal - price(task, run.xis)


def main(steps=200):
    """A policy for a task, trained by the estimator. «"""
    task = sb.make_task("linear-gaussian")
    trained = sb.train_policies(
        task, estimate, "dad", count=2, steps=steps, batch=64, learning_rate=3e-3, key=jr.key(0)
    )
    best = sb.best_policy(task, trained.policies, outer=64, inner=1000, key=jr.key(1)).policy
    bounds = sb.eig_bounds(task, best, outer=256, inner=10_000, key=jr.key(2))
    print(bounds)
    return bounds


if __name__ == "__main__":
    main()
