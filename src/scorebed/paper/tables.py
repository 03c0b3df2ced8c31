"""A table of the paper, re-run: our rows beside the printed ones."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

from scorebed.paper.data import PrintedMean, published_repeats, published_rows, read
from scorebed.paper.item import PaperItem
from scorebed.paper.page import Page, PagePicture, PageTable, Section
from scorebed.paper.rows import TableRow, table_rows
from scorebed.paper.statistics import OrderAgreement, Sample, agreement, best_rows
from scorebed.paper.study import Study
from scorebed.paper.units import UnitRecord, diverged

COLUMNS = (
    "method",
    "lower bound",
    "upper bound",
    "tight lower",
    "tight upper",
    "the paper's lower",
    "the paper's upper",
    "NLE per repeat",
    "seconds",
)
LOWER, TIGHT_LOWER, PAPER_LOWER = 1, 3, 5
CONTRASTIVE, TIGHT = "contrastive", "tight"


@dataclasses.dataclass(frozen=True)
class ResultRow:
    """A row that has been run."""

    row: TableRow
    result: Mapping[str, Any]

    def sample(self, bound: str, side: str) -> Sample:
        """A bound over repeats; NaN where the task has no tight one."""
        values = []
        for repeat in self.result["repeats"]:
            found = repeat if bound == CONTRASTIVE else repeat["tight"]
            value = None if found is None else found[side]
            values.append(math.nan if value is None else float(value))
        return Sample.of(values)

    @property
    def nle(self) -> Sample:
        """Likelihood evaluations of training of a repeat."""
        return Sample.of([float(repeat["nle"]) for repeat in self.result["repeats"]])

    @property
    def seconds(self) -> float:
        """Of training, over all repeats."""
        return float(self.result["seconds"]["training"])


@dataclasses.dataclass(frozen=True)
class TableItem(PaperItem):
    """A table of `items.toml`."""

    of: str

    @property
    def name(self) -> str:
        return self.of

    @property
    def title(self) -> str:
        return str(self._values["title"])

    def units(self, study: Study) -> tuple[TableRow, ...]:
        del study
        return table_rows(self.of)

    def page(self, study: Study, records: Mapping[str, UnitRecord]) -> Page:
        from scorebed.plots.reproduction import draw_rows

        sections, data, panels = [], [], {}
        stopped = diverged(self.units(study), study)
        for task in self._values["tasks"]:
            rows = [row for row in self.units(study) if row.task == task]
            run = {r.label: ResultRow(r, records[r.name].result) for r in rows if r.name in records}
            sections.append(self._section(study, task, rows, run, stopped))
            data += [
                _line(row, run.get(row.label), published_rows(self.of, task)[row.label])
                for row in rows
            ]
            panels[task] = [self._dots(row, run.get(row.label)) for row in rows]
        caption = (
            "Lower to upper bounds with one standard error over repeats: ours (tight ones where "
            "there are any) and the paper's."
        )
        pictures = [PagePicture(draw_rows(panels), caption)] if records else []
        return Page(self.title, self._lead(study, records), sections, pictures, data)

    @property
    def _values(self) -> dict[str, Any]:
        return dict(read("items")["tables"][self.of])

    def _lead(self, study: Study, records: Mapping[str, UnitRecord]) -> list[str]:
        count = len(self.units(study))
        return [
            f"Scale {study.scale:g} of the paper's budget, {study.policies_in_words}, "
            f"{study.repeats} repeats, seed {study.seed}; {len(records)} of {count} rows.",
            *self._values.get("notes", ()),
        ]

    def _section(
        self,
        study: Study,
        task: str,
        rows: Sequence[TableRow],
        run: Mapping[str, ResultRow],
        stopped: Mapping[str, str],
    ) -> Section:
        paper = published_rows(self.of, task)
        bound = leading_bound(list(run.values()))
        ours = {label: each.sample(bound, "lower") for label, each in run.items()}
        theirs = {label: _printed(row.lower) for label, row in paper.items()}
        best, bold, cells = best_rows(ours), set(), []
        for place, row in enumerate(rows):
            found, printed = run.get(row.label), paper[row.label]
            if row.label in best:
                bold.add((place, LOWER if bound == CONTRASTIVE else TIGHT_LOWER))
            if printed.best:
                bold.add((place, PAPER_LOWER))
            own = (
                [
                    *(
                        _nats(found.sample(b, s))
                        for b in (CONTRASTIVE, TIGHT)
                        for s in ("lower", "upper")
                    ),
                ]
                if found
                else ["diverged" if row.name in stopped else "", *[""] * 3]
            )
            cells.append(
                [
                    _shown_label(row, found, study),
                    *own,
                    _nats(_printed(printed.lower)),
                    _nats(_printed(printed.upper)),
                    _spent(found, printed.nle),
                    f"{found.seconds:,.0f}" if found else "",
                ]
            )
        table = PageTable(COLUMNS, cells, frozenset(bold))
        notes = _notes(bound, agreement(ours, theirs), len(ours)) if run else []
        notes += [
            f"{row.label} diverged: {stopped[row.name].partition('. Fix:')[0]}."
            for row in rows
            if row.name in stopped
        ]
        return Section(task, table, notes)

    def _dots(self, row: TableRow, found: ResultRow | None) -> Any:
        from scorebed.plots.reproduction import Dots

        printed = published_rows(self.of, row.task)[row.label]
        own = None
        if found is not None:
            bound = leading_bound([found])
            own = (found.sample(bound, "lower")[:2], found.sample(bound, "upper")[:2])
        return Dots(row.label, own, (printed.lower, printed.upper))


def leading_bound(rows: Sequence[ResultRow]) -> str:
    """The kind of lower bound by which rows are ordered: the tight one, unless a task has none or
    contrastive ones are higher on average. Both are valid; the higher says more.
    """
    means = {
        bound: math.fsum(row.sample(bound, "lower").mean for row in rows)
        for bound in (CONTRASTIVE, TIGHT)
    }
    return TIGHT if means[TIGHT] >= means[CONTRASTIVE] else CONTRASTIVE


def _shown_label(row: TableRow, found: ResultRow | None, study: Study) -> str:
    """A row as it stands in the table, with its policy if that is not the paper's."""
    if found is None or not study.other_policies:
        return row.label
    return f"{row.label}, {found.result['policy']}"


