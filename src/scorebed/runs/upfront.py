"""Stage 1 of the two-stage methods, as a configuration asks for it: a score, a flow for VarMarg, a
posterior for VarPost.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import optax
from jaxtyping import PRNGKeyArray, PyTree

from scorebed.keys import named
from scorebed.runs.artifacts import (
    fresh_marginal,
    fresh_posterior,
    fresh_score,
    load_marginal,
    load_posterior,
    load_score,
)
from scorebed.runs.config import RunConfig
from scorebed.runs.methods import UPFRONT
from scorebed.runs.sections import DensityConfig, ScoreConfig
from scorebed.samplers.base import DesignSampler
from scorebed.scores.residual_scale import ResidualScale, SelfWeighingScore
from scorebed.scores.standardise import standardiser
from scorebed.tasks.base import Task
from scorebed.training.fit import Loss, fit_one
from scorebed.training.score import Weights, automatic_weights, score_optimiser, train_score
from scorebed.training.variational import marginal_loss, posterior_loss


class Stage1(NamedTuple):
    """What is trained, by which optimiser and for how long; `train(state=…, on_step=…, block=…,
    key=…)` does it.
    """

    fresh: Any
    optimiser: optax.GradientTransformation
    steps: int
    train: Callable[..., Any]


def load_upfront(path: Path, config: RunConfig, task: Task, sampler: DesignSampler) -> Any:
    """The saved score or density of a two-stage method."""
    stem = UPFRONT[config.method].stem
    if stem == "score":
        return load_score(path, config.score, task, sampler)
    load = load_marginal if stem == "marginal" else load_posterior
    return load(path, config.density, task, sampler)


def stage_1(config: RunConfig, task: Task, sampler: DesignSampler, *, key: PRNGKeyArray) -> Stage1:
    """The training of one score or density."""
    stem = UPFRONT[config.method].stem
    if stem == "score":
        return _score(config.score, task, sampler, key=key)
    density = config.density
    if stem == "marginal":
        fresh: Any = fresh_marginal(density, task, sampler, key=key)
    else:
        fresh = fresh_posterior(density, task, sampler, key=key)
    optimiser = density_optimiser(density, density.steps)

    def loss_for(static: PyTree) -> Loss:
        if stem == "marginal":
            return marginal_loss(static, task, batch=density.batch)
        return posterior_loss(static, task, sampler, batch=density.batch)

    def train(**how: Any) -> Any:
        return fit_one(
            loss_for, fresh, steps=density.steps, optimiser=optimiser, decay=density.ema, **how
        )

    return Stage1(fresh, optimiser, density.steps, train)


def density_optimiser(config: DensityConfig, steps: int) -> optax.GradientTransformation:
    """The paper's for every density, and clipping: Adam, warm-up, cosine decay over so many
    steps.
    """
    return score_optimiser(
        steps=steps,
        learning_rate=config.learning_rate,
        floor_rate=config.floor_rate,
        warmup_share=config.warmup_share,
        clip=config.clip,
    )


def residual_weights(
    config: ScoreConfig, task: Task, sampler: DesignSampler, *, key: PRNGKeyArray
) -> Weights:
    """The weights of the residuals of score matching: given, or found by a pilot."""
    own = 0.0 if config.weights == "none" else 1.0
    if config.lambda_y == "auto":
        return automatic_weights(task, sampler, own=own, key=key)
    return Weights(jnp.asarray(config.lambda_y), jnp.ones(()), own)


def _score(config: ScoreConfig, task: Task, sampler: DesignSampler, *, key: PRNGKeyArray) -> Stage1:
    score: PyTree = fresh_score(config, task, sampler, key=key)
    if config.kind == "laplace":  # there is nothing to learn
        return Stage1(score, optax.identity(), 0, lambda **_: score)
    if config.weights == "learned" and task.has_density:  # without one there are no residuals
        standardise = standardiser(task, sampler, key=named(key, "standardise"))
        scale = ResidualScale(task, standardise, key=named(key, "weigher"))
        score = SelfWeighingScore(score, scale)
    optimiser = score_optimiser(
        steps=config.steps,
        learning_rate=config.learning_rate,
        floor_rate=config.floor_rate,
        warmup_share=config.warmup_share,
        clip=config.clip,
    )

    def train(**how: Any) -> Any:
        return train_score(
            task,
            score,
            sampler,
            steps=config.steps,
            batch=config.batch,
            optimiser=optimiser,
            decay=config.ema,
            penalty=config.bias_penalty,
            weights=residual_weights(config, task, sampler, key=named(key, "weights")),
            **how,
        ).kept

    return Stage1(score, optimiser, config.steps, train)
