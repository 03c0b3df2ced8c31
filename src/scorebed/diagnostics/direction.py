"""Does a score point where the truth does? The mean gradient as training uses it, against the same
with the true score, on the same draws.

    cosine = ⟨E G_s, E G_μ⟩ / (‖E G_s‖ ‖E G_μ‖),     length = ‖E G_s‖ / ‖E G_μ‖

G is the mean over a chunk of trajectories, clipped per trajectory where training clips. A first
step of a given length gains the cosine times what it would gain along E G_μ. Products are over
pairs of different groups, so neither the noise of the trajectories nor that of the truth lowers a
cosine, and standard errors are jackknifed over groups.

Errors of a score have heavy tails: one trajectory with a design next to a source can outweigh all
others in E‖g_s − g_μ‖², while clipping gives it the same say as any. `Tails` tells them apart."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, PRNGKeyArray

from scorebed.diagnostics.gradient_error import OnGroup, silent
from scorebed.diagnostics.gradient_groups import (
    PLAIN,
    Clipping,
    GradientGroup,
    gradient_group,
    group_nle,
)
from scorebed.diagnostics.groups import Agreement, Products, agreement, products, stack
from scorebed.errors import require
from scorebed.estimators.trajectory_clip import CHUNK
from scorebed.keys import named
from scorebed.policies.base import Policy
from scorebed.scores.base import Score
from scorebed.scores.reference import Truth
from scorebed.tasks.base import Task

WORST = 0.01  # of the trajectories


class Tails(NamedTuple):
    """How the squared errors of trajectories are spread: the share of their sum that the worst 1%
    carry, the median over trajectories of error over size, and the same as a ratio of root mean
    squares.
    """

    worst: float
    median: float
    mean: float


class Direction(NamedTuple):
    """Of the score's gradient with the true one at one policy: as training uses both, and as plain
    means.
    """

    used: Agreement
    plain: Agreement
    tails: Tails
    outer: int
    dropped: int


class Directions(NamedTuple):
    """The direction at one policy, and what finding it has cost."""

    direction: Direction
    nle: int


def gradient_direction(
    task: Task,
    score: Score,
    truth: Truth,
    policy: Policy,
    *,
    clipping: Clipping = PLAIN,
    outer: int = 1024,
    on_group: OnGroup = silent,
    key: PRNGKeyArray,
) -> Directions:
    """Cosine and length of the score's gradient at `policy`, clipped as in training. A call of the
    truth and of the score, and a likelihood, for each trajectory.
    """
    size = group_size(clipping, outer)
    count, groups, passes = -(-outer // size), [], 0
    for g in range(count):
        found = gradient_group(task, score, truth, policy, size, clipping, (), named(key, g))
        groups.append(found)
        passes += int(found.passes)
        on_group(g + 1, count)
    nle = count * group_nle(task, score, policy, size, ()) + passes * truth(key).pass_nle
    return Directions(direction_of(groups), nle)


def group_size(clipping: Clipping, outer: int) -> int:
    """Trajectories of a group: chunks of training, some sixty trajectories in all, and fewer if
    that leaves less than eight groups of `outer`.
    """
    require(
        outer >= 8,
        "the trajectories of a diagnosis",
        got=outer,
        expected="at least eight",
        fix="2048 is usual.",
    )
    most, chunk = min(CHUNK, outer // 8), clipping.chunk
    return most // chunk * chunk or most


def direction_of(groups: Sequence[GradientGroup]) -> Direction:
    """From at least three groups."""
    squares = np.concatenate([np.asarray(g.squared_errors, np.float64) for g in groups])
    sizes = np.concatenate([np.asarray(g.squared_lengths, np.float64) for g in groups])
    return Direction(
        used=agreement(used_products(groups)),
        plain=agreement(_products(groups, plain=True)),
        tails=tails(squares, sizes),
        outer=len(squares),
        dropped=sum(int(g.dropped) for g in groups),
    )


def used_products(groups: Sequence[GradientGroup]) -> Products:
    """Of the gradients as training uses them."""
    return _products(groups, plain=False)


def _products(groups: Sequence[GradientGroup], *, plain: bool) -> Products:
    if plain:
        of_truth = stack([g.truth for g in groups])
        return products(of_truth + stack([g.error for g in groups]), of_truth)
    return products(stack([g.used for g in groups]), stack([g.reference for g in groups]))


def tails(squares: Float[np.ndarray, " N"], sizes: Float[np.ndarray, " N"]) -> Tails:
    """Of squared errors and squared sizes by trajectory; estimates below zero count as zero."""
    errors = np.sort(np.maximum(squares, 0))[::-1]
    worst = max(1, round(WORST * len(errors)))
    with np.errstate(divide="ignore", invalid="ignore"):
        share = errors[:worst].sum() / errors.sum()
        median = np.nanmedian(np.sqrt(np.maximum(squares, 0) / np.maximum(sizes, 0)))
        mean = np.sqrt(max(squares.sum(), 0.0) / sizes.sum())
    return Tails(float(share), float(median), float(mean))
