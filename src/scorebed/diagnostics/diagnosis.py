"""A whole diagnosis of a score: coverage, conditioning, errors of its gradient and of itself, and a
verdict.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from jaxtyping import Float, PRNGKeyArray

from scorebed.diagnostics.conditioning import conditioning
from scorebed.diagnostics.coverage import Coverage, coverage
from scorebed.diagnostics.gradient_error import (
    GradientError,
    ScoreError,
    gradient_error,
    score_error,
)
from scorebed.diagnostics.ground_truth import TRUTHS, GroundTruth
from scorebed.diagnostics.groups import grouping
from scorebed.diagnostics.verdict import (
    RelativeBias,
    relative_bias,
    verdict,
    verdict_without_truth,
)
from scorebed.keys import named
from scorebed.nle import Ledger
from scorebed.policies.base import Policy
from scorebed.policies.random import RandomDesigns
from scorebed.samplers.base import DesignSampler
from scorebed.samplers.paper import paper_sampler
from scorebed.scores.base import Score
from scorebed.scores.reference import INNER, PARTICLES
from scorebed.tasks.base import Task
from scorebed.tasks.nuisance import has_nuisance

RIVALS = (15, 255)  # contrastive parameters of the PCE curves
QUANTILES = {"10%": 0.1, "median": 0.5, "90%": 0.9}
BATCHES = tuple(4**i for i in range(9))  # sizes at which the error of a gradient is given

# (stage, groups done, groups in all); first with none done.
OnStage: TypeAlias = Callable[[str, int, int], None]


class Comparison(NamedTuple):
    """A score against the ground truth: errors of its gradient at the trained policy and at an
    untrained one, those of PCE by its number of contrastive parameters, and its own errors by whose
    designs are used.
    """

    against: GroundTruth
    bias: RelativeBias
    trained: GradientError
    untrained: GradientError | None
    pce: Mapping[int, GradientError]
    errors: Mapping[str, ScoreError]

    @property
    def curves(self) -> dict[str, GradientError]:
        """The gradient errors at the trained policy, by the name of the estimator."""
        rivals = {f"PCE, M = {count}": error for count, error in self.pce.items()}
        return {"the score": self.trained} | rivals


@dataclasses.dataclass(frozen=True)
class Diagnosis:
    """What `diagnose` found. `comparison` is None where there is no ground truth."""

    verdict: str
    """One sentence, which starts with Good, Fair, Poor, Doubtful, Undecided or Unknown."""
    outer: int
    """Number of trajectories, N."""
    coverage: Coverage
    """Which of the policy's designs resemble those of the sampler."""
    conditioning: Mapping[str, Float[np.ndarray, " N"]]
    """Condition numbers of ∂y/∂ξ, by whose designs are used."""
    comparison: Comparison | None
    """The score and its gradient against the ground truth."""
    nle_stages: Mapping[str, int]
    """Likelihood evaluations spent, by stage."""

    @property
    def nle(self) -> int:
        """Likelihood evaluations spent in all."""
        return sum(self.nle_stages.values())

    def values(self) -> dict[str, Any]:
        """Everything in plain values, for JSON."""
        found = self.comparison
        return {
            **(
                {"outer": self.outer, "verdict": self.verdict}
                if found is None
                else _compared(found, self.verdict)
            ),
            "coverage": {
                "outside": self.coverage.share,
                "outside_by_step": [float(x) for x in self.coverage.outside],
            },
            "conditioning": {
                name: {
                    label: float(np.quantile(numbers, q, method="lower"))
                    for label, q in QUANTILES.items()
                }
                for name, numbers in self.conditioning.items()
            },
            "nle": self.nle,
            "nle_stages": dict(self.nle_stages),
        }


