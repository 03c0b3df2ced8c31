"""Whether what a figure of the paper is said to show holds here: sentences made from the numbers.

Each function takes the numbers that are drawn and gives sentences; none knows of records. With too
few numbers they say so. `Claim.holds` is None where the numbers do not decide.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from scorebed.paper.statistics import LEVEL, Sample, differ

Numbers: TypeAlias = Sequence[float | int] | np.ndarray

FEW = 4  # points below which a correlation says nothing
TRUSTED = 2.0  # standard errors above zero at which a squared bias counts as found


class Claim(NamedTuple):
    """A claim of the paper, whether it holds here, and by what."""

    words: str
    holds: bool | None
    because: str

    def __str__(self) -> str:
        verdict = {True: "Holds here", False: "Does not hold here", None: "Not decided here"}
        return f"{verdict[self.holds]}: {self.words} {self.because}"


class MeasuredBias(NamedTuple):
    """A squared bias with its standard error, and the variance of one trajectory's gradient."""

    label: str
    squared_bias: float
    se: float
    variance: float

    @property
    def found(self) -> bool:
        """Whether it was told from zero."""
        return self.squared_bias > TRUSTED * self.se


def spearman(x: Numbers, y: Numbers) -> tuple[float, float, int]:
    """Spearman's ρ, its two-sided p-value, and the number of finite pairs; NaN for fewer than
    four, or where one side is constant.
    """
    from scipy.stats import spearmanr

    a, b = np.asarray(x, float), np.asarray(y, float)
    whole = ~(np.isnan(a) | np.isnan(b))
    a, b, n = a[whole], b[whole], int(whole.sum())
    if n < FEW or len(set(a)) < 2 or len(set(b)) < 2:
        return math.nan, math.nan, n
    found = spearmanr(a, b)
    return float(found.statistic), float(found.pvalue), n


def leads_over_budgets(
    leader: str, budgets: Mapping[int, Mapping[str, Sample]], *, rises: bool = True
) -> list[Claim]:
    """One method is above all others at every budget (by part of the whole: 16 is a sixteenth), and
    still rises at the end.
    """
    compared, ahead, behind, told = 0, 0, [], 0
    for part in sorted(budgets, reverse=True):
        samples = budgets[part]
        if leader not in samples or len(samples) < 2:
            continue
        compared += 1
        others = {name: each for name, each in samples.items() if name != leader}
        best = max(others, key=lambda name: others[name].mean)
        if samples[leader].mean > others[best].mean:
            ahead += 1
            told += differ(samples[leader], others[best])
        else:
            behind.append(f"{best} is above it at {_share(part)}")
    words = f"{leader} is above every other method at every budget."
    if not compared:
        return [Claim(words, None, "There are no two methods with one budget yet.")]
    because = f"It leads at {ahead} of {compared} budgets, at {told} by more than errors"
    because += f"; {'; '.join(behind)}." if behind else "."
    found = [Claim(words, ahead == compared, because)]
    ends = sorted(part for part in budgets if leader in budgets[part])[:2]
    if rises and len(ends) == 2:
        last, before = (budgets[part][leader] for part in ends)
        gain = last.mean - before.mean
        found.append(
            Claim(
                f"{leader} still rises at the largest budget.",
                gain > 0 if differ(last, before) else None,
                f"From {_share(ends[1])} to {_share(ends[0])} of the budget its bound changes by "
                f"{gain:+.2f} nats.",
            )
        )
    return found


def faster(
    leader: tuple[str, Numbers, Numbers],
    other: tuple[str, Numbers, Numbers],
    *,
    unit: str,
) -> Claim:
    """One curve (name, x, y) rises faster than another: it reaches what the other ends at sooner.

    One that never gets there is slower if the other has its best sooner; if later, it is not
    decided which is better."""
    (name, x, y), (rival, other_x, other_y) = leader, other
    words = f"Per {unit}, {name} trains faster than {rival}."
    if not len(y) or not len(other_y):
        return Claim(words, None, "One of the curves is not there yet.")
    level = float(np.max(other_y))
    there = np.flatnonzero(np.asarray(y, float) >= level)
    spent = float(np.asarray(other_x, float)[int(np.argmax(other_y))])
    if not there.size:
        best, when = float(np.max(y)), float(np.asarray(x, float)[int(np.argmax(y))])
        passed = np.flatnonzero(np.asarray(other_y, float) >= best)
        sooner = float(np.asarray(other_x, float)[passed[0]])
        return Claim(
            words,
            False if sooner <= when else None,
            f"Its best is {best:.2f} nats, after {when:.3g}; {rival} is there after {sooner:.3g} "
            f"and goes on to {level:.2f}.",
        )
    first = float(np.asarray(x, float)[there[0]])
    return Claim(
        words,
        first < spent,
        f"It reaches the best of {rival}, {level:.2f} nats, after {first:.3g}; {rival} after "
        f"{spent:.3g}.",
    )


