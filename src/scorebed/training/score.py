"""Stage 1 of the paper's Algorithm 1: learn the marginal score, from designs of a sampler and no
policy.

    J(ψ) = 1/B Σ_b ‖s_ψ(y_b, ξ_b) − ∇_{y,ξ} log p(y_b | ξ_b, θ_b)‖²,   ξ ~ q, θ ~ p, y ~ p(· | ξ, θ)

Adam with a linear warm-up and a cosine decay, clipping by the global norm, and an exponential
moving average of the parameters.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import optax
from jaxtyping import PRNGKeyArray

from scorebed._jit import Constant, jit_once
from scorebed.keys import named
from scorebed.samplers.base import DesignSampler
from scorebed.samplers.paper import paper_sampler
from scorebed.scores import make_score
from scorebed.scores.base import Score, ScoreKind
from scorebed.scores.particles import Particles
from scorebed.scores.transformer import TransformerDirect
from scorebed.tasks.base import Task
from scorebed.training.matching import Matching as Matching
from scorebed.training.matching import Weights as Weights
from scorebed.training.matching import automatic_weights as automatic_weights
from scorebed.training.matching import matching_terms as matching_terms
from scorebed.training.matching import mean_weights as mean_weights
from scorebed.training.matching import score_loss as score_loss
from scorebed.training.matching import usual_matching as usual_matching
from scorebed.training.stage import SingleStage, carry_out
from scorebed.training.watched import Moment, OnBlock


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
    made: Score = _made(Constant((kind, task, sampler)), key)
    return made


@jit_once
def _made(settings: Constant, key: PRNGKeyArray) -> Score:
    return score_maker(*settings.tree)(key)


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
    matching: Matching | None = None,
    pilot_nle: int = 0,
    finish: Callable[[Any], Score] = lambda score: score,
    score_nle: int = 0,
    key: PRNGKeyArray,
) -> SingleStage:
    """Stage 1 of Algorithm 1: `batch`·(T + `score_nle`) NLE a step, and once those of the pilot
    that weighs the two parts of the loss, where there is one.
    """
    return SingleStage(
        name=name,
        steps=steps,
        make=make,
        loss_for=lambda static: score_loss(
            static, task, sampler, weights(), batch=batch, penalty=penalty, matching=matching
        ),
        optimiser=optimiser,
        decay=decay,
        block=block,
        finish=finish,
        step_nle=batch * (task.horizon + score_nle),
        once_nle=pilot_nle if steps else 0,
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
        pilot_nle=0 if weights else usual_matching(task).pilot_nle(task),
        key=key,
    )
    return TrainedScore(*carry_out(stage, on_block=on_block))
