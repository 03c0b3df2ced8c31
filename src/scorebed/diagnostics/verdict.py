"""What a diagnosis amounts to: one sentence about the direction and length of a score's gradient.

The word follows from the cosine c between the score's gradient and the true one, as training uses
both, at the untrained and the trained policy together: each counts by the size of its gradient, so
that a trained policy, where the true gradient is close to zero, matters only as far as either
gradient there does. A step of a given length gains c times what the true gradient would.

    Good        c − 2 se ≥ 0.9, and a length within a factor of two
    Fair        c − 2 se ≥ 0.5
    Poor        c + 2 se < 0.5, or a length below a quarter by two standard errors: the gradients
                of its trajectories cancel each other
    Undecided   none of these, or no truth to trust
    Doubtful    fair or good, but c at the trained policy is not known, and it goes where the score
                was not trained"""

import math
from collections.abc import Mapping
from typing import NamedTuple

from scorebed.diagnostics.coverage import Coverage
from scorebed.diagnostics.direction import Direction, Tails
from scorebed.diagnostics.gradient_error import GradientError
from scorebed.diagnostics.ground_truth import TRUSTED, Quality
from scorebed.diagnostics.groups import Agreement, Estimate

GOOD, FAIR = 0.9, 0.5  # cosines
LENGTHS = (0.5, 2.0)
SHORT = 0.25
ERRORS = 2.0  # standard errors
SURE = 3.0  # of them, before more trajectories are spared: it is asked many times
HEAVY = 0.5  # share of the squared error that the worst 1% carry
OUTSIDE = 0.05  # share of uncovered designs; of the sampler's designs almost none are
REMEDY = (
    "Fix: --method jointscore goes on training the score on the policy's designs; "
    "or give the task a design range that the sampler fills."
)


class RelativeBias(NamedTuple):
    """‖B‖ in units of a gradient's norm, and the same at two standard errors above."""

    value: float
    upper: float


def relative_bias(error: GradientError, *others: GradientError) -> RelativeBias:
    """‖B‖ of the plain mean over the largest of the true gradients' norms.

    The gradient at a trained policy is close to zero, so that any bias is large against it; that at
    the untrained policy, among `others`, is the one that matters. NaN where no gradient
    differs from zero."""
    norm = max(e.squared_norm.value for e in (error, *others))
    if not norm > 0:
        return RelativeBias(math.nan, math.nan)
    value, se = error.squared_bias
    return RelativeBias(math.sqrt(max(value, 0) / norm), math.sqrt(max(value + 2 * se, 0) / norm))


def uncovered(covered: Coverage) -> str:
    """What a policy does where its score was not trained, in words; nothing while that is rare."""
    if covered.share <= OUTSIDE:
        return ""
    worst = int(covered.outside.argmax())
    return (
        f"{covered.share:.0%} of the policy's designs are not covered by the sampler "
        f"({covered.outside[worst]:.0%} at step {worst + 1}): the score was not trained there"
    )


def verdict_without_truth(covered: Coverage) -> str:
    """One sentence about a score without a ground truth."""
    if sentence := uncovered(covered):
        return f"Doubtful: {sentence}. {REMEDY}"
    return (
        "Unknown: there is no truth to compare with, but the sampler covers the policy's designs."
    )


def is_clear(overall: Agreement) -> bool:
    """Whether the cosine lies on one side of every threshold by three standard errors."""
    value, se = overall.cosine
    if not math.isfinite(value) or not math.isfinite(se):
        return False
    return all(abs(value - threshold) > SURE * se for threshold in (GOOD, FAIR))


def verdict(
    overall: Agreement,
    places: Mapping[str, Direction],
    covered: Coverage,
    quality: Quality = TRUSTED,
) -> str:
    """One sentence, from the agreement over all policies, that at each of them by name (the one
    whose designs `covered` is about last), and the quality of the ground truth.
    """
    if doubt := quality.doubt:
        return (
            f"Undecided: the ground truth cannot be trusted, {doubt}; use another --truth, or more "
            "--inner, --particles or --draws."
        )
    value, se = overall.cosine
    if not math.isfinite(value) or not math.isfinite(se):
        return "Undecided: the true gradient cannot be distinguished from zero; use more --outer."
    found = _in_words(overall, places) + _tails_in_words(places)
    outside = uncovered(covered)
    short = overall.length.value + ERRORS * overall.length.se < SHORT
    if short or value + ERRORS * se < FAIR:
        fix = REMEDY if outside else "Fix: train the score longer."
        return f"Poor: {found}. {f'{outside[0].upper()}{outside[1:]}. ' if outside else ''}{fix}"
    if value - ERRORS * se < FAIR:
        return f"Undecided: {found}; use more --outer or --minutes."
    if outside and not _established(list(places.values())[-1].used.cosine):
        return f"Doubtful: {outside}; {found}. {REMEDY}"
    length = overall.length.value
    good = value - ERRORS * se >= GOOD and LENGTHS[0] <= length <= LENGTHS[1]
    where = (
        f"{covered.share:.0%} of its policy's designs are not covered by the sampler"
        if outside
        else "the sampler covers its policy's designs"
    )
    return f"{'Good' if good else 'Fair'}: {found}; {where}."


def _established(cosine: Estimate) -> bool:
    return cosine.value - ERRORS * cosine.se >= FAIR


def _in_words(overall: Agreement, places: Mapping[str, Direction]) -> str:
    sentence = (
        f"as training uses it, its gradient has cosine {_pm(overall.cosine)} with the true one and "
        f"{_pm(overall.length)} times its length"
    )
    if len(places) < 2:
        return sentence
    each = "; ".join(f"{name} policy: {_at(place.used)}" for name, place in places.items())
    return f"{sentence} ({each})"


def _at(found: Agreement) -> str:
    if not math.isfinite(found.cosine.value):
        return "a gradient that cannot be told from zero"
    return f"{_pm(found.cosine)} and {_pm(found.length)}"


def _tails_in_words(places: Mapping[str, Direction]) -> str:
    """Heavy tails of the error at the last of the policies."""
    tails: Tails = list(places.values())[-1].tails
    if not tails.worst > HEAVY:
        return ""
    return (
        f"; its error has heavy tails: 1% of the trajectories carry {tails.worst:.0%} of the sum "
        f"of squares (relative error: median {tails.median:.2g}, root mean square {tails.mean:.2g})"
    )


def _pm(estimate: Estimate) -> str:
    return f"{estimate.value:.2f} ± {estimate.se:.2f}"
