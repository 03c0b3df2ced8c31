"""What may come next: a few outcomes that stand for all, and the design that would follow each of
them.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from scorebed.session.state import Vector


class Foresight(NamedTuple):
    """An outcome, at which level of its predictive distribution it lies, and the design that would
    follow.
    """

    level: float
    y: Vector
    design: Vector


def typical_outcomes(outcomes: np.ndarray, levels: Sequence[float]) -> list[Vector]:
    """Outcomes at given levels, from the lowest to the highest, out of many draws.

    A single coordinate has quantiles. Several have no order of their own: draws are ordered along
    the direction in which they spread most, each coordinate in units of its own spread, and the
    draws at these levels are taken as they are."""
    if outcomes.shape[1] == 1:
        return [(float(value),) for value in np.quantile(outcomes[:, 0], levels)]
    spread = outcomes.std(0)
    centred = (outcomes - outcomes.mean(0)) / np.where(spread > 0, spread, 1.0)
    along = centred @ np.linalg.svd(centred, full_matrices=False)[2][0]
    order = np.argsort(along if along @ centred[:, 0] >= 0 else -along)
    chosen = [order[round(level * (len(order) - 1))] for level in levels]
    return [tuple(map(float, outcomes[i])) for i in chosen]
