"""Condition numbers of ∂y/∂ξ and errors of the score, trajectory by trajectory, under the designs
that the score was trained on and under those of the final policy.
"""

import dataclasses
from typing import Any

import jax
import jax.random as jr

from scorebed.diagnostics.ground_truth import TRUTHS, Sizes
from scorebed.diagnostics.score_error import per_trajectory
from scorebed.keys import named
from scorebed.nle import Ledger
from scorebed.paper.rows import TableRow
from scorebed.paper.study import Study
from scorebed.paper.trained_scores import run_of
from scorebed.paper.units import Unit, UnitPlan
from scorebed.policies.random import RandomDesigns
from scorebed.runs.load import load
from scorebed.runs.stage import Progress

DIGITS = 4  # of the numbers in a record
BELOW_ONE = 4  # times fewer trajectories at scales below 1
SAMPLER, POLICY = "sampler", "policy"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Jacobians(Unit):
    """Both kinds of designs on `outer` trajectories each, of the first policy of a row and the
    score that trained it.
    """

    row: TableRow
    outer: int
    inner: int
    particles: int

    @property
    def name(self) -> str:
        return f"{self.row.name}-jacobian"

    def definition(self) -> dict[str, Any]:
        return {**self.row.definition(), "outer": self.outer, "inner": self.inner}

    def estimate(self, study: Study) -> UnitPlan:
        horizon = self.row.planned(study).task.horizon
        outer = self._outer(study)
        return UnitPlan(4 * outer * self.inner * horizon, f"{outer} trajectories of either kind")

    def carry_out(self, study: Study, *, progress: Progress) -> dict[str, Any]:
        run = load(run_of(self.row, study, progress=progress).folder.path)
        assert run.score is not None, "the rows of Jacobians have a score"
        key, ledger, spent = named(jr.key(study.seed), self.name), Ledger(), 0
        found: dict[str, Any] = {}
        kinds = {SAMPLER: RandomDesigns(run.sampler), POLICY: run.policy}
        truth = TRUTHS["auto"](
            run.task,
            list(kinds.values()),
            Sizes(self.inner, self.particles),
            ledger,
            key=named(key, "truth"),
        )
        for kind, policy in kinds.items():
            progress.begin(f"{self.name}: {kind}", 0, 0)
            measured = per_trajectory(
                run.task,
                run.score,
                truth.truth,
                policy,
                outer=self._outer(study),
                on_group=lambda done, total: progress.update(done, "", total),
                key=named(key, kind),
            )
            progress.end(f"{len(measured.condition)} trajectories, truth by {truth.name}")
            spent += measured.nle
            dy, dx = run.task.outcome_dim, run.task.designs.dim
            mean = (dy * measured.score_mse_y + dx * measured.score_mse_xi) / (dy + dx)
            found[kind] = {
                "condition": _short(measured.condition),
                "score_mse": _short(mean),
                "score_mse_y": _short(measured.score_mse_y),
                "score_mse_xi": _short(measured.score_mse_xi),
            }
        jax.clear_caches()
        about = {"truth": truth.name, "truth_doubt": truth.quality.doubt}
        return {"designs": found, **about, "policy": run.record.policy, "nle": spent + ledger.spent}

    def _outer(self, study: Study) -> int:
        return self.outer if study.scale >= 1 else self.outer // BELOW_ONE


def _short(values: Any) -> list[float]:
    return [float(f"{value:.{DIGITS}g}") for value in values]
