"""Stage 1 of the paper's Algorithm 1: learn the marginal score, from designs of a sampler and no
policy.

    J(ψ) = 1/B Σ_b ‖s_ψ(y_b, ξ_b) − ∇_{y,ξ} log p(y_b | ξ_b, θ_b)‖²,   ξ ~ q, θ ~ p, y ~ p(· | ξ, θ)

Adam with a linear warm-up and a cosine decay, clipping by the global norm, and an exponential
moving average of the parameters.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import optax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from scorebed._jit import jit_once
from scorebed._sharding import shard_batch
from scorebed.errors import require
from scorebed.estimators.matching import (
    bias_penalty,
    conditional_score,
    marginal_score_matching,
    rescaled_score_matching,
    sliced_score_matching,
)
from scorebed.keys import named
from scorebed.policies.base import Policy
from scorebed.policies.random import RandomDesigns
from scorebed.rollout import PILOT as PILOT
from scorebed.rollout import Trajectory, pilot_runs, simulate, simulate_outcomes
from scorebed.samplers.base import DesignSampler, Unconstrained
from scorebed.samplers.paper import paper_sampler
from scorebed.scores import make_score
from scorebed.scores.base import Score, ScoreKind, ScoreValue
from scorebed.scores.particles import Particles
from scorebed.scores.standardise import standardiser
from scorebed.scores.transformer import TransformerDirect
from scorebed.tasks.base import Task
from scorebed.training.fit import Loss, Terms
from scorebed.training.stage import SingleStage, carry_out
from scorebed.training.watched import Moment, OnBlock


class Weights(eqx.Module):
    """Fixed weights of the two parts of the loss, per coordinate, and how far residuals are
    relative to the size of the score.
    """

    y: Float[Array, "*dy"]
    xi: Float[Array, "*dx"]
    relative: float = eqx.field(static=True)


def mean_weights(task: Task, lambda_y: float, *, relative: float = 0.0) -> Weights:
    """The paper's: the mean over steps and coordinates of squared residuals, with the weight λ_y on
    those of y,

        λ_y Σ e_y² / (T d_y) + Σ e_u² / (T d_ξ),   e_u = e_ξ · `designs.loss_unit`.

    Designs of an open space count in units of its scale, u = ξ / 40 m for gravimetry, those of a
    box as they are: the paper's λ_y balance the two parts then, and only then."""
    unit = jnp.asarray(task.designs.loss_unit)
    count = task.horizon * jnp.asarray((task.outcome_dim, task.designs.dim))
    return Weights(lambda_y / count[0], unit**2 / count[1], relative)


def automatic_weights(
    task: Task, sampler: DesignSampler, *, relative: float = 1.0, key: PRNGKeyArray
) -> Weights:
    """Both parts of order one: over the median squared conditional score of a pilot of 1,024
    experiments. 1,024·T NLE.

    Without a density the weight of the y-part is the variance of the outcomes, or of their steps if
    that is smaller."""

    if (
        not task.has_density
    ):  # there is nothing to measure but outcomes: a score of theirs has the unit 1/y
        outcomes = jit_once(lambda key: standardiser(task, sampler, key=key))(key)
        return Weights(jnp.minimum(outcomes.scale_y, outcomes.scale_step) ** 2, jnp.ones(()), 0.0)

    def pilot(key: PRNGKeyArray) -> ScoreValue:
        runs = pilot_runs(task, sampler, key=key)
        return jax.vmap(lambda run: conditional_score(task, run))(runs)

    target = jit_once(pilot)(key)
    tiny = jnp.finfo(target.y.dtype).tiny
    size = jax.tree.map(
        lambda t: jnp.maximum(jnp.median(t**2, axis=(0, 1)), tiny) * task.horizon * t.shape[-1],
        target,
    )
    return Weights(1 / size.y, 1 / size.xi, relative)


def score_optimiser(
    *,
    steps: int,
    learning_rate: float,
    floor_rate: float = 1e-5,
    warmup_share: float = 1e-3,
    clip: float,
) -> optax.GradientTransformation:
    """The paper's: warm-up over a thousandth of the steps to the peak, cosine decay to the floor,
    clipping by the global norm.
    """
    warmup = max(1, round(warmup_share * steps))
    schedule = optax.warmup_cosine_decay_schedule(
        0.0, learning_rate, warmup, max(steps, warmup + 1), floor_rate
    )
    return optax.chain(optax.clip_by_global_norm(clip), optax.adam(schedule))


