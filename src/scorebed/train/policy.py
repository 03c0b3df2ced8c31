"""Stage 2 of the paper's Algorithm 1: train policies with a fixed score, many restarts at once."""

from collections.abc import Callable
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.random as jr
import optax
from jaxtyping import PRNGKeyArray, PyTree

from scorebed.estimators.score import adaptive, check_additive_noise, static
from scorebed.keys import named
from scorebed.policies.base import Policy
from scorebed.policies.static import Static
from scorebed.rollout import draw_noise
from scorebed.scores.base import Score
from scorebed.tasks.base import Task
from scorebed.train.fit import FitState, Loss, StepInfo, Terms, fit, start

AnyPolicy = TypeVar("AnyPolicy", bound=Policy)


def policy_optimiser(
    schedule: optax.Schedule | float, *, clip: float = 1.0, beta1: float = 0.9, beta2: float = 0.999
) -> optax.GradientTransformation:
    """Adam behind clipping by the global norm, as the paper trains every policy."""
    return optax.chain(optax.clip_by_global_norm(clip), optax.adam(schedule, b1=beta1, b2=beta2))


def policy_loss(static_part: PyTree, task: Task, score: Score, *, batch: int) -> Loss:
    """Minus the EIG surrogate, averaged over `batch` trajectories. batch·T NLE a step, and those of the score."""

    def loss(params: PyTree, key: PRNGKeyArray) -> Terms:
        policy = eqx.combine(params, static_part)
        surrogate = static if isinstance(policy, Static) else adaptive

        def one(key: PRNGKeyArray) -> Any:
            theta = task.prior.sample(key=named(key, "theta"))
            return surrogate(task, score, policy, theta, draw_noise(task, policy, key=named(key, "noise")))

        return {"surrogate": -jax.vmap(one)(jr.split(key, batch)).mean()}

    return loss


def train_policies(
    task: Task,
    score: Score,
    policies: AnyPolicy,
    *,
    steps: int,
    batch: int = 256,
    optimiser: optax.GradientTransformation | None = None,
    learning_rate: float = 2e-4,
    decay: float = 0.0,
    block: int = 100,
    on_step: Callable[[StepInfo], Any] = lambda _: None,
    state: FitState | None = None,
    key: PRNGKeyArray,
) -> AnyPolicy:
    """A batch of policies of one architecture (`eqx.filter_vmap` of a constructor over keys), trained at once.

    Without an optimiser: Adam with a cosine decay of the learning rate to a twentieth. `decay` > 0 gives the moving average.
    """
    check_additive_noise(task, key=named(key, "check"))
    optimiser = optimiser or policy_optimiser(optax.cosine_decay_schedule(learning_rate, steps, 0.05))
    params, static_part = eqx.partition(policies, eqx.is_inexact_array)
    count = jax.tree.leaves(params)[0].shape[0]
    loss = policy_loss(static_part, task, score, batch=batch)
    state = state or jax.vmap(lambda p: start(p, optimiser))(params)
    keys = jr.split(named(key, "steps"), count)
    state = fit(loss, state, optimiser, steps=steps, block=block, decay=decay, on_step=on_step, key=keys)
    trained: AnyPolicy = eqx.combine(state.average, static_part)
    return trained
