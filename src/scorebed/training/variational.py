"""Training of the variational baselines: VarMarg and VarPost in two stages, as the score is, and
JointVarPost in one.

    VarMarg        η = argmax E log q_η(y, ξ) on a sampler's designs,
                   then φ = argmax E[log p(y | θ, ξ) − log q_η(y | ξ)]
    VarPost        η = argmax E log q_η(z | y, ξ) on a sampler's designs,
                   then φ = argmax E[log q_η(z | y, ξ) − log N(z; 0, I)]
    JointVarPost   η, φ = argmax of the same, on experiments of the policy itself
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import optax
from jaxtyping import PRNGKeyArray, PyTree, Scalar

from scorebed._sharding import shard_batch
from scorebed.densities.flow_marginal import MarginalDensity
from scorebed.densities.mixture_posterior import PosteriorDensity
from scorebed.estimators.variational import marginal_surrogate, posterior_surrogate
from scorebed.keys import named
from scorebed.policies.base import Policy
from scorebed.policies.random import RandomDesigns
from scorebed.rollout import draw_noise, simulate
from scorebed.samplers.base import DesignSampler
from scorebed.tasks.base import Task
from scorebed.training.clipping import clip_per_trajectory
from scorebed.training.fit import Gradient, Loss, Terms, gradient_of


def marginal_loss(static: PyTree, task: Task, *, batch: int) -> Loss:
    """Minus the log-likelihood of a marginal on `batch` experiments of its own sampler. batch·T NLE
    a step, as simulations.

    There is no place for the rollouts of a policy: a joint flow takes off the density of designs
    that were drawn before the data."""

    def loss(params: PyTree, key: PRNGKeyArray) -> Terms:
        density = eqx.combine(params, static)

        def one(key: PRNGKeyArray) -> Scalar:
            run = simulate(task, RandomDesigns(density.sampler), key=key)
            return density.objective(run.ys, run.xis)

        return {"nll": -jax.vmap(one)(shard_batch(jr.split(key, batch))).mean()}

    return loss


def posterior_loss(
    static: PyTree, task: Task, sampler: DesignSampler, *, batch: int, policy: Policy | None = None
) -> Loss:
    """Minus the lower bound of the EIG on `batch` experiments of the sampler. batch·T NLE a step,
    as simulations.

    Where a `policy` is given half of them are its own: it sees z only through the data, so the
    posterior is the same."""
    sources: list[tuple[Policy, int]] = [
        (RandomDesigns(sampler), batch if policy is None else batch - batch // 2)
    ]
    sources += [] if policy is None else [(policy, batch // 2)]

    def loss(params: PyTree, key: PRNGKeyArray) -> Terms:
        density = eqx.combine(params, static)
        totals = [
            count * _lower_bound(task, density, source, batch=count, key=named(key, "runs", i))
            for i, (source, count) in enumerate(sources)
            if count
        ]
        return {"lower bound": -jnp.stack(totals).sum() / batch}

    return loss


def policy_loss(
    static_part: PyTree, task: Task, density: MarginalDensity | PosteriorDensity, *, batch: int
) -> Loss:
    """Minus the bound that the density gives, averaged over `batch` trajectories of the policy.
    batch·T NLE a step.
    """

    def loss(params: PyTree, key: PRNGKeyArray) -> Terms:
        policy = eqx.combine(params, static_part)
        if isinstance(density, PosteriorDensity):
            return {"surrogate": -_lower_bound(task, density, policy, batch=batch, key=key)}
        return {"surrogate": -_upper_bound(task, density, policy, batch=batch, key=key)}

    return loss


def policy_gradient(
    static_part: PyTree,
    task: Task,
    density: MarginalDensity | PosteriorDensity,
    *,
    batch: int,
    trajectory_clip: float = 0.0,
) -> Gradient:
    """Of minus the bound: the mean over a batch, or with `trajectory_clip` one in which no
    trajectory outweighs the others."""
    if trajectory_clip:
        return clip_per_trajectory(
            policy_loss(static_part, task, density, batch=1), batch=batch, limit=trajectory_clip
        )
    return gradient_of(policy_loss(static_part, task, density, batch=batch))


class PosteriorAndPolicy(eqx.Module):
    """A posterior and the policy it is trained with, or what belongs to them: parameters,
    gradients, labels.
    """

    posterior: Any
    policy: Any


def joint_posterior_optimiser(
    posterior: optax.GradientTransformation, policy: optax.GradientTransformation
) -> optax.GradientTransformation:
    """One optimiser for both, each with its own schedule and clipping."""
    return optax.partition(
        {"posterior": posterior, "policy": policy}, PosteriorAndPolicy("posterior", "policy")
    )


def joint_posterior_loss(static: PosteriorAndPolicy, task: Task, *, batch: int) -> Loss:
    """JointVarPost: minus the lower bound on `batch` rollouts, to be lowered in posterior and
    policy. batch·T NLE a step.

    Both raise the same number, so one batch and one backward pass serve both.
    """

    def loss(params: PosteriorAndPolicy, key: PRNGKeyArray) -> Terms:
        both = eqx.combine(params, static)
        return {
            "lower bound": -_lower_bound(task, both.posterior, both.policy, batch=batch, key=key)
        }

    return loss


def _upper_bound(
    task: Task, density: MarginalDensity, policy: Policy, *, batch: int, key: PRNGKeyArray
) -> Scalar:
    """VarMarg's, from `batch` trajectories of a policy."""

    def one(key: PRNGKeyArray) -> Scalar:
        theta = task.prior.sample(key=named(key, "theta"))
        return marginal_surrogate(
            task, density, policy, theta, draw_noise(task, policy, key=named(key, "noise"))
        )

    return jax.vmap(one)(shard_batch(jr.split(key, batch))).mean()


def _lower_bound(
    task: Task, density: PosteriorDensity, policy: Policy, *, batch: int, key: PRNGKeyArray
) -> Scalar:
    """VarPost's, from `batch` trajectories of a policy."""

    def one(key: PRNGKeyArray) -> Scalar:
        z = jr.normal(named(key, "theta"), (task.prior.dim,))
        return posterior_surrogate(
            task, density, policy, z, draw_noise(task, policy, key=named(key, "noise"))
        )

    return jax.vmap(one)(shard_batch(jr.split(key, batch))).mean()