def diagnose(
    task: Task,
    score: Score,
    policy: Policy,
    sampler: DesignSampler | None = None,
    *,
    untrained: Policy | None = None,
    outer: int = 512,
    truth: str = "auto",
    inner: int = INNER,
    particles: int = PARTICLES,
    on_group: OnStage = lambda *_: None,
    key: PRNGKeyArray,
) -> Diagnosis:
    """Is a score good? Compare it, and the policy gradient that it gives, with a ground truth.

    Without a density, or with nuisance parameters, there is no ground truth: then only coverage and
    conditioning are found.

    Arguments:
        task: the experiment.
        score: the score to judge.
        policy: a policy that it has trained.
        sampler: the designs that the score was trained on; the paper's for the task if left out.
        untrained: a fresh policy of the same kind. At a trained policy the true gradient is close
            to zero; with this one the bias is given in units of the larger of both gradients.
        outer: number of trajectories, at least 8.
        truth: "importance", "smc", or "auto": the closed form if there is one, importance sampling
            where draws of the prior are enough, tempered SMC elsewhere.
        inner: draws of the prior for importance sampling.
        particles: particles of tempered SMC.
        on_group: called with the stage, its groups done and its groups in all; first with none
            done.
        key: the random key.

    Returns:
        A `Diagnosis` with `.verdict`, and everything in plain values by `.values()`.

    Raises:
        InvalidValueError: if `outer` is below 8.
        UnknownNameError: if there is no ground truth of that name.

    Example:
        With `task`, `sampler` and `score` as in the example of `train_score`:

        >>> policy = sb.make_policy("static", task, key=jr.key(0))
        >>> found = sb.diagnose(task, score, policy, sampler, outer=16, key=jr.key(3))
        >>> found.verdict.split(":")[0] in ("Good", "Fair", "Poor", "Doubtful", "Undecided")
        True
    """
    find_truth, ledger = TRUTHS.find(truth), Ledger()
    groups, _ = grouping(outer)
    chosen = sampler or paper_sampler(task)
    designs = {"sampler": RandomDesigns(chosen), "policy": policy}
    covered = coverage(task, chosen, policy, outer=outer, key=named(key, "coverage"))
    conditions = {
        name: conditioning(task, each, key=named(key, "conditioning", name))
        for name, each in designs.items()
    }
    if not task.has_density or has_nuisance(task):
        sentence = verdict_without_truth(covered)
        return Diagnosis(sentence, outer, covered, conditions, None, ledger.totals)
    against = find_truth(task, policy, inner, particles, ledger, key=named(key, "draws"))

    def compare(stage: str, measure: Callable[..., Any], policy: Policy, **options: Any) -> Any:
        on_group(stage, 0, groups)
        found = measure(
            task,
            score,
            against.truth,
            policy,
            outer=outer,
            on_group=lambda done, total: on_group(stage, done, total),
            key=named(key, stage),
            **options,
        )
        ledger.charge(stage, found.nle)
        return found

    trained, pce, _ = compare("gradient", gradient_error, policy, pce=RIVALS)
    start: GradientError | None = None
    if untrained is not None:
        start = compare("gradient-untrained", gradient_error, untrained).score
    errors = {name: compare(f"score-{name}", score_error, each) for name, each in designs.items()}
    bias = relative_bias(trained, *([] if start is None else [start]))
    return Diagnosis(
        verdict=verdict(bias, covered, ess=against.ess),
        outer=trained.outer,
        coverage=covered,
        conditioning=conditions,
        comparison=Comparison(against, bias, trained, start, pce, errors),
        nle_stages=ledger.totals,
    )


class _Compared(NamedTuple):
    """The answer about a score, field by field as in `diagnosis.json`."""

    truth: str
    outer: int
    inner: int | None
    particles: int | None
    effective_draws: float
    verdict: str
    relative_bias: float
    relative_bias_upper: float
    gradient: dict[str, Any]
    pce: list[dict[str, Any]]
    batches: list[int]
    score_error: dict[str, Any]


def _compared(found: Comparison, sentence: str) -> dict[str, Any]:
    both = {"trained": found.trained, "untrained": found.untrained}
    return _Compared(
        truth=found.against.name,
        outer=found.trained.outer,
        inner=found.against.inner,
        particles=found.against.particles,
        effective_draws=found.against.ess,
        verdict=sentence,
        relative_bias=found.bias.value,
        relative_bias_upper=found.bias.upper,
        gradient={name: _gradient(e) for name, e in both.items() if e is not None},
        pce=[{"inner": count, **_gradient(error)} for count, error in found.pce.items()],
        batches=list(BATCHES),
        score_error={name: _score_error(error) for name, error in found.errors.items()},
    )._asdict()


def _gradient(error: GradientError) -> dict[str, Any]:
    return {
        "squared_bias": error.squared_bias.value,
        "squared_bias_se": error.squared_bias.se,
        "squared_norm": error.squared_norm.value,
        "squared_norm_se": error.squared_norm.se,
        "variance": error.variance,
        "crossover": error.crossover,
        "mse": [error.mse(n) for n in BATCHES],
    }


def _score_error(error: ScoreError) -> dict[str, float]:
    return {"y": error.y.value, "y_se": error.y.se, "xi": error.xi.value, "xi_se": error.xi.se}