def lower_bias(
    score: MeasuredBias | None, pce: Sequence[MeasuredBias], *, claimed_for_score: bool
) -> list[Claim]:
    """On which side the bias is lower: of the fully trained score, or of PCE with each M."""
    found = []
    for rival in pce:
        side = "lower" if claimed_for_score else "higher"
        words = f"The squared bias of ScoreBED is {side} than that of {rival.label}."
        if score is None:
            found.append(Claim(words, None, "There is no score yet."))
            continue
        gap = score.squared_bias - rival.squared_bias
        error = math.hypot(score.se, rival.se)
        decided = abs(gap) > TRUSTED * error
        found.append(
            Claim(
                words,
                (gap < 0) == claimed_for_score if decided else None,
                f"{score.squared_bias:.2g} ± {score.se:.1g} against {rival.squared_bias:.2g} ± "
                f"{rival.se:.1g}.",
            )
        )
    return found


def plateaus(curves: Sequence[MeasuredBias], batch: int) -> Claim:
    """The error falls as 1/N and levels off at the bias: where V/N = ‖B‖²."""
    words = f"At the paper's batch, N = {batch:,}, bias outweighs noise."
    told = [each for each in curves if each.found]
    if not told:
        return Claim(words, None, "No bias was told from zero.")
    crossings = {each.label: each.variance / each.squared_bias for each in told}
    before = [label for label, n in crossings.items() if n < batch]
    listed = "; ".join(f"{label}: {n:.2g}" for label, n in crossings.items())
    return Claim(
        words,
        len(before) == len(crossings) if len(before) in (0, len(crossings)) else None,
        f"It does for {len(before)} of {len(crossings)} estimators with a bias told from zero. N "
        f"where both are equal: {listed}.",
    )


def correlates(words: str, x: Numbers, y: Numbers, *, sign: int, of: str = "") -> Claim:
    """A monotone relation of the claimed sign, by Spearman's ρ."""
    rho, p, n = spearman(x, y)
    where = f"{of}: " if of else ""
    if math.isnan(rho):
        return Claim(words, None, f"{where}too few points ({n}).")
    holds = (rho * sign > 0) if p < LEVEL else None
    return Claim(words, holds, f"{where}Spearman's ρ = {rho:+.2f} over {n} points (p = {p:.2g}).")


def stable(words: str, curves: Sequence[Mapping[int, float]]) -> list[str]:
    """How far curves over seeds (bound by part of the steps) lie apart at each part."""
    parts = sorted({part for curve in curves for part in curve}, reverse=True)
    found = []
    for part in parts:
        values = [curve[part] for curve in curves if part in curve]
        if len(values) > 1:
            found.append(f"{max(values) - min(values):.2f} nats at {_share(part)}")
    if not found:
        return [f"{words}: one seed or none yet."]
    return [f"{words}: {len(curves)} seeds of the score lie apart by {', '.join(found)}."]


def spread(curves: Sequence[Mapping[int, float]], *, early: bool) -> float:
    """The largest distance between seeds in the first half of the parts, or at the end."""
    parts = sorted({part for curve in curves for part in curve}, reverse=True)
    chosen = parts[: max(1, len(parts) // 2)] if early else parts[-1:]
    apart = []
    for part in chosen:
        values = [curve[part] for curve in curves if part in curve]
        if len(values) > 1:
            apart.append(max(values) - min(values))
    return max(apart, default=math.nan)


def worse_conditioned(policy: Numbers, sampler: Numbers) -> Claim:
    """Under the final policy the Jacobian is worse conditioned: by medians and Mann–Whitney's U."""
    from scipy.stats import mannwhitneyu

    words = "Under the final policy ∂y/∂ξ is worse conditioned than under the sampler."
    if len(policy) < FEW or len(sampler) < FEW:
        return Claim(words, None, "There are too few trajectories.")
    p = float(mannwhitneyu(policy, sampler, alternative="two-sided").pvalue)
    above, below = float(np.median(policy)), float(np.median(sampler))
    return Claim(
        words,
        above > below if p < LEVEL else None,
        f"Medians {above:.3g} and {below:.3g} over {len(policy)} and {len(sampler)} trajectories "
        f"(Mann–Whitney p = {p:.2g}).",
    )


def _share(part: int) -> str:
    return "the whole" if part == 1 else f"1/{part}"
