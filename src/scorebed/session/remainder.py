"""What is left of an experiment, put together: the remaining steps as a task, and the policy and
the score that go on.
"""

from typing import NamedTuple

import jax.random as jr
import numpy as np

from scorebed.errors import InvalidValueError, ScorebedError
from scorebed.policies.base import Policy
from scorebed.scores.base import Score
from scorebed.session.data import array, pairs_of, stacked
from scorebed.session.refine import BY_PCE, BY_SCORE
from scorebed.session.rest import Continuing, FutureScore, Particles, Range
from scorebed.session.room import confined, room_of
from scorebed.session.state import State
from scorebed.session.table import extended, lacks_designs
from scorebed.tasks.base import Task
from scorebed.tasks.continued import Continued, continued


class Remainder(NamedTuple):
    """`lacking` if the policy had no designs for some of the steps, and those here were drawn at
    random; `measurements` is how many there will be in all.
    """

    task: Continued
    policy: Continuing
    lacking: bool
    measurements: int

    def score_for(self, score: Score | None, by: str | None) -> Score | None:
        """The score to refine with, None for PCE; `by` insists on one of them."""
        trained = self.task.base.horizon
        if by not in (None, BY_SCORE, BY_PCE):
            raise InvalidValueError(
                "the way to refine",
                got=f"'{by}'",
                expected=f"{BY_SCORE} or {BY_PCE}",
                fix="leave it out to have it chosen.",
            )
        fits = score is not None and self.measurements == trained
        if by == BY_SCORE and not fits:
            raise InvalidValueError(
                "refining by the score",
                got="a run without one"
                if score is None
                else f"an experiment of {self.measurements} measurements",
                expected=f"a score, and the {trained} measurements that it was trained for",
                fix="refine by pce.",
            )
        if score is None or not fits or by == BY_PCE:
            return None
        return FutureScore(score, self.policy.ys, self.policy.xis)


def require_designs(policy: Policy, known: State) -> None:
    """Refuse a policy that has no designs for some of the steps that remain."""
    if lacks_designs(policy, _measurements(known)):
        raise ScorebedError(
            "what remains, got a policy without designs for all steps, expected one for each. "
            "Fix: refine first."
        )


def remainder_of(task: Task, policy: Policy, known: State, theta: np.ndarray) -> Remainder:
    """What remains at `known`, given particles of the posterior there; before any measurement the
    prior itself is known.
    """
    pairs, total = pairs_of(known.records), _measurements(known)
    ys, xis = stacked(pairs, task)
    full = extended(policy, known.horizon, task.horizon, key=jr.key(len(pairs)))
    kept = confined(full, room_of(task, known))
    continuing = Continuing(kept, ys, xis, Range.of(known.limits, task.designs.dim))
    prior = Particles(theta=array(theta), quantities=task.prior.quantities) if pairs else task.prior
    rest = continued(
        task, prior, [xi for xi, _ in pairs], [y for _, y in pairs], steps=total - len(pairs)
    )
    return Remainder(rest, continuing, lacks_designs(policy, total), total)


def _measurements(known: State) -> int:
    """How many there will be in all, if no further step is skipped."""
    return len(known.measured) + known.horizon - len(known.records)
