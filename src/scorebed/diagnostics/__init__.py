"""Is a score good? Its EIG gradient, its error, and where its policy goes, against a ground truth.

`direction` has the cosine and length of its gradient as training uses it, `gradient_error` the bias
and variance of the plain one, `score_error` the errors of the score itself, `error_bound` and
`decomposition` the paper's theory about both (together: `theory`), `groups` how they are estimated,
`ground_truth` what they are compared with, `coverage` which designs resemble those the score was
trained on, `conditioning` how errors grow on their way into the gradient; `verdict` says all of it
in one sentence. `diagnose` does everything.
"""

from scorebed.diagnostics.conditioning import conditioning
from scorebed.diagnostics.coverage import NEIGHBOURS, SLACK, Coverage, coverage
from scorebed.diagnostics.decomposition import LossParts, MSMDecomposition, loss_decomposition
from scorebed.diagnostics.diagnosis import TRAINED, UNTRAINED, Comparison, Diagnosis, diagnose
from scorebed.diagnostics.direction import Direction, Directions, Tails, gradient_direction
from scorebed.diagnostics.error_bound import ErrorBound, error_bound, operator_norm
from scorebed.diagnostics.gradient_error import GradientError, GradientErrors, gradient_error
from scorebed.diagnostics.gradient_groups import PLAIN, Clipping
from scorebed.diagnostics.ground_truth import FEW_DRAWS, Quality, effective_draws
from scorebed.diagnostics.groups import Agreement, Estimate
from scorebed.diagnostics.score_error import PerTrajectory, ScoreError, per_trajectory, score_error
from scorebed.diagnostics.theory import Theory, measured_theory
from scorebed.diagnostics.values import BATCHES
from scorebed.diagnostics.verdict import (
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
    "PLAIN",
    "REMEDY",
    "SLACK",
    "TRAINED",
    "UNTRAINED",
    "Agreement",
    "Clipping",
    "Comparison",
    "Coverage",
    "Diagnosis",
    "Direction",
    "Directions",
    "ErrorBound",
    "Estimate",
    "GradientError",
    "GradientErrors",
    "LossParts",
    "MSMDecomposition",
    "PerTrajectory",
    "Quality",
    "RelativeBias",
    "ScoreError",
    "Tails",
    "Theory",
    "conditioning",
    "coverage",
    "diagnose",
    "effective_draws",
    "error_bound",
    "gradient_direction",
    "gradient_error",
    "loss_decomposition",
    "measured_theory",
    "operator_norm",
    "per_trajectory",
    "relative_bias",
    "score_error",
    "uncovered",
    "verdict",
    "verdict_without_truth",
]
