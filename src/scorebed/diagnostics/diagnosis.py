"""A whole diagnosis of a score: does its gradient point where the true one does, how large are its
errors, does the sampler cover the policy's designs; and a verdict.
"""

import dataclasses
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from jaxtyping import Float, PRNGKeyArray

from scorebed.diagnostics.conditioning import conditioning
from scorebed.diagnostics.coverage import Coverage, coverage
from scorebed.diagnostics.direction import Direction, direction_of, group_size, used_products
from scorebed.diagnostics.gradient_error import GradientError, errors_of
from scorebed.diagnostics.gradient_groups import (
    Clipping,
    GradientGroup,
    gradient_group,
    group_nle,
)
from scorebed.diagnostics.ground_truth import TRUTHS, GroundTruth, Sizes
from scorebed.diagnostics.groups import Agreement, agreement
from scorebed.diagnostics.score_error import ScoreError, per_trajectory
from scorebed.diagnostics.theory import Theory, measured_theory
from scorebed.diagnostics.values import compared_values
from scorebed.diagnostics.verdict import (
    RelativeBias,
    is_clear,
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
from scorebed.scores.reference import DRAWS, INNER, PARTICLES
from scorebed.tasks.base import Task
from scorebed.tasks.nuisance import has_nuisance

OUTER = 2048
MINUTES = 2.0
RIVALS = (15, 255)  # contrastive parameters of the PCE curves
QUANTILES = {"10%": 0.1, "median": 0.5, "90%": 0.9}
LEAST = 8  # groups before a verdict
SCORE_GROUPS = 4  # for the errors of the score itself, which decide nothing
TRAINED, UNTRAINED = "trained", "untrained"

# (stage, groups done, groups in all); first with none done.
OnStage: TypeAlias = Callable[[str, int, int], None]


class Comparison(NamedTuple):
    """A score against the ground truth: its gradient's agreement with the true one over all
    policies, and the direction and errors at each of them; the errors of PCE at the trained policy
    by its number of contrastive parameters; the score's own errors by whose designs are used.
    """

    against: GroundTruth
    agreement: Agreement
    directions: Mapping[str, Direction]
    bias: RelativeBias
    gradient: Mapping[str, GradientError]
    pce: Mapping[int, GradientError]
    errors: Mapping[str, ScoreError]
    theory: Theory | None = None
    """The paper's theory, measured, where it was asked for."""

    @property
    def curves(self) -> dict[str, GradientError]:
        """The gradient errors at the trained policy, by the name of the estimator."""
        rivals = {f"PCE, M = {count}": error for count, error in self.pce.items()}
        return {"the score": self.gradient[TRAINED]} | rivals


@dataclasses.dataclass(frozen=True)
class Diagnosis:
    """What `diagnose` found. `comparison` is None where there is no ground truth."""

    verdict: str
    """One sentence, which starts with Good, Fair, Poor, Doubtful, Undecided or Unknown."""
    outer: int
    """Number of trajectories of each policy, N."""
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
                else compared_values(found, self.verdict, self.outer)
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
    batch: int = 64,
    trajectory_clip: float = 0.0,
    outer: int = OUTER,
    minutes: float = MINUTES,
    theory: int = 0,
    truth: str = "auto",
    inner: int = INNER,
    particles: int = PARTICLES,
    draws: int = DRAWS,
    on_group: OnStage = lambda *_: None,
    key: PRNGKeyArray,
) -> Diagnosis:
    """Is a score good? Compare the policy gradient that it gives, as training uses it, with the
    true one on the same draws.

    It ends when the verdict is clear, and at the latest after `outer` trajectories of each policy
    or about so many `minutes`. Without a density, or with nuisance parameters, there is no ground
    truth: then only coverage and conditioning are found.

    Arguments:
        task: the experiment.
        score: the score to judge.
        policy: a policy that it has trained.
        sampler: the designs that the score was trained on; the paper's for the task if left out.
        untrained: a fresh policy of the same kind. At a trained policy the true gradient is close
            to zero; with this one the direction at the start is judged too.
        batch: simulated experiments per step of the policy's training.
        trajectory_clip: longest gradient of one trajectory in that training, in medians; 0 for the
            plain mean.
        outer: most trajectories of each policy, at least 8.
        minutes: about how long to go on; a group of trajectories is always finished.
        theory: trajectories on which the paper's bound on the gradient's error and the parts of the
            loss are found as well, whatever the time, at least 8; 0 leaves them out.
        truth: "importance", "laplace-mixture", "smc", or "auto": the closed form if there is one,
            weighted draws around the posterior's modes where these tell nearly all, importance
            sampling where draws of the prior are enough, tempered SMC elsewhere.
        inner: draws of the prior for importance sampling.
        particles: particles of tempered SMC.
        draws: draws around the posterior's modes.
        on_group: called with the stage, its groups done and its groups in all; first with none
            done.
        key: the random key.

    Returns:
        A `Diagnosis` with `.verdict`, and everything in plain values by `.values()`.

    Raises:
        InvalidValueError: if `outer`, or `theory` where it is given, is below 8.
        UnknownNameError: if there is no ground truth of that name.

    Example:
        With `task`, `sampler` and `score` as in the example of `train_score`:

        >>> policy = sb.make_policy("static", task, key=jr.key(0))
        >>> found = sb.diagnose(task, score, policy, sampler, outer=16, key=jr.key(3))
        >>> found.verdict.split(":")[0] in ("Good", "Fair", "Poor", "Doubtful", "Undecided")
        True
    """
    deadline = time.monotonic() + 60 * minutes
    find_truth, ledger = TRUTHS.find(truth), Ledger()
    clipping = Clipping(batch, trajectory_clip)
    size = group_size(clipping, outer)
    chosen = sampler or paper_sampler(task)
    designs = {"sampler": RandomDesigns(chosen), "policy": policy}
    covered = coverage(task, chosen, policy, outer=min(outer, 512), key=named(key, "coverage"))
    if not task.has_density or has_nuisance(task):
        conditions = {
            name: conditioning(task, each, key=named(key, "conditioning", name))
            for name, each in designs.items()
        }
        sentence = verdict_without_truth(covered)
        return Diagnosis(sentence, outer, covered, conditions, None, ledger.totals)
    # The trained one last: its tails and its coverage are told.
    policies = ({} if untrained is None else {UNTRAINED: untrained}) | {TRAINED: policy}
    sizes = Sizes(inner, particles, draws)
    against = find_truth(task, list(policies.values()), sizes, ledger, key=named(key, "draws"))
    groups = _gradients(
        task, score, against, policies, size, clipping, outer, deadline, ledger, on_group, key
    )
    errors, conditions = {}, {}
    for name, each in designs.items():
        stage = f"score-{name}"
        on_group(stage, 0, SCORE_GROUPS)
        found = per_trajectory(
            task,
            score,
            against.truth,
            each,
            outer=SCORE_GROUPS * size,
            size=size,
            on_group=lambda done, total, stage=stage: on_group(stage, done, total),  # type: ignore[misc]
            stop=lambda: time.monotonic() > deadline,
            key=named(key, stage),
        )
        ledger.charge(stage, found.nle)
        errors[name], conditions[name] = found.error(), found.condition
    measured = None
    if theory:
        measured = measured_theory(
            task,
            score,
            against.truth,
            policy,
            designs,
            outer=theory,
            on_group=on_group,
            key=named(key, "theory"),
        )
        for stage, nle in measured.nle.items():
            ledger.charge(stage, nle)
    directions = {name: direction_of(each) for name, each in groups.items()}
    overall = agreement(*(used_products(each) for each in groups.values()))
    gradient = {name: errors_of(each, ())[0] for name, each in groups.items()}
    others = [error for name, error in gradient.items() if name != TRAINED]
    return Diagnosis(
        verdict=verdict(overall, directions, covered, against.quality),
        outer=directions[TRAINED].outer,
        coverage=covered,
        conditioning=conditions,
        comparison=Comparison(
            against=against,
            agreement=overall,
            directions=directions,
            bias=relative_bias(gradient[TRAINED], *others),
            gradient=gradient,
            pce=errors_of(groups[TRAINED], RIVALS)[1],
            errors=errors,
            theory=measured,
        ),
        nle_stages=ledger.totals,
    )


