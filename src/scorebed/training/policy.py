"""Stage 2 of the paper's Algorithm 1: train policies with a fixed score, many restarts at once.

The gradient of one trajectory has heavy tails (a design next to a source has a score thousands of
times the usual one), and the mean over a batch then points wherever its largest member does.
`clip_per_trajectory` limits what one trajectory may say."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from jaxtyping import Array, Key, PRNGKeyArray, PyTree

from scorebed._jit import jit_once
from scorebed._sharding import shard_batch
from scorebed.bounds.contrastive import eig_bounds
from scorebed.errors import require
from scorebed.estimators.score import adaptive, check_additive_noise, static
from scorebed.keys import named
from scorebed.policies import make_policy
from scorebed.policies.base import Policy
from scorebed.policies.constrained import is_static
from scorebed.rollout import draw_noise
from scorebed.scores.base import Score
from scorebed.tasks.base import Task
from scorebed.training.fit import (
    FitState,
    Gradient,
    Loss,
    StepInfo,
    Terms,
    fit,
    gradient_of,
    start_batch,
)

CHUNK = 64  # trajectories whose gradients are held at once

# `estimate(task, policy, theta, noise, *, key)`: one trajectory → a scalar whose gradient in the
# policy is that of the EIG.
Estimator = Callable[..., Any]


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
    the score.
    """

    def loss(params: PyTree, key: PRNGKeyArray) -> Terms:
        policy = eqx.combine(params, static_part)
        surrogate = static if is_static(policy) else adaptive

        def one(key: PRNGKeyArray) -> Any:
            theta = task.prior.sample(key=named(key, "theta"))
            return surrogate(
                task, score, policy, theta, draw_noise(task, policy, key=named(key, "noise"))
            )

        return {"surrogate": -jax.vmap(one)(shard_batch(jr.split(key, batch))).mean()}

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
    static_part: PyTree, task: Task, score: Score, *, batch: int, limit: float = 0.0
) -> Gradient:
    """Of minus the EIG: the unbiased mean over a batch, or with a `limit` one in which no
    trajectory outweighs the others.
    """
    if limit:
        return clip_per_trajectory(
            policy_loss(static_part, task, score, batch=1), batch=batch, limit=limit
        )
    return gradient_of(policy_loss(static_part, task, score, batch=batch))


