"""Ground truths: a score for every key.

    exact        closed forms; nothing to pay
    importance   draws of the prior; enough of them, or it is the score of the one that fits best
    SMC          tempered particles, for histories that leave few draws of the prior
    Laplace      weighted draws around the posterior's modes; a hundredth of the cost of either,
                 for Gaussian outcomes and few parameters

Independent keys give independent estimates of one score; the exact one ignores them.
"""

from collections.abc import Callable
from typing import TypeAlias

import equinox as eqx
from jaxtyping import PRNGKeyArray

from scorebed.scores.base import Score
from scorebed.scores.exact import ExactScore
from scorebed.scores.monte_carlo import ImportanceScore, SMCScore
from scorebed.scores.reweighted import ReweightedLaplaceScore
from scorebed.tasks.base import Task
from scorebed.tasks.oracles.closed_form import ClosedForm

INNER = 100_000
PARTICLES = 512  # some fifty passes over them; four times as many halve the noise

DRAWS = 1024  # around the modes; finding these costs about as much

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


class LaplaceTruth(eqx.Module):
    """Weighted draws of the Gaussians at the posterior's modes."""

    task: Task
    draws: int = eqx.field(static=True, default=DRAWS)

    def __call__(self, key: PRNGKeyArray) -> ReweightedLaplaceScore:
        return ReweightedLaplaceScore(self.task, self.draws, key=key)


def exact_truth(task: Task) -> ExactTruth | None:
    """The closed form of a task; None where it has none."""
    return ExactTruth(task) if isinstance(task, ClosedForm) else None