def _gradients(
    task: Task,
    score: Score,
    against: GroundTruth,
    policies: Mapping[str, Policy],
    size: int,
    clipping: Clipping,
    outer: int,
    deadline: float,
    ledger: Ledger,
    on_group: OnStage,
    key: PRNGKeyArray,
) -> dict[str, list[GradientGroup]]:
    """Groups of every policy in turn, until the verdict is clear or the time is over."""
    count = -(-outer // size)
    found: dict[str, list[GradientGroup]] = {name: [] for name in policies}
    stages = {name: "gradient" if name == TRAINED else f"gradient-{name}" for name in policies}
    on_group("gradient", 0, count)
    for g in range(count):
        for name, policy in policies.items():
            pce = RIVALS if name == TRAINED else ()
            group = gradient_group(
                task,
                score,
                against.truth,
                policy,
                size,
                clipping,
                pce,
                named(key, stages[name], g),
            )
            found[name].append(group)
            spent = int(group.passes) * against.truth(key).pass_nle
            ledger.charge(stages[name], group_nle(task, score, policy, size, pce) + spent)
        enough = g + 1 >= LEAST and (
            time.monotonic() > deadline
            or is_clear(agreement(*(used_products(each) for each in found.values())))
        )
        on_group("gradient", count if enough else g + 1, count)
        if enough:
            break
    return found
