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
from scorebed.policies.base import Policy
from scorebed.rollout import Noise, Trajectory, log_likelihood, rollout
from scorebed.scores.base import Score
from scorebed.tasks.base import Task


def adaptive(task: Task, score: Score, policy: Policy, theta: Float[Array, " k"], noise: Noise) -> Scalar:
    """log p − ⟨stop(s_y), y⟩ − ⟨stop(s_ξ), ξ⟩, for any policy. T NLE, and those of the score."""
    run = rollout(task, policy, theta, noise)
    s_y, s_xi = jax.lax.stop_gradient(score(*jax.lax.stop_gradient((run.ys, run.xis))))
    return _likelihood_term(task, run) - (s_y * run.ys).sum() - (s_xi * run.xis).sum()


def static(task: Task, score: Score, policy: Policy, theta: Float[Array, " k"], noise: Noise) -> Scalar:
    """The same without the Fisher term, which has mean zero when designs do not depend on the data. The same cost."""
    run = rollout(task, policy, theta, noise)
    s_y = jax.lax.stop_gradient(score(*jax.lax.stop_gradient((run.ys, run.xis))).y)
    return _likelihood_term(task, run) - (s_y * run.ys).sum()


def _likelihood_term(task: Task, run: Trajectory) -> Scalar:
    """log p(y|ξ,θ), whose total derivative is zero for every sample under additive noise."""
    if task.additive_noise:
        return jnp.zeros((), run.ys.dtype)
    return log_likelihood(task, run.theta, run.ys, run.xis)


def check_additive_noise(task: Task, *, key: PRNGKeyArray, samples: int = 64) -> None:
    """Refuse a false claim of `additive_noise`: d/dξ log p(y(ξ) | θ, ξ) must vanish at fixed θ, state and noise."""
    if not task.additive_noise:
        return

    def slopes(key: PRNGKeyArray) -> tuple[Float[Array, " dx"], Float[Array, " dx"]]:
        """d/dξ along the outcome's own reparameterisation, and at a fixed outcome for comparison."""
        theta = task.prior.sample(key=named(key, "theta"))
        state = task.initial(theta)
        xi = task.designs.constrain(jr.normal(named(key, "design"), (task.designs.dim,)))
        noise = jr.normal(named(key, "noise"), (task.outcome_dim,))
        along = jax.grad(lambda xi: task.log_prob(task.outcome(theta, state, xi, noise), theta, state, xi))(xi)
        return along, jax.grad(task.log_prob, argnums=3)(task.outcome(theta, state, xi, noise), theta, state, xi)

    along, across = jax.vmap(slopes)(jr.split(key, samples))
    worst = jnp.abs(along).max()
    if not worst <= 1e-3 * jnp.abs(across).max() + 1e-6:
        raise ScorebedError(
            f"the noise of {type(task).__name__} is declared additive, got a likelihood term of up to {float(worst):.3g}, "
            "expected zero. Fix: set additive_noise to False."
        )
