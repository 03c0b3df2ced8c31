"""Rows of the paper's tables: each is an ordinary run of its preset, at the study's scale."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from scorebed.errors import ScorebedError
from scorebed.paper.data import read
from scorebed.paper.scale import overrides, scaled_settings
from scorebed.paper.study import Study
from scorebed.paper.units import Unit, UnitPlan
from scorebed.presets import DEFAULT_METHOD
from scorebed.presets.reader import policy_for, preset_values
from scorebed.runs.begin import NewRun, Request, plan
from scorebed.runs.config import overrides_for, to_values
from scorebed.runs.execution import job_for
from scorebed.runs.stage import Progress
from scorebed.tasks import make_task
from scorebed.tasks.base import Task


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
        nle = run.config.trained_by.nle(job_for(run.config, run.task))
        return UnitPlan(nle, _sizes(to_values(run.config)))

    def carry_out(self, study: Study, *, progress: Progress) -> dict[str, Any]:
        from scorebed.paper.running import run_row

        return run_row(self, study, progress=progress)

    def planned(self, study: Study) -> NewRun:
        """The run of this row in a study: at S = 1 with the paper's policies, that of the preset,
        untouched but for seed and repeats.
        """
        task = make_task(self.task)
        request = Request(
            task_name=self.task,
            task=task,
            preset=str(read("items")["preset"]),
            method=self.method,
            policies=self.policies,
            overrides=[f"seed={study.seed}", f"repeats={study.repeats}", *self.settings],
        )
        request = _with_policies(request, study, task)
        settings = scaled_settings(to_values(plan(request).config), study.scale)
        # What comes with our policies is for a few hundred steps: it does not scale.
        kept = _taken(request, study)
        changed = {key: value for key, value in settings.items() if key not in kept}
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


def _with_policies(request: Request, study: Study, task: Task) -> Request:
    """The request with the study's choice of policies; as it is where that is the preset's own, or
    where the method cannot train the other.
    """
    preset = _choice(study).get("preset")
    if preset is None:
        return request
    policy = policy_for(preset, task, method=DEFAULT_METHOD)
    other = preset_values(preset, request.task_name, task, method=DEFAULT_METHOD, policy=policy)
    taken = [
        f"{key}={value}" for key, value in overrides_by_key(other, _choice(study)["keys"]).items()
    ]
    changed = dataclasses.replace(
        request,
        policy=policy,
        overrides=[*request.overrides, *overrides_for(request.method, taken)],
    )
    try:
        plan(changed)
    except ScorebedError:
        return request
    return changed


def overrides_by_key(values: Mapping[str, Any], keys: list[str]) -> dict[str, Any]:
    """Of nested values those of some dotted keys, where they exist."""
    found = {}
    for key in keys:
        table, _, name = key.partition(".")
        if name in values.get(table, {}):
            found[key] = values[table][name]
    return found


def _taken(request: Request, study: Study) -> set[str]:
    """The keys that come with the study's policies, if the request has them."""
    if request.policy is None:
        return set()
    return set(_choice(study)["keys"]) & {each.partition("=")[0] for each in request.overrides}


def _choice(study: Study) -> Mapping[str, Any]:
    chosen: Mapping[str, Any] = read("items")["policies"][study.policies]
    return chosen


def _sizes(values: Mapping[str, Any]) -> str:
    """The sizes of a run on one line."""
    tables, shown = (
        {k: v for k, v in values.items() if isinstance(v, Mapping)},
        read("items")["sizes"],
    )
    return "; ".join(
        f"{name}: " + ", ".join(f"{key} {table[key]:,}" for key in shown if key in table)
        for name, table in tables.items()
        if any(key in table for key in shown)
    )
