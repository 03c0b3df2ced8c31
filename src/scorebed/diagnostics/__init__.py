"""Is a score good? Its EIG gradient, its own error, and where its policy goes, against a ground
truth.

`against_truth` has the errors of a score and of its gradient, `groups` how they are estimated,
`reach` which designs the score has seen the like of, `jacobian` how errors grow on their way into
the gradient; `judgement` says all of it in one sentence."""

from scorebed.diagnostics.conditioning import conditioning
from scorebed.diagnostics.coverage import REACH, SLACK, Coverage, coverage
from scorebed.diagnostics.gradient_errors import (
    GradientError,
    GradientErrors,
    ScoreError,
    effective_draws,
    gradient_error,
    score_error,
)
from scorebed.diagnostics.groups import Estimate
from scorebed.diagnostics.verdict import (
    FEW_DRAWS,
    REMEDY,
    RelativeBias,
    out_of_reach,
    relative_bias,
    verdict,
    verdict_without_truth,
)

__all__ = [
    "FEW_DRAWS",
    "REACH",
    "REMEDY",
    "SLACK",
    "Coverage",
    "Estimate",
    "GradientError",
    "GradientErrors",
    "RelativeBias",
    "ScoreError",
    "conditioning",
    "coverage",
    "effective_draws",
    "gradient_error",
    "out_of_reach",
    "relative_bias",
    "score_error",
    "verdict",
    "verdict_without_truth",
]
