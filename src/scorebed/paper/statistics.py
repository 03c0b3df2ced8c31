"""What can be said of means over few repeats: Welch's t at 95%, and whether two tables agree in
their order.

The paper marks rows "statistically indistinguishable from the best at 95% confidence" and names no
test. Here it is Welch's, two-sided, over repeats, with

    t = (m_a − m_b) / √(s_a² + s_b²),   ν = (s_a² + s_b²)² / (s_a⁴/(n_a − 1) + s_b⁴/(n_b − 1))

and s the standard errors of the means. It needs nothing but means, standard errors and numbers of
repeats, so that it can be applied to printed tables too. Standard errors are of independent
repeats; where repeats share one score they are of policies alone.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

LEVEL = 0.05


class Sample(NamedTuple):
    """The mean of n repeats and its standard error, which is NaN for one repeat."""

    mean: float
    se: float
    n: int

    @classmethod
    def of(cls, values: Sequence[float]) -> "Sample":
        """From the repeats themselves."""
        n = len(values)
        mean = math.fsum(values) / n
        if n == 1:
            return cls(mean, math.nan, 1)
        variance = math.fsum((value - mean) ** 2 for value in values) / (n - 1)
        return cls(mean, math.sqrt(variance / n), n)


class OrderAgreement(NamedTuple):
    """How the order of one table agrees with another's: Kendall's τ (b), NaN without two rows, and
    the pairs of rows that differ in both by Welch's test, by whether they differ the same way.
    """

    tau: float
    same: list[tuple[str, str]]
    opposite: list[tuple[str, str]]
    pairs: int


def welch_p(a: Sample, b: Sample) -> float:
    """The two-sided p-value for equal means; NaN where a standard error is unknown."""
    from scipy.stats import t as student

    square = a.se**2 + b.se**2
    if math.isnan(square):
        return math.nan
    if square == 0:
        return 1.0 if a.mean == b.mean else 0.0
    freedom = square**2 / (a.se**4 / (a.n - 1) + b.se**4 / (b.n - 1))
    return float(2 * student.sf(abs(a.mean - b.mean) / math.sqrt(square), freedom))


def differ(a: Sample, b: Sample) -> bool:
    """Whether two means can be told apart; never, where a standard error is unknown."""
    return welch_p(a, b) < LEVEL


def best_rows(rows: Mapping[str, Sample]) -> set[str]:
    """The rows that cannot be told from the one with the largest mean. Of single repeats, that one
    alone: nothing is known of their errors.
    """
    known = {name: row for name, row in rows.items() if not math.isnan(row.mean)}
    if not known:
        return set()
    first = max(known, key=lambda name: known[name].mean)
    return {
        name for name, row in known.items() if name == first or welch_p(row, known[first]) >= LEVEL
    }


def agreement(ours: Mapping[str, Sample], theirs: Mapping[str, Sample]) -> OrderAgreement:
    """Of the rows that both have."""
    from scipy.stats import kendalltau

    names = [name for name in ours if name in theirs and not math.isnan(ours[name].mean)]
    same: list[tuple[str, str]] = []
    opposite: list[tuple[str, str]] = []
    pairs = list(itertools.combinations(names, 2))
    for a, b in pairs:
        if differ(ours[a], ours[b]) and differ(theirs[a], theirs[b]):
            up = ours[a].mean > ours[b].mean, theirs[a].mean > theirs[b].mean
            (same if up[0] == up[1] else opposite).append((a, b) if up[0] else (b, a))
    tau = math.nan
    if len(names) > 1:
        tau = float(
            kendalltau(
                [ours[name].mean for name in names], [theirs[name].mean for name in names]
            ).statistic
        )
    return OrderAgreement(tau, same, opposite, len(pairs))
