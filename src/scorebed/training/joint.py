"""`jointscore`: a score and the policy it serves, trained in one loop.

Half of the experiments that the score learns from are the policy's own, so that it is accurate
where the policy goes; marginal score matching allows it, since a policy sees θ only through the
data. The price is that the score belongs to that policy: it is marked as specialised where it is
saved, and every policy pays for its own."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import PRNGKeyArray

from scorebed.keys import named
from scorebed.policies.base import Policy
from scorebed.samplers.base import DesignSampler
from scorebed.scores.base import Score
from scorebed.tasks.base import Task
from scorebed.training.dropped import DROPPED
from scorebed.training.fit import Gradient, Terms, gradient_of, group_size
from scorebed.training.policy import policy_gradient
from scorebed.training.score import Weights, score_loss


class Pair(eqx.Module):
    """A score and its policy, or what belongs to them: parameters, gradients, labels."""

    score: Any
    policy: Any


def pairs(score: Score, policies: Policy) -> Pair:
    """A batch of policies, each with a copy of the score to start from."""
    count = group_size(policies)
    params, rest = eqx.partition(score, eqx.is_inexact_array)
    copies = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (count, *leaf.shape)), params)
    return Pair(eqx.combine(copies, rest), policies)


def joint_optimiser(
    score: optax.GradientTransformation, policy: optax.GradientTransformation
) -> optax.GradientTransformation:
    """One optimiser for both, each with its own schedule and clipping."""
    names = Pair(*(field.name for field in dataclasses.fields(Pair)))
    return optax.partition({names.score: score, names.policy: policy}, names)


def joint_gradient(
    static: Pair,
    task: Task,
    sampler: DesignSampler,
    weights: Weights,
    *,
    batch: Pair,
    trajectory_clip: float = 0.0,
) -> Gradient:
    """The gradient of each with the other held fixed."""

    def gradient(params: Pair, key: PRNGKeyArray) -> tuple[Terms, Pair]:
        score, policy = (
            eqx.combine(params.score, static.score),
            eqx.combine(params.policy, static.policy),
        )
        matching = score_loss(
            static.score, task, sampler, weights, batch=batch.score, policy=policy
        )
        terms_score, of_score = gradient_of(matching)(params.score, named(key, "score"))
        ascent = policy_gradient(
            static.policy, task, score, batch=batch.policy, trajectory_clip=trajectory_clip
        )
        terms_policy, of_policy = ascent(params.policy, named(key, "policy"))
        dropped = {DROPPED: terms_score[DROPPED] + terms_policy[DROPPED]}
        return terms_score | terms_policy | dropped, Pair(of_score, of_policy)

    return gradient
