"""Policies trained on contrastive estimates of the EIG: the baselines PCE, NMC and MLMC, as losses
for `fit`.

    loss = −1/N Σ_n PCE(y_n, ξ_n; θ_n, θ_{n,1:M}), or NMC or MLMC in its place (`estimators/`)

The same key draws the same θ and noise for all of them as for `policy_loss`: methods differ in
their contrastive draws alone."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int, Key, PRNGKeyArray, PyTree, Scalar

from scorebed._sharding import shard_batch
from scorebed.estimators.mlmc import mlmc, mlmc_batch, realised_nle
from scorebed.estimators.pce import nmc, pce, pce_of_interest
from scorebed.keys import named
from scorebed.policies.base import Policy
from scorebed.policies.exploring import in_training
from scorebed.rollout import Noise, draw_noise, log_likelihood, rollout
from scorebed.tasks.base import Task
from scorebed.tasks.nuisance import has_nuisance
from scorebed.training.fit import Loss, Terms


def pce_loss(static_part: PyTree, task: Task, *, batch: int, inner: int) -> Loss:
    """Minus the PCE bound, averaged over `batch` trajectories. batch·`contrastive_terms`·T NLE a
    step.
    """
    estimator = pce_of_interest if has_nuisance(task) else pce
    return _mean_of(estimator, pce.__name__, static_part, task, batch=batch, inner=inner)


def nmc_loss(static_part: PyTree, task: Task, *, batch: int, inner: int) -> Loss:
    """Minus the NMC estimate: an *upper* bound goes up, and a policy may exploit its slack. The
    cost of PCE.
    """
    return _mean_of(nmc, nmc.__name__, static_part, task, batch=batch, inner=inner)


def mlmc_loss(
    static_part: PyTree, task: Task, *, batch: int, base: int = 1, cap: int = 12, tau: float = 1.1
) -> Loss:
    """Minus the NMC estimate with base·2^cap inner samples, without bias, at the cost of
    `expected_nle`. The paper's defaults.
    """

    def loss(params: PyTree, key: PRNGKeyArray) -> Terms:
        policy = eqx.combine(params, static_part)
        thetas, noises = jax.vmap(lambda k: _draw(task, policy, k))(
            shard_batch(jr.split(key, batch))
        )
        draws = named(key, "contrast")
        values = mlmc_batch(task, policy, thetas, noises, base=base, cap=cap, tau=tau, key=draws)
        return {mlmc.__name__: -values.mean()}

    return loss


def mlmc_nle(
    task: Task,
    keys: Key[Array, "*B"],
    *,
    batch: int,
    base: int = 1,
    cap: int = 12,
    tau: float = 1.1,
) -> Int[np.ndarray, "*B"]:
    """What `mlmc_loss` costs at these keys."""
    draws = jax.vmap(lambda key: named(key, "contrast"))(keys.reshape(-1))
    return realised_nle(task, draws.reshape(keys.shape), batch=batch, base=base, cap=cap, tau=tau)


def contrastive_terms(task: Task, inner: int) -> int:
    """Likelihoods of a history that one value of PCE or NMC takes: θ_0 and M others, and M for a
    first term with nuisances.
    """
    return 1 + inner * (2 if has_nuisance(task) else 1)


def _mean_of(
    estimator: Callable[..., Scalar],
    name: str,
    static_part: PyTree,
    task: Task,
    *,
    batch: int,
    inner: int,
) -> Loss:
    def loss(params: PyTree, key: PRNGKeyArray) -> Terms:
        policy = in_training(eqx.combine(params, static_part), task.designs)

        def one(key: PRNGKeyArray) -> tuple[Scalar, Scalar | None]:
            theta, noise = _draw(task, policy, key)
            of = (
                jr.normal(named(key, "theta"), theta.shape)
                if estimator is pce_of_interest
                else theta
            )
            value = estimator(task, policy, of, noise, inner=inner, key=named(key, "contrast"))
            return value, _log_chance(task, policy, theta, noise)

        values, log_p = jax.vmap(one)(shard_batch(jr.split(key, batch)))
        return {name: -(values if log_p is None else values + jumps(values, log_p)).mean()}

    return loss


def jumps(values: Float[Array, " B"], log_p: Float[Array, " B"]) -> Float[Array, " B"]:
    """Zero, with the gradient that outcomes have by their probabilities where they jump from one
    value to another: (value − that of the other trajectories, on average) · ∇ log p(y | θ, ξ).
    """
    count = len(values)
    others = (values.sum() - values) / max(count - 1, 1)
    advantage = jax.lax.stop_gradient(values - others if count > 1 else values)
    return advantage * (log_p - jax.lax.stop_gradient(log_p))


def _log_chance(
    task: Task, policy: Policy, theta: Float[Array, " k"], noise: Noise
) -> Scalar | None:
    """log of the probability of what jumps: outcomes that are finitely many, p(y | θ, ξ), and names
    among designs; None where nothing does.
    """
    if not (task.discrete_outcomes or task.designs.named):
        return None
    run = rollout(task, policy, theta, noise)
    names = policy.log_choices(jax.lax.stop_gradient(run.ys), run.xis, noise.policy).sum()
    return names + log_likelihood(task, theta, run.ys, run.xis) if task.discrete_outcomes else names


def _draw(task: Task, policy: Policy, key: PRNGKeyArray) -> tuple[Float[Array, " k"], Noise]:
    theta = task.prior.sample(key=named(key, "theta"))
    return theta, draw_noise(task, policy, key=named(key, "noise"))
