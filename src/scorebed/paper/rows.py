"""Rows of the paper's tables: each is an ordinary run of its preset, at the study's scale."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from scorebed.paper.data import read
from scorebed.paper.scale import overrides, scaled_settings
from scorebed.paper.study import Study
from scorebed.paper.units import Unit, UnitPlan
from scorebed.paper.whose_policies import other_policies
from scorebed.runs.begin import NewRun, Request, plan
from scorebed.runs.config import overrides_for, to_values
from scorebed.runs.execution import job_for
from scorebed.runs.stage import Progress
from scorebed.tasks import make_task


@dataclasses.dataclass(frozen=True, kw_only=True)
class TableRow(Unit):
    """A method on a task with P policies, and whatever else sets the row apart."""

    label: str
    """As in `published.toml`."""
    task: str
    method: str
    policies: int
    """P, of which the best is kept."""
    stem: str = ""
    """The method's part of the name; the method itself if empty."""
    settings: tuple[str, ...] = ()
    """What it changes in the preset, as key=value."""

    @property
    def name(self) -> str:
        return f"{self.task}-{self.stem or self.method}-P{self.policies}"

    def definition(self) -> dict[str, Any]:
        return {
            "task": self.task,
            "method": self.method,
            "policies": self.policies,
            "settings": list(self.settings),
        }

    def estimate(self, study: Study) -> UnitPlan:
        run = self.planned(study)
        return UnitPlan(training_nle(run), _sizes(to_values(run.config)))

    def timed_as(self, study: Study) -> "TableRow":
        del study
        return self

    def carry_out(self, study: Study, *, progress: Progress) -> dict[str, Any]:
        from scorebed.paper.running import run_row

        return run_row(self, study, progress=progress)

    def planned(self, study: Study) -> NewRun:
        """The run of this row in a study: at S = 1 with the paper's policies, that of the preset,
        untouched but for seed and repeats.
        """
        request = Request(
            task_name=self.task,
            task=make_task(self.task),
            preset=str(read("items")["preset"]),
            method=self.method,
            policies=self.policies,
            overrides=[f"seed={study.seed}", f"repeats={study.repeats}", *self.settings],
        )
        other = other_policies(request, study)
        request = request if other is None else other.request(request)
        values = to_values(plan(request).config)
        changed = scaled_settings(values, study.scale)
        changed = changed if other is None else other.limited(values, changed)
        return plan(
            dataclasses.replace(
                request,
                overrides=[
                    *request.overrides,
                    *overrides(changed),
                    *overrides_for(self.method, study.overrides),
                ],
            )
        )


def training_nle(run: NewRun) -> int:
    """Likelihood evaluations of training, at most; their expectation where they are drawn at random
    from so many steps that to draw them would take minutes.
    """
    method, job = run.config.trained_by, job_for(run.config, run.task)
    training = method.policy_settings
    steps = [training.steps] * (job.policies * job.repeats) if training else []
    expected = method.record(job, steps).get("nle_expected")
    return method.nle(job) if expected is None else int(expected)


def table_rows(item: str) -> tuple[TableRow, ...]:
    """The rows of a table of the paper, task by task."""
    table = read("items")["tables"][item]
    return tuple(
        TableRow(
            label=row["label"],
            task=task,
            method=row["method"],
            policies=row["policies"],
            stem=row.get("name", ""),
            settings=tuple(row.get("settings", ())),
        )
        for task in table["tasks"]
        for row in table["rows"]
    )


def _sizes(values: Mapping[str, Any]) -> str:
    """The sizes of a run on one line."""
    tables = {k: v for k, v in values.items() if isinstance(v, Mapping)}
    shown = read("items")["sizes"]
    return "; ".join(
        f"{name}: " + ", ".join(f"{key} {table[key]:,}" for key in shown if key in table)
        for name, table in tables.items()
        if any(key in table for key in shown)
    )