def clip_per_trajectory(loss: Loss, *, batch: int, limit: float) -> Gradient:
    """The mean of `batch` gradients of a loss, none longer than `limit` times the median length of
    its chunk.

    It comes in units of that longest length; a small limit gives every trajectory the same say, a
    large one the direction of the plain mean. Biased: it finds a good policy in a tenth of the
    steps, and must then end (docs/decisions/010)."""
    chunk = math.gcd(batch, CHUNK)

    def gradient(params: PyTree, key: PRNGKeyArray) -> tuple[Terms, PyTree]:
        def add(total: PyTree, keys: Array) -> tuple[PyTree, dict[str, Array]]:
            terms, grads = jax.vmap(gradient_of(loss), in_axes=(None, 0))(params, shard_batch(keys))
            length = jax.vmap(optax.tree.norm)(grads)
            tiny = jnp.finfo(length.dtype).tiny
            longest = jnp.maximum(limit * jnp.median(length), tiny)
            share = jnp.minimum(1 / longest, 1 / jnp.maximum(length, tiny)) / batch
            return jax.tree.map(lambda t, g: t + jnp.tensordot(share, g, 1), total, grads), terms

        keys = jr.split(key, batch).reshape(batch // chunk, chunk)
        total, terms = jax.lax.scan(add, jax.tree.map(jnp.zeros_like, params), keys)
        return jax.tree.map(jnp.mean, terms), total

    return gradient


def fresh_policies(name: str, task: Task, count: int, *, key: PRNGKeyArray) -> Policy:
    """A batch of untrained policies of one architecture."""
    make = eqx.filter_vmap(lambda k: make_policy(name, task, key=k))
    return jit_once(make)(jr.split(key, count))


def train_policies(
    task: Task,
    score: Score | Estimator,
    policies: Policy | str,
    *,
    count: int = 1,
    steps: int,
    batch: int = 256,
    optimiser: optax.GradientTransformation | None = None,
    learning_rate: float = 2e-4,
    decay: float = 0.0,
    limit: float = 0.0,
    block: int = 100,
    on_step: Callable[[StepInfo], Any] = lambda _: None,
    state: FitState | None = None,
    key: PRNGKeyArray,
) -> Policy:
    """A batch of policies of one architecture, trained at once: `count` of a name in `POLICIES`, or
    those that are given.

    In place of a score any other estimator will do, `estimate(task, policy, theta, noise, *, key)`
    of one trajectory. Without an optimiser: Adam with a cosine decay of the learning rate to a
    twentieth. `decay` > 0 gives the moving average, `limit` > 0 the `clip_per_trajectory` of a
    score."""
    if isinstance(policies, str):
        policies = fresh_policies(policies, task, count, key=named(key, "init"))
    if isinstance(score, Score):
        check_additive_noise(task, key=named(key, "check"))
    require(
        isinstance(score, Score) or not limit,
        "the limit of a gradient",
        got=f"limit={limit} and an estimator",
        expected="a score",
        fix="leave the limit out.",
    )

    def gradient_for(static_part: PyTree) -> Gradient:
        if isinstance(score, Score):
            return policy_gradient(static_part, task, score, batch=batch, limit=limit)
        return gradient_of(estimator_loss(static_part, task, score, batch=batch))

    trained: Policy = fit_batch(
        gradient_for,
        policies,
        steps=steps,
        decay=decay,
        block=block,
        on_step=on_step,
        state=state,
        key=key,
        optimiser=optimiser
        or policy_optimiser(optax.cosine_decay_schedule(learning_rate, steps, 0.05)),
    )
    return trained


def fit_batch(
    gradient_for: Callable[[PyTree], Gradient],
    batch: Any,
    *,
    steps: int,
    optimiser: optax.GradientTransformation,
    decay: float = 0.0,
    block: int = 100,
    on_step: Callable[[StepInfo], Any] = lambda _: None,
    state: FitState | None = None,
    members: Sequence[int] | None = None,
    key: PRNGKeyArray,
) -> Any:
    """A batch of policies, or of policies with what trains beside them: `gradient_for` gets what of
    them is not trained.

    With `members` only these are trained; each has the key of its own number in the batch, whoever
    trains beside it."""
    params, static_part = eqx.partition(batch, eqx.is_inexact_array)
    gradient = gradient_for(static_part)
    state = state or start_batch(params, optimiser)
    keys = member_keys(group_size(params), key=key)
    how: dict[str, Any] = {
        "steps": steps,
        "block": block,
        "decay": decay,
        "on_step": on_step,
        "members": members,
    }
    state = fit(gradient, state, optimiser, key=keys, **how)
    return eqx.combine(state.average, static_part)


def member_keys(count: int, *, key: PRNGKeyArray) -> Key[Array, " P"]:
    """The key of every member of a batch that `fit_batch` trains; step n of a member has
    `fold_in(its key, n)`.

    It follows from the member's number, whatever the size of the batch.
    """
    root = named(key, "steps")
    return jax.vmap(lambda number: jr.fold_in(root, number))(jnp.arange(count, dtype=jnp.uint32))


def best_policy(
    task: Task, policies: Policy, *, outer: int = 256, inner: int = 100_000, key: PRNGKeyArray
) -> Policy:
    """The policy of a batch with the largest lower bound; to report a bound of it, take other
    draws.
    """
    each = [member(policies, i) for i in range(group_size(policies))]
    return max(
        each, key=lambda policy: eig_bounds(task, policy, outer=outer, inner=inner, key=key).lower
    )


def member(batch: Any, index: int) -> Any:
    """Policy, or whatever else is batched, number `index` of a batch."""
    return jax.tree.map(lambda leaf: leaf[index] if eqx.is_array(leaf) else leaf, batch)


def members(batch: Any, numbers: Sequence[int]) -> Any:
    """The batch of some of a batch."""
    chosen = np.asarray(numbers)
    return jax.tree.map(lambda leaf: leaf[chosen] if eqx.is_array(leaf) else leaf, batch)


def group_size(batch: Any) -> int:
    """How many a batch holds."""
    return int(jax.tree.leaves(eqx.filter(batch, eqx.is_array))[0].shape[0])
