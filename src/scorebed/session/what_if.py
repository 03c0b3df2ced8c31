"""What may come: the design that would follow an outcome, and the information to expect by the end.

The bounds in a run's record are means over experiments with the trained policy, as many
measurements as it was trained for, and no limits; elsewhere they do not apply. After refining there
is something better. With KL_t gained so far and the EIG of the remaining steps given h_t,

    E[KL_T | h_t] = KL_t + EIG(remaining steps | h_t)

exactly, so bounds of the latter, taken by particles after every measurement (`ahead.py`), or when
the policy was refined, give bounds of what to expect in this very experiment."""

import dataclasses
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from scorebed.runs.record import BoundsRecord
from scorebed.session.events import ExperimentState, Kind, Remaining, Vector


class Foresight(NamedTuple):
    """An outcome, its level in the predictive distribution, and the design that would follow."""

    level: float
    y: Vector
    design: Vector


@dataclasses.dataclass(frozen=True)
class Expectation:
    """Bounds of the information that an experiment gives by its end, in nats: as the run measured
    them over many experiments, or as they were found for this one when its policy was refined.
    """

    lower: float
    upper: float


def typical_outcomes(
    outcomes: np.ndarray, levels: Sequence[float], *, discrete: bool = False
) -> list[Vector]:
    """Outcomes at given levels, from the lowest to the highest, out of many draws; one of the draws
    where outcomes are finitely many.

    A single coordinate has quantiles. Several have no natural order: draws are ordered along the
    direction in which they vary most, each coordinate in units of its spread, and the draws at
    these levels are returned."""
    if outcomes.shape[1] == 1:
        found = (
            np.quantile(outcomes[:, 0], levels, method="inverted_cdf")
            if discrete
            else np.quantile(outcomes[:, 0], levels)
        )
        return [(float(value),) for value in found]
    spread = outcomes.std(0)
    centred = (outcomes - outcomes.mean(0)) / np.where(spread > 0, spread, 1.0)
    along = centred @ np.linalg.svd(centred, full_matrices=False)[2][0]
    order = np.argsort(along if along @ centred[:, 0] >= 0 else -along)
    chosen = [order[round(level * (len(order) - 1))] for level in levels]
    return [tuple(map(float, outcomes[i])) for i in chosen]


def expectation(bounds: BoundsRecord, state: ExperimentState, trained: int) -> Expectation | None:
    """The information to expect by the end, from the run's bounds or those of a refined policy;
    None where neither apply.
    """
    refinement = state.refinement
    if refinement is not None:
        since = state.records[refinement.step - 1 :]
        latest = bool(state.changes) and state.changes[-1].kind == Kind.REFINED
        after = refinement.after
        stale = not latest or refinement.outdated or any(r.skipped for r in since)
        return None if stale else plus(refinement.information, after)
    finite = all(map(math.isfinite, bounds.leading))
    if not finite or departures(state, trained):
        return None
    return Expectation(*bounds.leading)


def plus(gained: float, remaining: Remaining, *, errors: float = 0.0) -> Expectation | None:
    """The information so far and what remains, give or take so many standard errors; None where
    particles cannot tell how much.
    """
    if remaining.upper is None:
        return None
    margin = errors * remaining.se
    least = max(remaining.lower - margin, min(remaining.lower, 0.0))
    return Expectation(gained + least, gained + remaining.upper + margin)


def departures(state: ExperimentState, trained: int) -> list[str]:
    """In what an experiment differs from those that the run's bounds are about."""
    skipped = sum(record.skipped for record in state.records)
    return [
        reason
        for reason, holds in (
            ("designs are limited", state.limits is not None),
            (f"they are for {trained} steps", state.horizon != trained),
            (f"{skipped} step{'s were' if skipped > 1 else ' was'} skipped", skipped > 0),
            ("the policy was refined", state.refinement is not None),
        )
        if holds
    ]
