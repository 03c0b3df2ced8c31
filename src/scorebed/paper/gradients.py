"""Bias and variance of policy gradients on one task: of scores part of the way of their training,
and of PCE with several numbers of contrastive parameters.

All are taken at one policy, which the paper does not name: one that PCE has trained for a share of
the steps of its row. It is neither at its start, where designs are those of no experiment, nor at
its end, where the true gradient is zero, and it depends on none of the scores (decision 031).
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.random as jr

from scorebed.diagnostics.gradient_error import GradientError
from scorebed.diagnostics.ground_truth import TRUTHS, Sizes
from scorebed.diagnostics.several_scores import several_gradient_errors
from scorebed.keys import named
from scorebed.nle import Ledger
from scorebed.paper.data import read
from scorebed.paper.rows import TableRow, spending
from scorebed.paper.running import chosen_policy, run_planned
from scorebed.paper.study import Study
from scorebed.paper.trained_scores import ScoreOfRow, named_row, one_policy, run_of
from scorebed.paper.units import Unit, UnitPlan, carry_out, record_name
from scorebed.runs.begin import NewRun
from scorebed.runs.load import open_run
from scorebed.runs.milestones import milestone_after, milestone_learned
from scorebed.runs.stage import Progress
from scorebed.runs.user_parts import BUILT_IN


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReferencePolicy(Unit):
    """The policy at which gradients are taken: a row's, after 1/`part` of its steps."""

    row: TableRow
    part: int

    @property
    def name(self) -> str:
        return f"{self.row.name}-at1of{self.part}"

    def definition(self) -> dict[str, Any]:
        return {**self.row.definition(), "part": self.part}

    def estimate(self, study: Study) -> UnitPlan:
        return UnitPlan(spending(self._planned(study)).total, f"1/{self.part} of the steps")

    def carry_out(self, study: Study, *, progress: Progress) -> dict[str, Any]:
        words = f"the policy of {self.row.name} after 1/{self.part} of its steps"
        path = study.runs_folder / record_name(self, study)
        return run_planned(self._planned(study), path, words, progress=progress)

    def _planned(self, study: Study) -> NewRun:
        settings = self.row.planned(study).config.trained_by.policy_settings
        assert settings is not None, "the rows of references train policies"
        fewer = f"policy_training.steps={max(1, settings.steps // self.part)}"
        return one_policy(
            self.row.planned(dataclasses.replace(study, overrides=(fewer, *study.overrides)))
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class GradientErrorsOf(Unit):
    """Errors of the gradients of `scores` after 1/part of their steps, for each of `parts`, and of
    PCE with each of `inner`, at one policy.
    """

    task: str
    scores: tuple[ScoreOfRow, ...]
    parts: tuple[int, ...]
    inner: tuple[int, ...]
    reference: ReferencePolicy

    @property
    def name(self) -> str:
        return f"{self.task}-gradients"

    def definition(self) -> dict[str, Any]:
        return {
            "scores": [score.definition() for score in self.scores],
            "parts": list(self.parts),
            "inner": list(self.inner),
            "reference": self.reference.definition(),
        }

    def estimate(self, study: Study) -> UnitPlan:
        sizes = _sizes(study)
        each = sum(m + 1 for m in self.inner) + sizes["inner"]
        horizon = self.reference.row.planned(study).task.horizon
        return UnitPlan(sizes["outer"] * each * horizon, f"{sizes['outer']} trajectories")

    def carry_out(self, study: Study, *, progress: Progress) -> dict[str, Any]:
        places, scores = [], []
        for score in self.scores:
            run = run_of(score.row, study, progress=progress)
            for part in self.parts:
                step, _ = milestone_after(run, part, score.number)
                places.append({"seed": score.seed, "part": part, "step": step})
                scores.append(milestone_learned(run, step, score.number))
        carry_out([self.reference], study, progress=progress)
        at = open_run(study.runs_folder / record_name(self.reference, study), BUILT_IN)
        policy, task, sizes = chosen_policy(at, 0), at.task, _sizes(study)
        key, ledger = named(jr.key(study.seed), self.name), Ledger()
        truth = TRUTHS["auto"](
            task,
            [policy],
            Sizes(sizes["inner"], sizes["smc"]),
            ledger,
            key=named(key, "truth"),
        )
        progress.begin(self.name, 0, 0)
        found = several_gradient_errors(
            task,
            scores,
            truth.truth,
            policy,
            outer=sizes["outer"],
            pce=self.inner,
            on_group=lambda done, total: progress.update(done, "", total),
            key=named(key, "errors"),
        )
        norm = found.scores[0].squared_norm
        progress.end(f"{self.name}: {found.scores[0].outer} trajectories, truth by {truth.name}")
        jax.clear_caches()
        return {
            "scores": [
                {**place, **_values(error)}
                for place, error in zip(places, found.scores, strict=True)
            ],
            "rivals": [{"inner": m, **_values(error)} for m, error in found.pce.items()],
            "squared_norm": norm.value,
            "squared_norm_se": norm.se,
            "truth": truth.name,
            "truth_doubt": truth.quality.doubt,
            "outer": found.scores[0].outer,
            "nle": found.nle + ledger.spent,
        }


def gradient_errors_of(
    task: str, scores: tuple[ScoreOfRow, ...]
) -> tuple[ReferencePolicy, GradientErrorsOf]:
    """The reference policy of a task and the errors there, as `items.toml` has them."""
    shared = read("items")["gradients"]
    values = shared["tasks"][task]
    row = named_row(values["table"], task, values["reference"])
    reference = ReferencePolicy(row=row, part=shared["reference_part"])
    return reference, GradientErrorsOf(
        task=task,
        scores=scores,
        parts=tuple(shared["parts"]),
        inner=tuple(values["inner"]),
        reference=reference,
    )


def _values(error: GradientError) -> dict[str, float]:
    return {
        "squared_bias": error.squared_bias.value,
        "squared_bias_se": error.squared_bias.se,
        "variance": error.variance,
    }


def _sizes(study: Study) -> Mapping[str, int]:
    values: Mapping[str, Any] = read("items")["gradients"]
    below: Mapping[str, int] = values["below_one"]
    return below if study.scale < 1 else {key: int(values[key]) for key in below}
