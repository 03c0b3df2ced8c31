"""Training for tasks with finitely many outcomes, in two stages as by a score.

    stage 1   q = argmin E Σ_t Σ_y −p(y | ξ_t, θ, h_{t−1}) log q(y | ξ_t, h_{t−1}),   on a sampler's
              designs: cross-entropy, whose minimiser is the predictive p(y | ξ_t, h_{t−1})
    stage 2   the gradient of `estimators/predictive.py`

The target of stage 1 is the distribution given θ, not one outcome of it: the same minimiser, with
less noise."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import optax
from jaxtyping import Array, PRNGKeyArray, PyTree, Scalar

from scorebed._jit import jit_once
from scorebed._sharding import shard_batch
from scorebed.densities.predictive import Predictive, all_histories, make_predictive
from scorebed.estimators.predictive import (
    Steps,
    choice_terms,
    enumerated_steps,
    fitted_baselines,
    surrogate,
    tree,
)
from scorebed.estimators.trajectory_clip import clip_factors
from scorebed.keys import named
from scorebed.policies.base import Policy
from scorebed.policies.exploring import in_training
from scorebed.policies.random import RandomDesigns
from scorebed.rollout import Trajectory, draw_noise, rollout, simulate, step_log_probs
from scorebed.samplers.base import DesignSampler
from scorebed.samplers.paper import paper_sampler
from scorebed.scores.standardise import standardiser
from scorebed.tasks.base import Task
from scorebed.training.fit import Gradient, Loss, Terms, gradient_of
from scorebed.training.score import score_optimiser
from scorebed.training.stage import SingleStage, carry_out
from scorebed.training.watched import Moment, OnBlock

WHOLE_TREE = 4096  # histories: fewer are enumerated
# Pairs of a history and a θ in a step by whole trees, and draws of a policy's own noise.
PAIRS, LEAST, NOISES = 2**16, 16, 8
MANY = 16  # trajectories of a baseline's fit for each of the coordinates of θ that it looks at


def cross_entropy(
    static: PyTree, task: Task, sampler: DesignSampler, *, batch: int, policy: Policy | None = None
) -> Loss:
    """Of a predictive, on `batch` experiments of the sampler; where a `policy` is given, half of
    them are its own: what it conditions on holds the design, so the minimiser is the same.
    batch·(T·|Y| + those of the predictive) NLE a step.
    """
    sources: list[tuple[Policy, int]] = [
        (RandomDesigns(sampler), batch if policy is None else batch - batch // 2)
    ]
    sources += [] if policy is None else [(policy, batch // 2)]

    def loss(params: PyTree, key: PRNGKeyArray) -> Terms:
        predictive = eqx.combine(params, static)

        def one(source: Policy, key: PRNGKeyArray) -> Scalar:
            run = jax.lax.stop_gradient(simulate(task, source, key=key))
            log_p = step_log_probs(task, run.theta, run.ys, run.xis)
            log_q = predictive(run.ys, run.xis)
            return (jnp.exp(log_p) * (log_p - log_q)).sum()

        def total(source: Policy, count: int, key: PRNGKeyArray) -> Scalar:
            return jax.vmap(lambda k: one(source, k))(shard_batch(jr.split(key, count))).sum()

        each = [total(*source, named(key, "runs", i)) for i, source in enumerate(sources)]
        # In excess of the entropy given θ: the upper bound of the EIG of these designs.
        return {"cross-entropy": jnp.stack(each).sum() / batch}

    return loss


def enumerates(task: Task) -> bool:
    """Whether all histories are enumerated."""
    return not task.designs.named and bool(task.outcome_count**task.horizon <= WHOLE_TREE)


def tree_thetas(task: Task, batch: int) -> int:
    """Draws of θ in a step by whole trees."""
    return min(batch, max(LEAST, PAIRS // task.outcome_count**task.horizon))


def policy_loss(
    static_part: PyTree,
    task: Task,
    predictive: Predictive,
    *,
    batch: int,
    trajectory_clip: float = 0.0,
) -> Loss:
    """Minus the upper bound that the predictive gives, with the gradient of the EIG. NLE a step:
    `policy_nle`.
    """
    if enumerates(task):
        return tree_loss(static_part, task, predictive, batch=batch)
    clip = {"trajectory_clip": trajectory_clip}
    return sampled_loss(static_part, task, predictive, batch=batch, **clip)


def policy_nle(task: Task, predictive_nle: int, *, batch: int) -> int:
    """Likelihood evaluations of one step of a policy."""
    steps = task.horizon * task.outcome_count
    if not enumerates(task):
        return batch * (steps + predictive_nle)
    histories = int(task.outcome_count**task.horizon)
    return histories * (tree_thetas(task, batch) * steps + NOISES * predictive_nle)


def sampled_loss(
    static_part: PyTree,
    task: Task,
    predictive: Predictive,
    *,
    batch: int,
    trajectory_clip: float = 0.0,
) -> Loss:
    """Experiments are simulated, and the next outcome is enumerated at every step.

    Outcomes being fixed, an experiment depends on the policy by its designs alone: the gradient in
    these is taken first, experiment by experiment, where none may be longer than `trajectory_clip`
    times their median (a model that is steep for some θ gives a few of them any length), and is
    then carried on to the policy. 0 clips nothing, which is unbiased.
    """

    def loss(params: PyTree, key: PRNGKeyArray) -> Terms:
        policy = in_training(eqx.combine(params, static_part), task.designs)

        def one(key: PRNGKeyArray) -> tuple[Trajectory, Array, Array]:
            z = jr.normal(named(key, "theta"), (task.prior.dim,))
            noise = draw_noise(task, policy, key=named(key, "noise"))
            run = rollout(task, policy, task.prior.from_latent(z), noise)
            about = jnp.concatenate([z, z**2]) if _few(task, batch) else z[:0]
            about = jnp.broadcast_to(about, (task.horizon, len(about)))
            return run, about, policy.log_choices(run.ys, run.xis, noise.policy)

        runs, about, chosen = jax.vmap(one)(shard_batch(jr.split(key, batch)))

        def reward(xis: Array) -> tuple[Scalar, Steps]:
            def of_one(theta: Array, ys: Array, xis: Array) -> Steps:
                return enumerated_steps(task, predictive, Trajectory(theta, ys, xis))

            steps = jax.vmap(of_one)(runs.theta, runs.ys, xis)
            known = jnp.concatenate([steps.known, about], axis=-1)
            baselines = fitted_baselines(known, jax.lax.stop_gradient(steps.reward))
            return jax.vmap(surrogate)(steps, baselines).sum(), steps

        still = jax.lax.stop_gradient(runs.xis)
        slopes, steps = jax.lax.stop_gradient(jax.grad(reward, has_aux=True)(still))
        if trajectory_clip:
            size = jnp.asarray(task.designs.typical_size, slopes.dtype)
            lengths = jnp.sqrt(((slopes * size) ** 2).sum((1, 2)))
            longest = trajectory_clip * jnp.median(lengths)
            slopes = slopes * (longest * clip_factors(lengths, trajectory_clip))[:, None, None]
        values = steps.reward.sum(1) + (slopes * (runs.xis - still)).sum((1, 2))
        if task.designs.named:
            # A name decides about the reward of its own step too, and its baseline knows less.
            before = jnp.concatenate([steps.known[..., :1], about], axis=-1)
            values = values + choice_terms(chosen, before, steps.reward)
        return {"upper bound": -values.mean()}

    return loss


class PredictiveAndPolicy(eqx.Module):
    """A policy and the predictive that goes on learning on its experiments, or what belongs to
    them: parameters, gradients, labels.
    """

    predictive: Any
    policy: Any


def joint_optimiser(
    predictive: optax.GradientTransformation, policy: optax.GradientTransformation
) -> optax.GradientTransformation:
    """One optimiser for both, each with its own schedule and clipping."""
    first, second = "first", "second"  # labels of the two parts
    return optax.partition({first: predictive, second: policy}, PredictiveAndPolicy(first, second))


def joint_gradient(
    task: Task, sampler: DesignSampler, *, batch: int, trajectory_clip: float = 0.0
) -> Callable[[PredictiveAndPolicy], Gradient]:
    """The policy by its predictive, and the predictive by cross-entropy on the policy's experiments
    and as many of the sampler's: neither sees the other's loss.
    """

    def given(static: PredictiveAndPolicy) -> Gradient:
        def gradient(params: PredictiveAndPolicy, key: PRNGKeyArray) -> tuple[Terms, PyTree]:
            both = eqx.combine(params, static)
            clip = {"trajectory_clip": trajectory_clip}
            of_policy = policy_loss(static.policy, task, both.predictive, batch=batch, **clip)
            terms, policy = gradient_of(of_policy)(params.policy, key)
            learning = cross_entropy(
                static.predictive, task, sampler, batch=batch, policy=both.policy
            )
            more, predictive = gradient_of(learning)(params.predictive, named(key, "learning"))
            return terms | more, PredictiveAndPolicy(predictive, policy)

        return gradient

    return given


def tree_loss(static_part: PyTree, task: Task, predictive: Predictive, *, batch: int) -> Loss:
    """All histories are enumerated, for some θ and some draws of the policy's own noise."""
    histories, count = all_histories(task), tree_thetas(task, batch)

    def loss(params: PyTree, key: PRNGKeyArray) -> Terms:
        policy = eqx.combine(params, static_part)
        noise = jax.vmap(lambda k: policy.sample_noise(task.horizon, key=k))(
            jr.split(named(key, "noise"), NOISES)
        )
        random = noise.shape[-1] > 0  # else one draw is like any other
        noise = noise if random else noise[:1]
        each = -(-count // len(noise))
        zs = jr.normal(named(key, "theta"), (len(noise), each, task.prior.dim))
        thetas = jax.vmap(jax.vmap(task.prior.from_latent))(zs)
        rows = jnp.asarray(histories, zs.dtype)
        values = jax.lax.map(
            lambda both: tree(task, predictive, policy, both[0], both[1], rows), (thetas, noise)
        )
        return {"upper bound": -values.mean()}

    return loss


def policy_gradient(
    task: Task, predictive: Predictive, *, batch: int, trajectory_clip: float = 0.0
) -> Callable[[PyTree], Gradient]:
    """The gradient of minus the EIG, given what of a policy is not trained."""
    how: dict[str, Any] = {"batch": batch, "trajectory_clip": trajectory_clip}
    return lambda rest: gradient_of(policy_loss(rest, task, predictive, **how))


def predictive_maker(
    task: Task, sampler: DesignSampler, *, particles: int, width: int
) -> Callable[[PRNGKeyArray], Predictive]:
    """The untrained predictive of a key, standardised by a pilot of the sampler."""

    def make(key: PRNGKeyArray) -> Predictive:
        standardise = standardiser(task, sampler, key=named(key, "standardise"))
        return make_predictive(
            task, standardise, particles=particles, width=width, key=named(key, "init")
        )

    return make


class TrainedPredictive(NamedTuple):
    """A predictive, and how its loss went: one `Moment` for every block of steps."""

    predictive: Predictive
    history: Sequence[Moment]


def train_predictive(
    task: Task,
    sampler: DesignSampler | None = None,
    *,
    steps: int,
    batch: int = 256,
    particles: int = 32,
    width: int = 128,
    optimiser: optax.GradientTransformation | None = None,
    learning_rate: float = 1e-3,
    decay: float = 0.99,
    on_block: OnBlock = lambda _: None,
    key: PRNGKeyArray,
) -> TrainedPredictive:
    """Learn the predictive distribution of a task with finitely many outcomes: what
    `scorebed train` does first for such a task.

    Arguments:
        task: the experiment; its outcomes are `categories` or `counts`.
        sampler: the distribution of the designs to learn from; the paper's for the task if left
            out.
        steps: number of training steps.
        batch: simulated experiments per step.
        particles: parameters by whose likelihoods an outcome is predicted.
        width: width of the network's hidden layers.
        optimiser: that of `train_score` around `learning_rate` if left out.
        learning_rate: peak rate of that optimiser.
        decay: of the moving average of the parameters, which is what is returned.
        on_block: called with a `Block` after every block of steps.
        key: the random key.

    Returns:
        The predictive and its history; `train_policies` takes it as a guide.

    Raises:
        InvalidValueError: if outcomes are not finitely many.

    Example:
        >>> kind = {"steps": 4, "batch": 8, "particles": 4, "width": 8}
        >>> predictive = sb.train_predictive(threshold, **kind, key=jr.key(0)).predictive
        >>> predictive(jnp.zeros((3, 1)), jnp.ones((3, 1))).shape
        (3, 2)
    """
    chosen = sampler or paper_sampler(task)
    make = predictive_maker(task, chosen, particles=particles, width=width)
    stage = SingleStage(
        name="predictive-0",
        steps=steps,
        make=lambda: jit_once(make)(key),
        loss_for=lambda static: cross_entropy(static, task, chosen, batch=batch),
        optimiser=optimiser or score_optimiser(steps=steps, learning_rate=learning_rate, clip=10.0),
        decay=decay,
        step_nle=0,
        key=named(key, "train"),
    )
    return TrainedPredictive(*carry_out(stage, on_block=on_block))


def _few(task: Task, batch: int) -> bool:
    """Whether a baseline can look at θ: not if it has as many coordinates as there is data."""
    return bool(2 * task.prior.dim * MANY <= batch)
