"""How the bound of a policy rises while it is trained: a row's training of one policy, looked at
often enough and with enough contrastive parameters.

Estimates along the way of the rows of a table are few and saturate early (`scale.py`), so one
policy is trained again with the row's settings; what is learned upfront is the row's.
"""

import dataclasses
from pathlib import Path
from typing import Any

from scorebed.paper.rows import TableRow, spending
from scorebed.paper.running import run_planned
from scorebed.paper.study import Study
from scorebed.paper.trained_scores import one_policy, run_of
from scorebed.paper.units import Unit, UnitPlan, carry_out, record_name
from scorebed.runs.begin import NewRun, at_milestone
from scorebed.runs.folder import RunFolder
from scorebed.runs.milestones import Milestone, milestone_after
from scorebed.runs.stage import Progress

STAGE = "policy-0-0"


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingCurve(Unit):
    """The training of one policy of a row, with `estimates` of its bound along the way, of `inner`
    contrastive parameters each below scale 1.
    """

    row: TableRow
    estimates: int
    inner: int

    @property
    def name(self) -> str:
        return f"{self.row.name}-curve"

    def definition(self) -> dict[str, Any]:
        watched = {"estimates": self.estimates, "inner": self.inner}
        return {**self.row.definition(), **watched}

    def estimate(self, study: Study) -> UnitPlan:
        new = one_policy(self._planned(study))
        if new.config.trained_by.upfront_stem:
            new = at_milestone(new, Milestone(Path(self.row.name), 0, 0))  # any costs the same
        return UnitPlan(spending(new).total, "one policy, watched")

    def carry_out(self, study: Study, *, progress: Progress) -> dict[str, Any]:
        new, upfront = one_policy(self._planned(study)), 0
        if new.config.trained_by.upfront_stem:
            (record,) = carry_out([self.row], study, progress=progress).values()
            stages = record.result["nle_stages"]
            upfront = sum(spent for stage, spent in stages.items() if not _of_policies(stage))
            run = run_of(self.row, study, progress=progress)
            step, _ = milestone_after(run, 1)
            new = at_milestone(new, Milestone(run.folder.path, 0, step))
        path = study.runs_folder / record_name(self, study)
        result = run_planned(new, path, f"{self.row.label}, watched", progress=progress)
        metrics: Any = RunFolder.open(path).read_metrics(STAGE)
        points = [(each["step"], each["lower"][0]) for each in metrics if each.get("lower")]
        return {
            "steps": [step for step, _ in points],
            "lower": [lower for _, lower in points],
            "nle_per_step": result["nle_stages"][STAGE] / metrics[-1]["step"],
            "nle_upfront": upfront,
            "inner": new.config.trained_by.policy_settings.monitor_inner,  # type: ignore[union-attr]
            "final": {key: result["repeats"][0][key] for key in ("lower", "lower_se", "upper")},
            "policy": result["policy"],
            "seconds": result["seconds"],
        }

    def _planned(self, study: Study) -> NewRun:
        settings = self.row.planned(study).config.trained_by.policy_settings
        assert settings is not None, "the rows of curves train policies"
        every = max(1, settings.steps // self.estimates)
        watched = [f"policy_training.monitor_every={every}"]
        if study.scale < 1:
            watched.append(f"policy_training.monitor_inner={self.inner}")
        return self.row.planned(dataclasses.replace(study, overrides=(*watched, *study.overrides)))


def _of_policies(stage: str) -> bool:
    return stage.startswith("policy-")
