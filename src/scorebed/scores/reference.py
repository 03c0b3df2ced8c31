"""Ground truths: a score for every key, and what its calls have cost.

    exact        closed forms; nothing to pay
    importance   draws of the prior; enough of them, or it is the score of the one that fits best
    SMC          tempered particles, for histories that leave few draws of the prior

Independent keys give independent estimates of one score; the exact one ignores them.
"""

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from scorebed.scores.base import Score, ScoreValue
from scorebed.scores.exact import ExactScore
from scorebed.scores.monte_carlo import ImportanceScore, SMCScore
from scorebed.tasks.base import Task
from scorebed.tasks.oracles.closed_form import ClosedForm

INNER = 100_000
PARTICLES = 2048  # some forty passes over them cost less than INNER draws

Truth: TypeAlias = Callable[[PRNGKeyArray], Score]


class ExactTruth(eqx.Module):
    """The score of a closed form."""

    task: ClosedForm

    def __call__(self, key: PRNGKeyArray) -> ExactScore:
        del key
        return ExactScore(self.task)


class ImportanceTruth(eqx.Module):
    """Importance sampling from `inner` draws of the prior."""

    task: Task
    inner: int = eqx.field(static=True, default=INNER)

    def __call__(self, key: PRNGKeyArray) -> ImportanceScore:
        return ImportanceScore(self.task, self.inner, key=key)


class SMCTruth(eqx.Module):
    """Tempered SMC with `particles` particles."""

    task: Task
    particles: int = eqx.field(static=True, default=PARTICLES)

    def __call__(self, key: PRNGKeyArray) -> SMCScore:
        return SMCScore(self.task, self.particles, key=key)


class Evaluated(NamedTuple):
    """A score on N histories, and the passes that it took, each of `pass_nle`."""

    value: ScoreValue
    passes: Int[Array, ""]


def evaluate(score: Score, ys: Float[Array, "N T dy"], xis: Float[Array, "N T dx"]) -> Evaluated:
    """Score of every history, with its cost: the ladder of SMC adapts, so that the cost is known
    only afterwards.
    """
    if isinstance(score, SMCScore):
        posteriors = jax.vmap(score.posterior)(ys, xis)
        means = jax.vmap(score.average)(posteriors, ys, xis)
        return Evaluated(means, (posteriors.passes + 1).sum())
    return Evaluated(jax.vmap(score)(ys, xis), jnp.asarray(len(ys)))


def pass_nle(score: Score) -> int:
    """Likelihood evaluations of one pass: all particles over a history for SMC, a call for anything
    else.
    """
    return score.particles * score.task.horizon if isinstance(score, SMCScore) else score.nle
