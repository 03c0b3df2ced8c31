"""EIG of final policies against the squared bias of the gradient that trained them."""

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

from scorebed.paper.claims import correlates
from scorebed.paper.data import read
from scorebed.paper.figures._page import claims_section, lead, leading, lower, results_of, values_of
from scorebed.paper.gradients import gradient_errors_of
from scorebed.paper.item import PaperItem
from scorebed.paper.page import Page, PagePicture
from scorebed.paper.rows import TableRow
from scorebed.paper.study import Study
from scorebed.paper.trained_scores import (
    MilestonePolicy,
    named_row,
    rows_of_scores,
    trained_scores,
)
from scorebed.paper.units import Unit, UnitRecord

SCORE, PCE = "ScoreBED: seeds and checkpoints", "PCE: numbers of inner samples"
CAPTION = (
    "Lower bounds of final policies (P = 1) against the squared bias of the gradient by which they "
    "were trained, taken at one reference policy. × marks the budgets of the tables; an arrow is a "
    "bias that was not told from zero, at its upper limit."
)


class BiasAndEIG(NamedTuple):
    """A point: what it is, its squared bias with the standard error, and the EIG."""

    family: str
    label: str
    squared_bias: float
    se: float
    eig: float
    main: bool


class EIGAgainstBias(PaperItem):
    """The scatter of the main text and of the appendix."""

    @property
    def name(self) -> str:
        return "eig-bias"

    @property
    def title(self) -> str:
        return str(values_of(self.name)["title"])

    def units(self, study: Study) -> list[Unit]:
        units: list[Unit] = []
        for task in read("items")["gradients"]["tasks"]:
            scores = trained_scores(task, study)
            units += [
                *rows_of_scores(scores),
                *policies_of(task, study),
                *contrastive_rows(task).values(),
                *gradient_errors_of(task, scores),
            ]
        return units

    def page(self, study: Study, records: Mapping[str, UnitRecord]) -> Page:
        from scorebed.plots.paper_errors import BiasPanel, BiasPoint, draw_eig_against_bias

        panels, data, sections = [], [], []
        for task, values in read("items")["gradients"]["tasks"].items():
            points = _points(task, study, records)
            families = {
                family: [
                    BiasPoint(each.squared_bias, each.se, each.eig, each.main)
                    for each in points
                    if each.family == family
                ]
                for family in (SCORE, PCE)
            }
            drawn = [(name, of) for name, of in families.items() if of]
            panels.append(BiasPanel(values["words"], drawn))
            data += [{"task": task, **each._asdict()} for each in points]
            claims = [
                correlates(
                    "A lower bias goes with a higher EIG.",
                    [each.squared_bias for each in points if of in ("", each.family)],
                    [each.eig for each in points if of in ("", each.family)],
                    sign=-1,
                    of=of or "all points",
                )
                for of in ("", SCORE, PCE)
            ]
            sections.append(claims_section(claims)._replace(title=values["words"]))
        return Page(
            self.title,
            lead(self.name, study, self.units(study), records),
            sections,
            [PagePicture(draw_eig_against_bias(panels), CAPTION)],
            data,
        )


def policies_of(task: str, study: Study) -> list[MilestonePolicy]:
    """A policy for every score of a task and every part of its training."""
    return [
        MilestonePolicy(score=score, part=part)
        for score in trained_scores(task, study)
        for part in read("items")["gradients"]["parts"]
    ]


def contrastive_rows(task: str) -> dict[int, TableRow]:
    """PCE on a task by its number of contrastive parameters: rows of the tables, and others of one
    repeat.
    """
    shared = read("items")["gradients"]
    values = shared["tasks"][task]
    row = named_row(values["table"], task, values["reference"])
    found = {}
    for inner in values["inner"]:
        printed = values["printed"].get(str(inner))
        found[inner] = (
            named_row(values["table"], task, printed)
            if printed
            else dataclasses.replace(
                row,
                label=f"PCE, M = {inner}",
                stem=f"{shared['stem']}-M{inner}",
                settings=(f"{shared['key']}={inner}", "repeats=1"),
            )
        )
    return found


def _points(task: str, study: Study, records: Mapping[str, UnitRecord]) -> list[BiasAndEIG]:
    """All points of a task of which both coordinates are known."""
    _, unit = gradient_errors_of(task, ())
    if unit.name not in records:
        return []
    errors, main = records[unit.name].result, read("items")["gradients"]["tasks"][task]["main"]
    policies, rows = policies_of(task, study), contrastive_rows(task)
    results = results_of(records, [*policies, *rows.values()])
    if not results:
        return []
    bound = leading(list(results.values()))
    by_score = {(each["seed"], each["part"]): each for each in errors["scores"]}
    by_inner = {each["inner"]: each for each in errors["rivals"]}
    found: list[tuple[str, str, Mapping[str, Any], Any, bool]] = [
        (
            SCORE,
            f"seed {each.score.seed}, step {by_score[each.score.seed, each.part]['step']:,}",
            by_score[each.score.seed, each.part],
            results[each.name],
            each.part == 1,
        )
        for each in policies
        if each.name in results
    ]
    found += [
        (PCE, f"M = {inner}", by_inner[inner], results[row.name], inner in main)
        for inner, row in rows.items()
        if row.name in results
    ]
    return [
        BiasAndEIG(
            family, label, e["squared_bias"], e["squared_bias_se"], lower(r, bound).mean, marked
        )
        for family, label, e, r, marked in found
    ]
