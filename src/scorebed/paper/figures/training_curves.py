"""The EIG while policies are trained, per iteration and per likelihood evaluation."""

import math
from collections.abc import Mapping
from typing import Any

from scorebed.paper.claims import faster
from scorebed.paper.figures._page import claims_section, lead, results_of, values_of
from scorebed.paper.item import PaperItem
from scorebed.paper.page import Page, PagePicture
from scorebed.paper.study import Study
from scorebed.paper.trained_scores import named_row
from scorebed.paper.training_curves import TrainingCurve
from scorebed.paper.units import Unit, UnitRecord

CAPTION = (
    "Lower bounds of one policy of each method while it is trained. Left: per iteration. Right: "
    "per likelihood evaluation; the dashed curve begins where stage 1 ends, the solid one leaves "
    "stage 1 out, which any number of policies share."
)


class TrainingCurves(PaperItem):
    """Figure 2, right."""

    @property
    def name(self) -> str:
        return "training-curves"

    @property
    def title(self) -> str:
        return str(values_of(self.name)["title"])

    def units(self, study: Study) -> list[Unit]:
        """Rows first: a curve of a method of two stages takes over what its row has learned."""
        curves = self._curves()
        upfront = [
            each.row for each in curves if each.row.planned(study).config.trained_by.upfront_stem
        ]
        return [*upfront, *curves]

    def page(self, study: Study, records: Mapping[str, UnitRecord]) -> Page:
        from scorebed.plots.paper_curves import CurvePanel, PaperCurve, draw_curves

        results = results_of(records, self._curves())
        by_step, by_nle, data, notes = [], [], [], []
        lines: dict[str, dict[str, tuple[str, list[float], list[float]]]] = {}
        for colour, unit in enumerate(self._curves()):
            result = results.get(unit.name)
            if result is None:
                continue
            label, upfront = unit.row.label, float(result["nle_upfront"])
            kept = [
                (float(step), float(y))
                for step, y in zip(result["steps"], result["lower"], strict=True)
                if y is not None
            ]
            steps, lower = [step for step, _ in kept], [y for _, y in kept]
            alone = [step * result["nle_per_step"] for step in steps]
            whole = [upfront + spent for spent in alone]
            by_step.append(PaperCurve(label, steps, lower, colour=colour))
            words = f"{label}, without stage 1" if upfront else label
            by_nle.append(PaperCurve(words, alone, lower, colour=colour))
            if upfront:
                words = f"{label}, with stage 1"
                by_nle.append(PaperCurve(words, whole, lower, dashed=True, colour=colour))
            lines[unit.name] = {
                "iteration": (label, steps, lower),
                "likelihood evaluation of stage 2": (label, alone, lower),
                "likelihood evaluation, stage 1 counted": (label, whole, lower),
            }
            data += [
                {"method": label, "step": s, "nle": a, "nle_with_stage_1": w, "lower": y}
                for s, a, w, y in zip(steps, alone, whole, lower, strict=True)
            ]
            notes.append(
                f"{label}: {result['nle_per_step']:,.0f} NLE per iteration, {upfront:.3g} before "
                f"the first; estimates with M = {result['inner']:,}, which cannot exceed "
                f"{math.log(result['inner'] + 1):.2f} nats; final bound "
                f"{result['final']['lower']:.2f}."
            )
        found = []
        if len(lines) == len(self._curves()):
            first, second = lines.values()
            found = [faster(first[unit], second[unit], unit=unit) for unit in first]
        panels = [
            CurvePanel("per iteration", "iteration of policy training", by_step, log_x=False),
            CurvePanel("per likelihood evaluation", "likelihood evaluations (NLE)", by_nle),
        ]
        return Page(
            self.title,
            lead(self.name, study, self.units(study), records),
            [claims_section(found, *notes)],
            [PagePicture(draw_curves(panels), CAPTION)],
            data,
        )

    def _curves(self) -> list[TrainingCurve]:
        values: dict[str, Any] = values_of(self.name)
        return [
            TrainingCurve(
                row=named_row(values["table"], values["task"], label),
                estimates=values["estimates"],
                inner=values["inner"],
            )
            for label in values["rows"]
        ]
