"""The EIG with a learned density in place of the intractable one (Foster et al., 2019, 2020).

    VarMarg   E[log p(y | θ, ξ) − log q(y | ξ)]        ≥ I,   by E KL(p(y | ξ) ‖ q(y | ξ))
    VarPost   E[log q(z | y, ξ) − log N(z; 0, I)]      ≤ I,   by E KL(p(z | y, ξ) ‖ q(z | y, ξ))

with θ = f(z). Each function maps one trajectory to the integrand: its mean is the bound, and the
gradient in the policy flows through (y, ξ) into q as well.

When wrong: VarMarg gives an *upper* bound to be raised, and a policy may raise it by going where q
is bad. For adaptive designs it is a bound only if q(y | ξ(y)) is a density of y, as p(y | ξ(y)) is;
a flow in which y_t depends on later designs is not."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Scalar

from scorebed.densities.flow_marginal import MarginalDensity
from scorebed.densities.mixture_posterior import PosteriorDensity
from scorebed.inference.gaussian_mixture import standard_normal_log_prob
from scorebed.policies.base import Policy
from scorebed.rollout import Noise, Trajectory, log_likelihood, price, rollout
from scorebed.tasks.base import Task
from scorebed.tasks.nuisance import of_interest, refuse_nuisance


def marginal_surrogate(
    task: Task, density: MarginalDensity, policy: Policy, theta: Float[Array, " k"], noise: Noise
) -> Scalar:
    """log p(y | θ, ξ) − log q(y | ξ). T NLE."""
    refuse_nuisance(task, "VarMarg", "use the score or VarPost.")
    run = rollout(task, policy, theta, noise)
    log_p = log_likelihood(task, theta, run.ys, run.xis)
    if task.additive_noise:
        # Its total derivative is zero for every sample, but as the sum of two large halves, which
        # cancel only to rounding.
        log_p = jax.lax.stop_gradient(log_p)
    return log_p - density.log_prob(run.ys, run.xis) - price(task, run.xis)


def posterior_surrogate(
    task: Task, density: PosteriorDensity, policy: Policy, z: Float[Array, " k"], noise: Noise
) -> Scalar:
    """log q(z | y, ξ) − log N(z; 0, I) at θ = f(z). No likelihood is evaluated; the paper charges T
    NLE for the simulation.
    """
    run = rollout(task, policy, task.prior.from_latent(z), noise)
    return posterior_gain(task, density, z, run) - price(task, run.xis)


def posterior_gain(
    task: Task, density: PosteriorDensity, z: Float[Array, " k"], run: Trajectory
) -> Scalar:
    """log q(z | y, ξ) − log N(z; 0, I) of the parameters of interest."""
    z = z[jnp.asarray(of_interest(task))]
    return density.log_prob(z, run.ys, run.xis) - standard_normal_log_prob(z)
