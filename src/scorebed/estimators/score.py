"""The EIG gradient of Theorem 1, with a score in place of the intractable terms.

    ∇_φ I = E { d/dφ log p(y|ξ,θ) − s_y(y,ξ) ∂y/∂φ − s_ξ(y,ξ) ∂ξ/∂φ },   (y, ξ) = g(ε, θ, φ)

Each function maps one trajectory to a scalar whose gradient in the policy is that integrand; its *value* is no EIG. Averaged over
a batch and differentiated once it costs one backward pass, and the score is evaluated once per trajectory.
"""

import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray, Scalar

from scorebed.errors import ScorebedError
from scorebed.keys import named
from scorebed.once import once
from scorebed.policies.base import Policy
from scorebed.rollout import Noise, Trajectory, log_likelihood, observe, rollout
from scorebed.scores.base import Score
from scorebed.tasks.base import Task

CHECKED_STEPS = 8


def adaptive(task: Task, score: Score, policy: Policy, theta: Float[Array, " k"], noise: Noise) -> Scalar:
    """log p − ⟨stop(s_y), y⟩ − ⟨stop(s_ξ), ξ⟩, for any policy. T NLE, and those of the score."""
    run = rollout(task, policy, theta, noise)
    s_y, s_xi = jax.lax.stop_gradient(score(*jax.lax.stop_gradient((run.ys, run.xis))))
    return _likelihood_term(task, run) - (s_y * run.ys).sum() - (s_xi * run.xis).sum()


def static(task: Task, score: Score, policy: Policy, theta: Float[Array, " k"], noise: Noise) -> Scalar:
    """The same without the Fisher term, which has mean zero when designs do not depend on the data. The same cost.

    No error in the ξ-part of a score can bias it. Its variance need not be smaller: with the exact score the Fisher term is a
    control variate, and on one step of the scalar linear-Gaussian task at signal-to-noise one `adaptive` has a third of it.
    """
    run = rollout(task, policy, theta, noise)
    s_y = jax.lax.stop_gradient(score(*jax.lax.stop_gradient((run.ys, run.xis))).y)
    return _likelihood_term(task, run) - (s_y * run.ys).sum()


def _likelihood_term(task: Task, run: Trajectory) -> Scalar:
    """log p(y|ξ,θ), whose total derivative is zero for every sample under additive noise."""
    if task.additive_noise:
        return jnp.zeros((), run.ys.dtype)
    return log_likelihood(task, run.theta, run.ys, run.xis)


def check_additive_noise(task: Task, *, key: PRNGKeyArray, samples: int = 64) -> None:
    """Refuse a false claim of `additive_noise`: d/dξ log p(y(ξ) | θ, ξ) must vanish at fixed θ and noise, state by state.

    It is taken along the first `CHECKED_STEPS` steps of random designs, so that noise whose size depends on an earlier outcome or
    design is seen too, and in unconstrained designs, which are of order one whatever the units. samples · 2 · 8 NLE at most.
    """
    if not task.additive_noise:
        return
    steps = min(CHECKED_STEPS, task.horizon)

    def slopes(key: PRNGKeyArray) -> tuple[Scalar, Scalar]:
        """The largest slope along the outcomes' own reparameterisation, and at fixed outcomes for comparison."""
        theta = task.prior.sample(key=named(key, "theta"))
        us = jr.normal(named(key, "design"), (steps, task.designs.dim))
        noise = jr.normal(named(key, "noise"), (steps, task.outcome_dim))

        def log_prob(of_outcomes: Array, us: Array) -> Scalar:
            ys = observe(task, theta, task.designs.constrain(of_outcomes), noise)
            return log_likelihood(task, theta, ys, task.designs.constrain(us))

        through, across = jax.grad(log_prob, argnums=(0, 1))(us, us)
        return jnp.abs(through + across).max(), jnp.abs(across).max()

    along, across = once(jax.vmap(slopes))(jr.split(key, samples))
    # Each sample against its own size: one design close to a source must not excuse the others.
    if not jnp.all(along <= 1e-4 * across + 1e-5):
        raise ScorebedError(
            f"the noise of {type(task).__name__} is declared additive, got a likelihood term of up to "
            f"{float(along.max()):.3g}, expected zero. Fix: set additive_noise to False."
        )
