"""EIG of final policies against likelihood evaluations, every method with several budgets."""

from collections.abc import Mapping
from typing import Any

from scorebed.paper.claims import leads_over_budgets
from scorebed.paper.figures._page import (
    claims_section,
    lead,
    leading,
    lower,
    results_of,
    values_of,
)
from scorebed.paper.item import PaperItem
from scorebed.paper.page import Page, PagePicture, PageTable, Section
from scorebed.paper.rows import TableRow, table_rows
from scorebed.paper.shares import ShareOfBudget, share_of
from scorebed.paper.statistics import Sample
from scorebed.paper.study import Study
from scorebed.paper.units import Unit, UnitRecord

CAPTION = (
    "Lower bounds of final policies (P = 1) against what a repeat spent on training, stage 1 "
    "included, with one standard error over repeats. Every point is a training of its own."
)


class EIGAgainstNLE(PaperItem):
    """Figure 2, left."""

    @property
    def name(self) -> str:
        return "eig-nle"

    @property
    def title(self) -> str:
        return str(values_of(self.name)["title"])

    def units(self, study: Study) -> list[Unit]:
        del study
        return [unit for _, _, unit in self._points()]

    def page(self, study: Study, records: Mapping[str, UnitRecord]) -> Page:
        from scorebed.plots.paper_curves import CurvePanel, PaperCurve, draw_curves

        values = values_of(self.name)
        results = results_of(records, self.units(study))
        bound = leading(list(results.values()))
        curves: dict[str, list[tuple[float, Sample]]] = {}
        budgets: dict[int, dict[str, Sample]] = {}
        data, cells = [], []
        for row, part, unit in self._points():
            result = results.get(unit.name)
            if result is None:
                continue
            found = lower(result, bound)
            spent = Sample.of([float(each["nle"]) for each in result["repeats"]]).mean
            curves.setdefault(row.label, []).append((spent, found))
            if row.label not in values["whole"]:
                budgets.setdefault(part, {})[row.label] = found
            data.append(_line(row, part, spent, found, bound))
            cells.append([row.label, f"1/{part}", f"{spent:.3g}", f"{found.mean:.2f}", _se(found)])
        drawn = [
            PaperCurve(
                label,
                [x for x, _ in points],
                [found.mean for _, found in points],
                [found.se for _, found in points],
            )
            for label, points in curves.items()
        ]
        panel = CurvePanel("", "likelihood evaluations of training (NLE)", drawn)
        table = PageTable(("method", "share", "NLE", f"{bound} lower bound", "se"), cells)
        return Page(
            self.title,
            lead(self.name, study, self.units(study), records),
            [
                Section("Points", table),
                claims_section(leads_over_budgets(values["leader"], budgets)),
            ],
            [PagePicture(draw_curves([panel]), CAPTION)],
            data,
        )

    def _points(self) -> list[tuple[TableRow, int, TableRow | ShareOfBudget]]:
        """Rows, the parts of their budget, and the units that stand for both; small ones first, so
        that the curves of all methods grow together.
        """
        values = values_of(self.name)
        rows = [
            row
            for row in table_rows(values["table"])
            if (row.task, row.policies) == (values["task"], values["policies"])
        ]
        return [
            (row, part, share_of(row, part))
            for part in values["parts"]
            for row in rows
            if part == 1 or row.label not in values["whole"]
        ]


def _line(row: TableRow, part: int, spent: float, found: Sample, bound: str) -> dict[str, Any]:
    return {
        "method": row.label,
        "part": part,
        "nle": spent,
        "lower": found.mean,
        "lower_se": found.se,
        "repeats": found.n,
        "bound": bound,
    }


def _se(found: Sample) -> str:
    return "" if found.n == 1 else f"{found.se:.2f}"
