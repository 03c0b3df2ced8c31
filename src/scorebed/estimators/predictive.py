"""The EIG gradient of tasks with finitely many outcomes, with a predictive distribution in place of
the intractable one.

With y fixed, a history's log-ratio is

    R = Σ_t r_t(y_t),   r_t(y) = log p(y | ξ_t, θ, h_{t−1}) − log q(y | ξ_t, h_{t−1})

and E R is the EIG for q = p, else an upper bound, larger by E KL(p(y | ξ) ‖ q(y | ξ)). Outcomes are
drawn from p(y | θ, ξ(φ)), so its gradient is that of the probabilities:

    ∇ I = E Σ_t { Σ_y ∇p_t(y) r_t(y) + ∇log p_t(y_t) (Σ_{s>t} r̄_s − b_t) }
    r̄_s = Σ_y p_s(y) r_s(y)

Step t is enumerated over its own outcomes, later steps enter as a reward. The baseline b_t may
depend on all but y_t. A control variate is added, −Σ_y p_t(y) ∂log q(y | ξ_t, h_{t−1})/∂ξ_t ∇ξ_t,
whose mean is zero for the exact predictive: it more than halves the variance that draws of θ leave.
For another q it draws designs to where q is bad; so does the bound itself, which is why policies
are chosen by lower bounds and q goes on learning from their experiments.

Trees of few histories are enumerated as a whole: ∇ I = E_θ Σ_h ∇p(h | θ) R(h)."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Scalar

from scorebed.densities.predictive import Predictive, before
from scorebed.policies.base import Memory, Policy
from scorebed.rollout import Trajectory, step_log_probs
from scorebed.tasks.base import Task

RIDGE = 1e-2  # of the number of trajectories that a baseline is fitted to


class Steps(NamedTuple):
    """Of one experiment, step by step: the probability of what happened and the expected reward,
    both differentiable in the designs, and numbers that are known before the outcome.
    """

    log_p: Float[Array, " T"]
    """log p(y_t | ξ_t, θ, h_{t−1})."""
    reward: Float[Array, " T"]
    """r̄_t, less what the design costs; its gradient is Σ_y ∇p_t(y) r_t(y), less that cost's and the
    control variate.
    """
    known: Float[Array, "T n"]
    """What a baseline may look at."""


def enumerated_steps(task: Task, predictive: Predictive, run: Trajectory) -> Steps:
    """An experiment, with the next outcome enumerated at every step. 2·T·|Y| NLE with those of the
    data, and those of the predictive.
    """
    log_p = step_log_probs(task, run.theta, run.ys, run.xis)
    chances, log_q = jnp.exp(log_p), predicted(predictive, run.ys, run.xis)
    rewards = jax.lax.stop_gradient(log_p - log_q)
    control = (jax.lax.stop_gradient(chances) * _zero(log_q)).sum(-1)
    reward = (chances * rewards).sum(-1) - control - step_prices(task, run.xis)
    log_q = jax.lax.stop_gradient(log_q)
    rows = jax.vmap(task.outcome_index)(run.ys)[:, None]
    taken = jnp.take_along_axis(log_p, rows, axis=1)[:, 0]
    told = jnp.take_along_axis(rewards, rows, axis=1)[:, 0]
    uncertain = -(jnp.exp(log_q) * log_q).sum(-1)
    known = jnp.stack([before(told), reward, uncertain], axis=-1)
    return Steps(taken, reward, jax.lax.stop_gradient(known))


def predicted(
    predictive: Predictive, ys: Float[Array, "T dy"], xis: Float[Array, "T dx"]
) -> Float[Array, "T Y"]:
    """log q(y | ξ_t, h_{t−1}), with a gradient in the design of each step alone."""
    arrays, rest = eqx.partition(predictive, eqx.is_array)
    still: Predictive = eqx.combine(jax.lax.stop_gradient(arrays), rest)
    return still.given(*jax.lax.stop_gradient((ys, xis)), xis)


def _zero(values: Array) -> Array:
    """Zero, with the gradient of the values."""
    return values - jax.lax.stop_gradient(values)


def step_prices(task: Task, xis: Float[Array, "T dx"]) -> Float[Array, " T"]:
    """What each design costs, in nats."""
    if task.cost is None:
        return jnp.zeros(len(xis), xis.dtype)
    return task.cost.price * jax.vmap(task.cost.of)(xis)


def surrogate(steps: Steps, baseline: Float[Array, " T"]) -> Scalar:
    """The scalar of one experiment whose gradient is the estimate: `steps` and the baseline of the
    rewards that follow each step. Its value is the reward of the experiment, R̄.
    """
    later = jax.lax.stop_gradient(steps.reward[::-1].cumsum()[::-1] - steps.reward - baseline)
    return (steps.reward + later * _zero(steps.log_p)).sum()


def fitted_baselines(
    known: Float[Array, "B T n"], rewards: Float[Array, "B T"]
) -> Float[Array, "B T"]:
    """Baselines of the rewards that follow each step, by ridge regression on what is known before
    its outcome: those of each half of a batch are fitted to the other half, so that none knows the
    outcomes of its own experiment, and the gradient stays unbiased.
    """
    later = rewards[:, ::-1].cumsum(1)[:, ::-1] - rewards
    half = len(known) // 2
    if half < 2:
        return jnp.zeros_like(rewards)
    halves = (slice(None, half), slice(half, None))
    found = [
        jax.vmap(_ridge, in_axes=(1, 1, 1), out_axes=1)(known[other], later[other], known[own])
        for own, other in (halves, halves[::-1])
    ]
    return jax.lax.stop_gradient(jnp.concatenate(found))


def choice_terms(
    log_choices: Float[Array, "B T"], known: Float[Array, "B T n"], rewards: Float[Array, "B T"]
) -> Float[Array, " B"]:
    """Zero, with the gradient of names that were drawn: Σ_t ∇log π(name_t) (Σ_{s≥t} r̄_s − b_t).
    `known` is what is known before the design.
    """
    shifted = jnp.concatenate([jnp.zeros_like(rewards[:, :1]), rewards], axis=1)
    before_first = jnp.concatenate([known, known[:, -1:]], axis=1)
    baselines = fitted_baselines(before_first, shifted)[:, :-1]
    later = jax.lax.stop_gradient(rewards[:, ::-1].cumsum(1)[:, ::-1] - baselines)
    return (later * _zero(log_choices)).sum(1)


def _ridge(
    known: Float[Array, "n f"], values: Float[Array, " n"], at: Float[Array, "m f"]
) -> Float[Array, " m"]:
    """Predictions at other places, held within the values seen."""
    mean, spread = known.mean(0), known.std(0) + 1e-6
    x, other = (known - mean) / spread, jnp.clip((at - mean) / spread, -4, 4)
    middle = values.mean()
    gram = x.T @ x + RIDGE * len(x) * jnp.eye(x.shape[1], dtype=x.dtype)
    weights = jnp.linalg.solve(gram, x.T @ (values - middle))
    return jnp.clip(middle + other @ weights, values.min(), values.max())


def tree(
    task: Task,
    predictive: Predictive,
    policy: Policy,
    thetas: Float[Array, "B k"],
    noise: Float[Array, "T n"],
    histories: Float[Array, "H T dy"],
) -> Scalar:
    """Σ_h p(h | θ) R(h) over all histories of outcomes, averaged over θ: its gradient is the
    estimate. B·|Y|^T·T·|Y| NLE, and |Y|^T times those of the predictive.
    """
    xis = jax.vmap(lambda ys: designs_along(policy, ys, noise))(histories)

    def one(ys: Array, xis: Array) -> Scalar:
        rows = jax.vmap(task.outcome_index)(ys)[:, None]
        log_q = jnp.take_along_axis(predicted(predictive, ys, xis), rows, axis=1).sum()

        def of_theta(theta: Array) -> Scalar:
            each = step_log_probs(task, theta, ys, xis)
            log_p = jnp.take_along_axis(each, rows, axis=1).sum()
            reward = jax.lax.stop_gradient(log_p) - log_q - step_prices(task, xis).sum()
            return jnp.exp(log_p) * reward

        return jax.vmap(of_theta)(thetas).mean()

    return jax.vmap(one)(histories, xis).sum()


def designs_along(
    policy: Policy, ys: Float[Array, "T dy"], noise: Float[Array, "T n"]
) -> Float[Array, "T dx"]:
    """The designs that a policy chooses as these outcomes come in."""

    def step(memory: Memory, data: tuple[Array, Array]) -> tuple[Memory, Array]:
        y, eps = data
        xi = policy.design(memory, eps)
        return policy.update(memory, xi, y), xi

    return jax.lax.scan(step, policy.init(), (ys, noise))[1]
