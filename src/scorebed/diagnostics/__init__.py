"""Is a score good? Its EIG gradient, its error, and where its policy goes, against a ground truth.

`gradient_error` has the errors of a score and of its gradient, `groups` how they are estimated,
`coverage` which designs resemble those the score was trained on, `conditioning` how errors grow on
their way into the gradient; `verdict` says all of it in one sentence. `diagnose` does everything.
"""

from scorebed.diagnostics.conditioning import conditioning
from scorebed.diagnostics.coverage import NEIGHBOURS, SLACK, Coverage, coverage
from scorebed.diagnostics.diagnosis import BATCHES, Comparison, Diagnosis, diagnose
from scorebed.diagnostics.gradient_error import (
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
    relative_bias,
    uncovered,
    verdict,
    verdict_without_truth,
)

__all__ = [
    "BATCHES",
    "FEW_DRAWS",
    "NEIGHBOURS",
    "REMEDY",
    "SLACK",
    "Comparison",
    "Coverage",
    "Diagnosis",
    "Estimate",
    "GradientError",
    "GradientErrors",
    "RelativeBias",
    "ScoreError",
    "conditioning",
    "coverage",
    "diagnose",
    "effective_draws",
    "gradient_error",
    "relative_bias",
    "score_error",
    "uncovered",
    "verdict",
    "verdict_without_truth",
]
