"""A row with a share of the budget: a training of its own, whose schedule ends there.

S is that of the study over `part`; batches, steps and learning rates follow the rule of `scale.py`,
and the split between stages stays. Networks keep the sizes that they have with the whole budget, so
that the share is the one thing that differs along a curve.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from scorebed.paper.rows import TableRow
from scorebed.paper.scale import overrides
from scorebed.paper.study import Study
from scorebed.paper.units import Unit, UnitPlan
from scorebed.runs.config import to_values
from scorebed.runs.stage import Progress

NETWORK = ("width", "blocks", "layers", "heads")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ShareOfBudget(Unit):
    """A row, named for its share, with 1/`part` of the budget."""

    row: TableRow
    part: int

    @property
    def name(self) -> str:
        return self.row.name

    def definition(self) -> dict[str, Any]:
        return {**self.row.definition(), "part": self.part}

    def estimate(self, study: Study) -> UnitPlan:
        return self.row.estimate(self.within(study))

    def carry_out(self, study: Study, *, progress: Progress) -> dict[str, Any]:
        return self.row.carry_out(self.within(study), progress=progress)

    def within(self, study: Study) -> Study:
        """The study that this share is the whole of."""
        whole = to_values(self.row.planned(study).config)
        sizes = {
            f"{name}.{key}": table[key]
            for name, table in whole.items()
            if isinstance(table, Mapping)
            for key in NETWORK
            if key in table
        }
        return dataclasses.replace(
            study,
            scale=study.scale / self.part,
            overrides=(*overrides(sizes), *study.overrides),
        )


def share_of(row: TableRow, part: int) -> TableRow | ShareOfBudget:
    """A row with 1/`part` of its budget; with all of it, the row itself."""
    if part == 1:
        return row
    return ShareOfBudget(
        row=dataclasses.replace(row, stem=f"{row.stem or row.method}-1of{part}"), part=part
    )
