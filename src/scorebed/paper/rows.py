"""Rows of the paper's tables: each is an ordinary run of its preset, at the study's scale."""

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

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
        spent = spending(run)
        words = f"{spent.per_repeat:,} NLE per repeat; {_sizes(to_values(run.config))}"
        return UnitPlan(spent.total, words)

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


class RowSpending(NamedTuple):
    """Likelihood evaluations of one repeat, at most, and how many repeats there are."""

    upfront: int
    policies: int
    repeats: int
    fresh: bool
    """Whether every repeat learns anew what comes before its policies."""

    @property
    def per_repeat(self) -> int:
        """With what is learned upfront in full, which is how the paper counts."""
        return self.upfront + self.policies

    @property
    def total_upfront(self) -> int:
        """What is really spent upfront."""
        return self.upfront * (self.repeats if self.fresh else 1)

    @property
    def total(self) -> int:
        """What is really spent."""
        return self.total_upfront + self.repeats * self.policies


def spending(run: NewRun) -> RowSpending:
    """What a run will spend on training; its expectation where that is drawn at random from so many
    steps that to draw them would take minutes.
    """
    method, job = run.config.trained_by, job_for(run.config, run.task)
    training = method.policy_settings
    steps = [training.steps] * job.policies if training else []
    expected = method.record(job, steps).get("nle_expected")
    whole = method.nle(job) if expected is None else int(expected)
    upfront = method.parts(job) * method.upfront_nle(job)
    return RowSpending(upfront, whole - upfront, job.repeats, job.fresh_upfront)


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
