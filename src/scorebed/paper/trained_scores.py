"""Scores part of the way of their training, and policies that are trained with them.

A score is one of those that a row has trained: the only one, or one of several. Its milestones are
those of `runs/milestones.py`; a policy (P = 1) is trained with one as the row trains its policies.
"""

import dataclasses
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from scorebed.errors import require
from scorebed.paper.data import read
from scorebed.paper.rows import TableRow, spending, table_rows
from scorebed.paper.running import row_folder, run_planned, run_row
from scorebed.paper.study import Study
from scorebed.paper.units import Unit, UnitPlan, carry_out, record_name
from scorebed.runs.begin import NewRun, at_milestone
from scorebed.runs.execution import job_for
from scorebed.runs.load import OpenRun, open_run
from scorebed.runs.milestones import Milestone, milestone_after
from scorebed.runs.stage import Progress
from scorebed.runs.user_parts import BUILT_IN


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScoreOfRow:
    """A score of a row: number `number` of those that its run trains. `seed` counts the scores of a
    task.
    """

    row: TableRow
    number: int
    seed: int

    def definition(self) -> dict[str, Any]:
        """What it is, for records that rest on it."""
        return {**self.row.definition(), "number": self.number}


@dataclasses.dataclass(frozen=True, kw_only=True)
class MilestonePolicy(Unit):
    """A policy trained with a score as it was after 1/`part` of its steps."""

    score: ScoreOfRow
    part: int

    @property
    def name(self) -> str:
        return f"{self.score.row.name}-score{self.score.number}-at1of{self.part}"

    def definition(self) -> dict[str, Any]:
        return {**self.score.definition(), "part": self.part, "trains": "one policy"}

    def estimate(self, study: Study) -> UnitPlan:
        new = one_policy(at_milestone(self.score.row.planned(study), _anywhere(self.score)))
        return UnitPlan(spending(new).total, f"a policy with the score after 1/{self.part}")

    def carry_out(self, study: Study, *, progress: Progress) -> dict[str, Any]:
        row = self.score.row
        run = run_of(row, study, progress=progress)
        step, steps = milestone_after(run, self.part, self.score.number)
        milestone = Milestone(run.folder.path, self.score.number, step)
        new = one_policy(at_milestone(row.planned(study), milestone))
        words = f"a policy with score {self.score.number} of {row.name} at step {step:,}"
        path = study.runs_folder / record_name(self, study)
        return {"step": step, "steps": steps} | run_planned(new, path, words, progress=progress)


@functools.cache
def trained_scores(task: str, study: Study) -> tuple[ScoreOfRow, ...]:
    """The scores of a task whose milestones are looked at: those of its row in the tables, and of
    further trainings of it with other seeds.
    """
    values = read("items")["gradients"]["tasks"][task]
    row = named_row(values["table"], task, values["score_row"])
    more = [
        dataclasses.replace(
            row,
            stem=f"{row.stem or row.method}-seed{n}",
            settings=(*row.settings, f"seed={study.seed + n}", "repeats=1"),
        )
        for n in range(1, values["more_seeds"] + 1)
    ]
    found = [(each, number) for each in (row, *more) for number in range(_scores(each, study))]
    return tuple(
        ScoreOfRow(row=each, number=number, seed=seed) for seed, (each, number) in enumerate(found)
    )


def named_row(table: str, task: str, label: str) -> TableRow:
    """The row of a table with a label."""
    (row,) = [row for row in table_rows(table) if (row.task, row.label) == (task, label)]
    return row


def run_of(row: TableRow, study: Study, *, progress: Progress) -> OpenRun:
    """The finished run of a row: it is carried out if it has no record, and again if the record is
    there and the run is not.
    """
    carry_out([row], study, progress=progress)
    path = row_folder(row, study)
    if not path.exists():
        run_row(row, study, progress=progress)
    return open_run(path, BUILT_IN)


def one_policy(new: NewRun) -> NewRun:
    """The same run with one policy, once."""
    config = dataclasses.replace(new.config, policies=1, repeats=1)
    return dataclasses.replace(new, config=config)


def rows_of_scores(scores: Sequence[ScoreOfRow]) -> list[TableRow]:
    """The rows that train them, each once."""
    return list({score.row.name: score.row for score in scores}.values())


def _scores(row: TableRow, study: Study) -> int:
    """How many scores a row trains."""
    new = row.planned(study)
    method = new.config.trained_by
    require(
        method.upfront_stem != "",
        f"the row {row.name}",
        got=f"the method {row.method}",
        expected="one that learns a score before any policy",
        fix="name another row in items.toml.",
    )
    return method.parts(job_for(new.config, new.task))


def _anywhere(score: ScoreOfRow) -> Milestone:
    """A milestone of any step: all cost a policy the same."""
    return Milestone(Path(score.row.name), score.number, 0)
