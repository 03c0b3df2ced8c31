"""What a diagnosis amounts to: the bias in units of the gradient, and one sentence."""

import math
from typing import NamedTuple

from scorebed.diagnostics.coverage import Coverage
from scorebed.diagnostics.gradient_error import GradientError

GOOD, FAIR = 0.05, 0.20  # relative bias of the gradient
OUTSIDE = 0.05  # share of uncovered designs; of the sampler's designs almost none are
FEW_DRAWS = 100.0
REMEDY = (
    "Fix: --method jointscore goes on training the score on the policy's designs; "
    "or give the task a design range that the sampler fills."
)


class RelativeBias(NamedTuple):
    """‖B‖ in units of a gradient's norm, and the same at two standard errors above."""

    value: float
    upper: float


def relative_bias(error: GradientError, *others: GradientError) -> RelativeBias:
    """‖B‖ over the largest of the true gradients' norms.

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


def verdict(bias: RelativeBias, covered: Coverage, *, ess: float = math.inf) -> str:
    """One sentence. `ess` is the effective sample size of the ground truth on its worse
    histories.
    """
    if ess < FEW_DRAWS:
        return (
            f"Undecided: the ground truth has only {ess:.0f} effective draws on its worse "
            "histories; use --truth smc, or more --inner."
        )
    size = (
        f"the bias of its gradient is {bias.value:.1%} of the gradient's norm (at most "
        f"{bias.upper:.1%})"
    )
    if math.isnan(bias.value):
        return "Undecided: the true gradient cannot be distinguished from zero; use more --outer."
    if bias.value >= FAIR:
        return f"Poor: {size}; train the score longer."
    if sentence := uncovered(covered):
        return f"Doubtful: {sentence}; {size}. {REMEDY}"
    if bias.upper >= FAIR:
        return f"Undecided: {size}; use more --outer."
    if bias.value >= GOOD:
        return f"Fair: {size}, and the sampler covers its policy's designs."
    return f"Good: {size}, and the sampler covers its policy's designs."