def score_loss(
    static: PyTree,
    task: Task,
    sampler: DesignSampler,
    weights: Weights,
    *,
    batch: int,
    penalty: float = 0.0,
    policy: Policy | None = None,
) -> Loss:
    """Marginal score matching on `batch` experiments of the sampler, half of them of a `policy`
    where one is given. batch·T NLE a step, and those of the score.

    With `penalty` > 0 the U-statistic of the score's bias is added, from four outcomes each of an
    eighth as many designs; those are always the sampler's, since they must be drawn before the
    data.

    Where the task has no density it is sliced score matching, and no policy's experiments may
    enter."""
    if not task.has_density:
        require(
            policy is None,
            f"the score of {type(task).__name__}",
            got="experiments of a policy",
            expected="designs drawn before the data, since the model has no density",
            fix="train it by --method score.",
        )
    sources: list[tuple[Policy, int]] = [
        (RandomDesigns(sampler), batch if policy is None else batch - batch // 2)
    ]
    sources += [] if policy is None else [(policy, batch // 2)]

    def loss(params: PyTree, key: PRNGKeyArray) -> Terms:
        score = eqx.combine(params, static)
        if not task.has_density:
            return {
                "sliced": _sliced(
                    score, task, sampler, weights, batch=batch, key=named(key, "runs", 0)
                )
            }
        parts = [
            jax.vmap(lambda k, source=source: simulate(task, source, key=k))(
                shard_batch(jr.split(named(key, "runs", i), count))
            )
            for i, (source, count) in enumerate(sources)
            if count
        ]
        terms = matching_terms(
            score, task, jax.tree.map(lambda *x: jnp.concatenate(x), *parts), weights
        )
        if penalty:
            biases = jax.vmap(lambda k: _bias(score, task, sampler, weights, key=k))(
                shard_batch(jr.split(named(key, "bias"), max(1, batch // 8)))
            )
            terms["bias"] = penalty * biases.mean()
        return terms

    return loss


def _sliced(
    score: Score,
    task: Task,
    sampler: DesignSampler,
    weights: Weights,
    *,
    batch: int,
    key: PRNGKeyArray,
) -> Array:
    """Sliced score matching, averaged over experiments of the sampler; of `ScorePair` the sum of
    both. No NLE.
    """
    require(
        isinstance(sampler, Unconstrained),
        f"the designs of {type(task).__name__}",
        got=type(sampler).__name__,
        expected="designs without a constraint, since the model has no density",
        fix="leave `constraint` out, or write `log_prob`.",
    )
    assert isinstance(sampler, Unconstrained)  # for the type checker

    def one(key: PRNGKeyArray) -> Array:
        us = sampler.sample_unconstrained(key=named(key, "designs"))
        theta = task.prior.sample(key=named(key, "theta"))
        noise = jr.normal(named(key, "noise"), (task.horizon, task.noise_dim))
        ys = simulate_outcomes(task, theta, sampler.space.constrain(us), noise)
        return jnp.stack(
            [
                sliced_score_matching(
                    each, sampler, ys, us, lambda_y=weights.y, key=named(key, "direction")
                )
                for each in score.parts(theta)
            ]
        ).sum()

    return jax.vmap(one)(shard_batch(jr.split(key, batch))).mean()


def matching_terms(score: Score, task: Task, runs: Trajectory, weights: Weights) -> Terms:
    """The two terms of marginal score matching, averaged over a batch of experiments; of a score
    that learns the scale of its residuals also that term.
    """

    def one(run: Trajectory) -> Any:
        return marginal_score_matching(
            score, task, run, lambda_y=weights.y, lambda_xi=weights.xi, relative=weights.relative
        )

    if score.rescales_residuals:
        terms, weigher = jax.vmap(
            lambda run: rescaled_score_matching(
                score, task, run, lambda_y=weights.y, lambda_xi=weights.xi
            )
        )(runs)
        return {"y": terms.y.mean(), "xi": terms.xi.mean(), "weigher": weigher.mean()}
    terms = jax.vmap(one)(runs)
    return {"y": terms.y.mean(), "xi": terms.xi.mean()}


def _bias(
    score: Score, task: Task, sampler: DesignSampler, weights: Weights, *, key: PRNGKeyArray
) -> Array:
    xis = sampler.sample(key=named(key, "designs"))

    def outcome(key: PRNGKeyArray) -> Array:
        noise = jr.normal(named(key, "noise"), (task.horizon, task.noise_dim))
        return simulate_outcomes(task, task.prior.sample(key=named(key, "theta")), xis, noise)

    ys = jax.vmap(outcome)(jr.split(named(key, "outcomes"), 4))
    parts = bias_penalty(score, ys, xis, lambda_y=weights.y, lambda_xi=weights.xi)
    return parts.y + parts.xi


def score_maker(
    kind: ScoreKind, task: Task, sampler: DesignSampler
) -> Callable[[PRNGKeyArray], Score]:
    """The untrained score of a key, standardised by a pilot of the sampler."""

    def make(key: PRNGKeyArray) -> Score:
        standardise = kind.standardiser(task, sampler, key=named(key, "standardise"))
        return make_score(kind, task, standardise, key=named(key, "init"))

    return make


def fresh_score(kind: ScoreKind, task: Task, sampler: DesignSampler, *, key: PRNGKeyArray) -> Score:
    """An untrained score of a kind."""
    made: Score = jit_once(score_maker(kind, task, sampler))(key)
    return made


def default_kind(task: Task) -> ScoreKind:
    """Likelihood particles of the usual sizes; a small transformer where a task depends on its
    whole history, or has no density.
    """
    if task.states_follow_data and task.has_density:
        return Particles(particles=8, cloud=8, width=128)
    return TransformerDirect(width=128, blocks=2, heads=4)


def score_stage(
    task: Task,
    sampler: DesignSampler,
    make: Callable[[], Score],
    *,
    name: str = "stage-1",
    steps: int,
    batch: int,
    optimiser: optax.GradientTransformation,
    decay: float = 0.99,
    block: int | None = None,
    penalty: float = 0.0,
    weights: Callable[[], Weights],
    finish: Callable[[Any], Score] = lambda score: score,
    score_nle: int = 0,
    key: PRNGKeyArray,
) -> SingleStage:
    """Stage 1 of Algorithm 1: `batch`·(T + `score_nle`) NLE a step, and those of the pilot that
    weighs the two parts of the loss.
    """
    return SingleStage(
        name=name,
        steps=steps,
        make=make,
        loss_for=lambda static: score_loss(
            static, task, sampler, weights(), batch=batch, penalty=penalty
        ),
        optimiser=optimiser,
        decay=decay,
        block=block,
        finish=finish,
        step_nle=batch * (task.horizon + score_nle),
        once_nle=PILOT * task.horizon if steps else 0,
        key=named(key, "train", "steps"),
    )


class TrainedScore(NamedTuple):
    """A score, and how its loss went: one `Moment` for every block of steps."""

    score: Score
    history: Sequence[Moment]


def train_score(
    task: Task,
    score: Score | ScoreKind | None = None,
    sampler: DesignSampler | None = None,
    *,
    steps: int,
    batch: int = 256,
    optimiser: optax.GradientTransformation | None = None,
    learning_rate: float = 1e-3,
    decay: float = 0.99,
    penalty: float = 0.0,
    weights: Weights | None = None,
    on_block: OnBlock = lambda _: None,
    key: PRNGKeyArray,
) -> TrainedScore:
    """Learn the marginal score of a task: what `scorebed train` does first.

    Arguments:
        task: the experiment.
        score: an untrained score, or a kind of score (`scorebed.SCORES`); likelihood particles if
            left out, and a small transformer where these cannot serve.
        sampler: the distribution of the designs to learn from; the paper's for the task if left
            out.
        steps: number of training steps.
        batch: simulated experiments per step.
        optimiser: the paper's schedule around `learning_rate`, with gradients clipped at 10, if
            left out.
        learning_rate: peak rate of that schedule.
        decay: of the moving average of the parameters, which is what is returned.
        penalty: weight of the U-statistic of the score's bias.
        weights: of the two parts of the loss; measured by a pilot if left out.
        on_block: called with a `Block` after every block of steps.
        key: the random key.

    Returns:
        The score and its history. batch·T NLE a step, and those of the score.

    Raises:
        NonFiniteError: after five steps in a row whose loss or gradient is not finite.
        InvalidValueError: if the kind of score is not for the task, or the sampler has a constraint
            and the task no density.

    Example:
        >>> task = sb.make_task("linear-gaussian")
        >>> kind = sb.SCORES["particles"](particles=2, cloud=2, width=8)
        >>> sampler = sb.make_sampler("uniform", task)
        >>> score = sb.train_score(task, kind, sampler, steps=4, batch=8, key=jr.key(0)).score
        >>> score(jnp.zeros((3, 1)), jnp.ones((3, 1))).y.shape
        (3, 1)
    """
    chosen = sampler or paper_sampler(task)
    kind = default_kind(task) if score is None else score

    def make() -> Score:
        if isinstance(kind, Score):
            return kind
        return fresh_score(kind, task, chosen, key=key)

    def weigh() -> Weights:
        return weights or automatic_weights(task, chosen, key=named(key, "weights"))

    stage = score_stage(
        task,
        chosen,
        make,
        steps=steps,
        batch=batch,
        decay=decay,
        penalty=penalty,
        optimiser=optimiser or score_optimiser(steps=steps, learning_rate=learning_rate, clip=10.0),
        weights=weigh,
        key=key,
    )
    return TrainedScore(*carry_out(stage, on_block=on_block))
