"""Stage 2 of the paper's Algorithm 1: train policies with a fixed score, many restarts at once.

    ∇̂ = 1/N Σ_n [d/dφ log p(y_n | ξ_n, θ_n) − s(y_n, ξ_n) ∂(y_n, ξ_n)/∂φ],   (y, ξ) = g(ε, θ, φ)

`train_policies` trains a batch of restarts by whatever estimates the gradient of the EIG, a score
first of all; `best_policy` chooses among them on common draws.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from jaxtyping import PRNGKeyArray, PyTree

from scorebed._jit import jit_once
from scorebed._sharding import shard_batch
from scorebed.bounds.contrastive import Contrastive
from scorebed.bounds.gain import Gain
from scorebed.densities.flow_marginal import MarginalDensity
from scorebed.densities.mixture_posterior import PosteriorDensity
from scorebed.densities.predictive import Predictive
from scorebed.errors import require
from scorebed.estimators.score import adaptive, check_additive_noise, static
from scorebed.keys import named
from scorebed.policies import make_policy
from scorebed.policies.base import Policy
from scorebed.rollout import draw_noise
from scorebed.samplers.spaced import spaced_designs
from scorebed.scores.base import Score
from scorebed.tasks.base import Task
from scorebed.training.clipping import clip_per_trajectory
from scorebed.training.dropped import mean_of_finite
from scorebed.training.fit import Gradient, Loss, Terms, gradient_of, group_size, member
from scorebed.training.predictive import policy_gradient as predictive_gradient
from scorebed.training.stage import BatchStage, FixedCost, carry_out
from scorebed.training.variational import policy_gradient as density_gradient
from scorebed.training.watched import Moment, OnBlock

# `estimate(task, policy, theta, noise, *, key)`: one trajectory → a scalar whose gradient in the
# policy is that of the EIG.
Estimator = Callable[..., Any]
# What stands for the intractable terms of the EIG.
Guide: TypeAlias = Score | MarginalDensity | PosteriorDensity | Predictive | Estimator


INSIDE = 0.9  # of the way from the middle of a box to its limits


def policy_optimiser(
    schedule: optax.Schedule | float, *, clip: float = 1.0, beta1: float = 0.9, beta2: float = 0.999
) -> optax.GradientTransformation:
    """Adam behind clipping by the global norm, as the paper trains every policy."""
    return optax.chain(optax.clip_by_global_norm(clip), optax.adam(schedule, b1=beta1, b2=beta2))


def faster_noise(factor: float) -> optax.GradientTransformation:
    """Larger steps for the scale of a policy's noise: for the leaves that it names in
    `noise_leaves`.

    Adam moves every parameter by about its rate a step: at 5·10⁻⁴ the noise of a policy that starts
    at σ = 1 is still 0.95 after a hundred steps, and what it costs in information cannot be trained
    away."""

    def is_policy(part: Any) -> bool:
        return isinstance(part, Policy)

    def scale(part: Any) -> Any:
        if not is_policy(part):
            return part
        names = {f".{name}" for name in part.noise_leaves}
        return jax.tree_util.tree_map_with_path(
            lambda path, leaf: factor * leaf if jax.tree_util.keystr(path[-1:]) in names else leaf,
            part,
        )

    return optax.stateless(lambda updates, _: jax.tree.map(scale, updates, is_leaf=is_policy))


def policy_loss(static_part: PyTree, task: Task, score: Score, *, batch: int) -> Loss:
    """Minus the EIG surrogate, averaged over `batch` trajectories. batch·T NLE a step, and those of
    the score. Trajectories at which the score is not finite are dropped and counted.
    """

    def loss(params: PyTree, key: PRNGKeyArray) -> Terms:
        policy = eqx.combine(params, static_part)
        surrogate = adaptive if policy.adaptive else static

        def one(key: PRNGKeyArray) -> Any:
            theta = task.prior.sample(key=named(key, "theta"))
            return surrogate(
                task, score, policy, theta, draw_noise(task, policy, key=named(key, "noise"))
            )

        return mean_of_finite({"surrogate": -jax.vmap(one)(shard_batch(jr.split(key, batch)))})

    return loss


def estimator_loss(static_part: PyTree, task: Task, estimate: Estimator, *, batch: int) -> Loss:
    """Minus any estimator of the EIG, averaged over `batch` trajectories; it costs whatever the
    estimator does.
    """

    def loss(params: PyTree, key: PRNGKeyArray) -> Terms:
        policy = eqx.combine(params, static_part)

        def one(key: PRNGKeyArray) -> Any:
            theta, noise = (
                task.prior.sample(key=named(key, "theta")),
                draw_noise(task, policy, key=named(key, "noise")),
            )
            return estimate(task, policy, theta, noise, key=named(key, "estimate"))

        return {"estimate": -jax.vmap(one)(shard_batch(jr.split(key, batch))).mean()}

    return loss


def policy_gradient(
    static_part: PyTree, task: Task, score: Score, *, batch: int, trajectory_clip: float = 0.0
) -> Gradient:
    """Of minus the EIG: the unbiased mean over a batch, or with `trajectory_clip` one in which no
    trajectory outweighs the others.
    """
    if trajectory_clip:
        return clip_per_trajectory(
            policy_loss(static_part, task, score, batch=1), batch=batch, limit=trajectory_clip
        )
    return gradient_of(policy_loss(static_part, task, score, batch=batch))


def fresh_policies(
    make: Callable[..., Policy], task: Task, count: int, *, key: PRNGKeyArray
) -> Policy:
    """A batch of untrained policies, each made as `make(task, key=key)`."""
    each = eqx.filter_vmap(lambda k: make(task, key=k))
    return jit_once(each)(jr.split(key, count))


def static_starts(
    make: Callable[..., Policy], task: Task, count: int, *, key: PRNGKeyArray
) -> Policy:
    """A batch of static designs to train: the first spread evenly, a little inside of any limits,
    where the gradient is not yet zero; the others as they are made. Designs that are tied together,
    or have names, start as they are made, all of them.
    """
    batch = fresh_policies(make, task, count, key=key)
    if task.feasible is not None or task.designs.named:
        return batch
    xis = spaced_designs(task)
    if task.designs.bounded:
        low, high = (jnp.asarray(end, xis.dtype) for end in task.designs.limits)
        middle = 0.5 * (low + high)
        xis = middle + INSIDE * (xis - middle)
    us = task.designs.unconstrain(xis)
    spread: Policy = eqx.tree_at(
        lambda static: static.us, batch, replace_fn=lambda a: a.at[0].set(us)
    )
    return spread


def gradient_by(
    task: Task, guide: Guide, *, batch: int, trajectory_clip: float = 0.0, key: PRNGKeyArray
) -> Callable[[PyTree], Gradient]:
    """The gradient of minus the EIG by a score, a density or any other estimator, given what of a
    policy is not trained. A false claim of additive noise is refused.
    """
    clipping: dict[str, Any] = {"batch": batch, "trajectory_clip": trajectory_clip}
    if isinstance(guide, Score | MarginalDensity | PosteriorDensity):
        check_additive_noise(task, key=named(key, "check"))
    if isinstance(guide, Score):
        return lambda rest: policy_gradient(rest, task, guide, **clipping)
    if isinstance(guide, MarginalDensity | PosteriorDensity):
        return lambda rest: density_gradient(rest, task, guide, **clipping)
    if isinstance(guide, Predictive):
        return predictive_gradient(task, guide, **clipping)
    require(
        not trajectory_clip,
        "the clipping of trajectories",
        got=f"trajectory_clip={trajectory_clip} and another estimator",
        expected="a score or a density",
        fix="leave it out.",
    )
    return lambda rest: gradient_of(estimator_loss(rest, task, guide, batch=batch))


class TrainedPolicies(NamedTuple):
    """A batch of policies, and how their training went: one `Moment` for every block of steps."""

    policies: Policy
    history: Sequence[Moment]


def train_policies(
    task: Task,
    guide: Guide,
    policies: Policy | str = "dad",
    *,
    count: int = 1,
    steps: int,
    batch: int = 256,
    optimiser: optax.GradientTransformation | None = None,
    learning_rate: float = 2e-4,
    decay: float = 0.0,
    trajectory_clip: float = 0.0,
    estimate: Callable[[Policy], float] | None = None,
    every: int = 0,
    patience: int = 0,
    halvings: int = 0,
    on_block: OnBlock = lambda _: None,
    key: PRNGKeyArray,
) -> TrainedPolicies:
    """Train policies of one architecture at once: what `scorebed train` does second.

    Arguments:
        task: the experiment.
        guide: what stands for the intractable terms of the EIG: a trained score, a density, or any
            estimator `estimate(task, policy, theta, noise, *, key)` of one trajectory.
        policies: a name in `POLICIES`, or an untrained batch.
        count: number of policies, where they are named.
        steps: number of training steps.
        batch: simulated experiments per step.
        optimiser: Adam with a cosine decay of `learning_rate` to a twentieth if left out.
        learning_rate: first rate of that optimiser.
        decay: of the moving average of the parameters that is returned; 0 for the last ones.
        trajectory_clip: longest gradient of one trajectory, in medians over its batch
            (`clip_per_trajectory`); 0 for the unbiased mean.
        estimate: a lower bound of a policy's EIG to watch; the best parameters by it are kept.
        every: steps between two estimates.
        patience: steps without progress after which training ends; 0 for all steps.
        halvings: times that the worse half of the policies is stopped.
        on_block: called with a `Block` after every block of steps.
        key: the random key.

    Returns:
        The batch of policies and its history.

    Raises:
        NonFiniteError: after five steps in a row whose gradient is not finite.
        UnknownNameError: if there is no policy of that name.
        InvalidValueError: if the task's claim of additive noise is false, or trajectories of a
            guide that is neither a score nor a density are to be clipped.

    Example:
        With `task` and `score` as in the example of `train_score`:

        >>> trained = sb.train_policies(task, score, "static", steps=4, batch=8, key=jr.key(1))
    """

    def make() -> Policy:
        if not isinstance(policies, str):
            return policies
        name = policies
        return fresh_policies(
            lambda task, *, key: make_policy(name, task, key=key),
            task,
            count,
            key=named(key, "init"),
        )

    stage = BatchStage(
        name="policies",
        steps=steps,
        count=count if isinstance(policies, str) else group_size(policies),
        make=make,
        gradient_for=gradient_by(
            task, guide, batch=batch, trajectory_clip=trajectory_clip, key=key
        ),
        optimiser=optimiser
        or policy_optimiser(optax.cosine_decay_schedule(learning_rate, steps, 0.05)),
        decay=decay,
        estimate=estimate,
        every=every,
        patience=patience,
        halvings=halvings,
        costs=FixedCost(0),
        key=named(key, "train"),
    )
    return TrainedPolicies(*carry_out(stage, on_block=on_block))


class BestPolicy(NamedTuple):
    """The best of several policies, its number among them, and the lower bounds of all; NaN for
    those that were not compared.
    """

    policy: Policy
    number: int
    lower: Sequence[float]


def best_policy(
    task: Task,
    policies: Policy | Sequence[Policy],
    *,
    estimate: Callable[[Policy], float] | None = None,
    outer: int = 256,
    inner: int = 100_000,
    on_policy: Callable[[int, float], None] = lambda *_: None,
    key: PRNGKeyArray,
) -> BestPolicy:
    """Choose the policy with the largest lower bound, all of them on the same draws.

    Arguments:
        task: the experiment.
        policies: a batch, as `train_policies` gives it, or a sequence.
        estimate: the bound to choose by; sPCE less the cost of the designs if left out.
        outer: experiments of that bound.
        inner: contrastive parameters of that bound.
        on_policy: called with the number of policies compared and the largest bound so far.
        key: the random key; to report a bound of the chosen policy, take another one.

    Returns:
        The policy, its number and the bounds of all. A bound that is not finite never wins, unless
        there is no other.

    Raises:
        NoDensityError: if the task has no density and `estimate` is left out.

    Example:
        >>> two = [sb.make_policy("static", task, key=jr.key(i)) for i in range(2)]
        >>> best = sb.best_policy(task, two, outer=32, inner=100, key=jr.key(2))
        >>> best.lower[best.number] == max(best.lower)
        True
    """
    each = (
        [member(policies, i) for i in range(group_size(policies))]
        if isinstance(policies, Policy)
        else list(policies)
    )
    gain = estimate or Gain(Contrastive(), task, outer=outer, inner=inner, key=key)
    if len(each) == 1:
        return BestPolicy(each[0], 0, [math.nan])
    lower: list[float] = []
    for policy in each:
        lower.append(gain(policy))
        on_policy(len(lower), max((x for x in lower if not math.isnan(x)), default=-math.inf))
    number = max(range(len(each)), key=lambda i: float(np.nan_to_num(lower[i], nan=-np.inf)))
    return BestPolicy(each[number], number, lower)
