"""Sums of bounds over groups of trajectories that share no draws: what standard errors, and paired
differences of two policies, are made of.

Two policies that are bounded with one key meet the same parameters, the same noise and the same
contrastive draws, so that most of what makes their bounds uncertain is in both and cancels in

    D = 1/N Σ_g (A_g − B_g),   se² = G/(G−1) Σ_g (A_g − B_g − n_g D)² / N²

with the sums A_g, B_g over the n_g trajectories of group g. Its error follows from the spread of
the differences, not from those of the two bounds.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from scorebed.errors import require


class MeanAndError(NamedTuple):
    """An estimate and its standard error."""

    mean: float
    se: float


class GroupSums(NamedTuple):
    """The trajectories of each group, and the sums of their lower and upper bounds."""

    sizes: tuple[int, ...]
    lower: tuple[float, ...]
    upper: tuple[float, ...]

    @classmethod
    def of(cls, lower: Sequence[np.ndarray], upper: Sequence[np.ndarray]) -> "GroupSums":
        """From the bounds of every trajectory, group by group."""
        sums = (tuple(float(np.sum(g, dtype=np.float64)) for g in side) for side in (lower, upper))
        return cls(tuple(len(group) for group in lower), *sums)

    @classmethod
    def read(cls, values: Mapping[str, Any]) -> "GroupSums":
        """Back from JSON, in which a number that is not finite is null."""
        lower, upper = (
            tuple(math.nan if v is None else float(v) for v in values[side])
            for side in ("lower", "upper")
        )
        return cls(tuple(values["sizes"]), lower, upper)

    def first(self, groups: int) -> "GroupSums":
        """The same of so many groups."""
        return GroupSums(self.sizes[:groups], self.lower[:groups], self.upper[:groups])

    def values(self) -> dict[str, Any]:
        """For JSON."""
        return {name: list(each) for name, each in self._asdict().items()}

    def mean_lower(self) -> MeanAndError:
        """The lower bound."""
        return mean_over_groups(self.sizes, self.lower)

    def mean_upper(self) -> MeanAndError:
        """The upper bound."""
        return mean_over_groups(self.sizes, self.upper)


def pooled(parts: Sequence[GroupSums]) -> GroupSums:
    """All groups of several estimates that share no draws."""
    return GroupSums(*(tuple(itertools.chain(*each)) for each in zip(*parts, strict=True)))


def mean_over_groups(sizes: Sequence[int], sums: Sequence[float]) -> MeanAndError:
    """The mean over all trajectories, and its standard error from the spread of the groups' sums;
    NaN for a single group.
    """
    n, counts, totals = sum(sizes), np.asarray(sizes, np.float64), np.asarray(sums, np.float64)
    mean = float(totals.sum() / n)
    if not math.isfinite(mean) or len(sizes) < 2:
        return MeanAndError(mean, math.nan)
    spread = float(((totals - counts * mean) ** 2).sum())
    return MeanAndError(mean, math.sqrt(spread * len(sizes) / (len(sizes) - 1)) / n)


class Advantage(NamedTuple):
    """By how much one policy is ahead of another on common draws, in nats: the difference of their
    lower bounds, and of its lower and the other's upper bound, which in expectation is no more than
    the difference of their EIGs.
    """

    difference: MeanAndError
    at_least: MeanAndError


def paired(policy: GroupSums, other: GroupSums) -> Advantage:
    """The advantage of a policy over another that was bounded with the same key and sizes."""
    require(
        policy.sizes == other.sizes,
        "two bounds to be compared",
        got=f"groups of {policy.sizes} and {other.sizes} trajectories",
        expected="the same groups",
        fix="bound both with the same key, outer and inner.",
    )
    between = (
        mean_over_groups(policy.sizes, [a - b for a, b in zip(policy.lower, others, strict=True)])
        for others in (other.lower, other.upper)
    )
    return Advantage(*between)