def _printed(figure: PrintedMean) -> Sample:
    return Sample(figure.mean, figure.se, published_repeats())


def _nats(sample: Sample) -> str:
    if math.isnan(sample.mean):
        return ""
    return f"{sample.mean:.2f}" + ("" if math.isnan(sample.se) else f" ± {sample.se:.2f}")


def _spent(found: ResultRow | None, printed: PrintedMean | None) -> str:
    """Evaluations of a repeat, with their error where the paper prints one."""
    own = ""
    if found is not None:
        error = found.nle.se if printed is not None else math.nan
        own = f"{found.nle.mean:.3g}" + ("" if math.isnan(error) else f" ± {error:.1g}")
    if printed is None:
        return own
    return f"{own} (the paper: {printed.mean:.2g} ± {printed.se:.1g})".strip()


def _notes(bound: str, found: OrderAgreement, rows: int) -> list[str]:
    """What the table says as a whole."""
    notes = [
        "Bold: cannot be told from the best lower bound by Welch's t over repeats at 95%; rows are "
        f"compared by the {bound} lower bound. In the paper's columns, as the paper has it."
    ]
    if rows < 2:
        return notes
    decided = len(found.same) + len(found.opposite)
    notes.append(
        f"Order against the paper's: Kendall's τ = {found.tau:.2f} over {rows} rows. Of "
        f"{found.pairs} pairs, {decided} differ by more than their errors in both tables: "
        f"{len(found.same)} the same way, {len(found.opposite)} the other way."
    )
    if found.opposite:
        notes.append(
            "The other way: " + "; ".join(f"{a} above {b}" for a, b in found.opposite) + "."
        )
    return notes


def _line(row: TableRow, found: ResultRow | None, printed: Any) -> dict[str, Any]:
    """A line of the CSV file."""
    values: dict[str, Any] = {
        "task": row.task,
        "method": row.label,
        "row": row.name,
    }
    for bound in (CONTRASTIVE, TIGHT):
        for side in ("lower", "upper"):
            sample = found.sample(bound, side) if found else None
            key = side if bound == CONTRASTIVE else f"{TIGHT}_{side}"
            values[key] = sample.mean if sample else None
            values[f"{key}_se"] = sample.se if sample else None
    for side in ("lower", "upper"):
        values[f"paper_{side}"], values[f"paper_{side}_se"] = getattr(printed, side)
    values["nle_per_repeat"] = found.nle.mean if found else None
    values["seconds_training"] = found.seconds if found else None
    values["policy"] = found.result["policy"] if found else None
    return values
