"""Conditioning of outcomes by designs, and the error of the score against it."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from scorebed.paper.claims import correlates, worse_conditioned
from scorebed.paper.data import read
from scorebed.paper.figures._page import claims_section, lead, truth_note, values_of
from scorebed.paper.item import PaperItem
from scorebed.paper.jacobians import POLICY, SAMPLER, Jacobians
from scorebed.paper.page import Page, PagePicture
from scorebed.paper.study import Study
from scorebed.paper.trained_scores import named_row
from scorebed.paper.units import Unit, UnitRecord

LABELS = {SAMPLER: "designs of the sampler", POLICY: "designs of the final policy"}
CAPTION = (
    "Above: condition numbers of ∂y/∂ξ at fixed parameters and noise, for the designs that "
    "the score was trained on and for those of the final policy. Below: mean squared error of "
    "a coordinate of the score against them. Errors are unbiased estimates; the few below "
    "zero are left out."
)


class JacobianConditioning(PaperItem):
    """The appendix on the Jacobian."""

    @property
    def name(self) -> str:
        return "jacobian"

    @property
    def title(self) -> str:
        return str(values_of(self.name)["title"])

    def units(self, study: Study) -> list[Unit]:
        del study
        return [each for unit in self._jacobians().values() for each in (unit.row, unit)]

    def page(self, study: Study, records: Mapping[str, UnitRecord]) -> Page:
        from scorebed.plots.paper_errors import ConditionCloud, ConditionPanel, draw_conditioning

        panels, sections, data = [], [], []
        for task, unit in self._jacobians().items():
            words = read("items")["gradients"]["tasks"][task]["words"]
            record = records.get(unit.name)
            if record is None:
                panels.append(ConditionPanel(words, []))
                continue
            kinds = {kind: _numbers(record.result["designs"][kind]) for kind in (SAMPLER, POLICY)}
            panels.append(
                ConditionPanel(
                    words, [ConditionCloud(LABELS[kind], *both) for kind, both in kinds.items()]
                )
            )
            claims = [
                worse_conditioned(kinds[POLICY][0], kinds[SAMPLER][0]),
                *(
                    correlates(
                        "The error of the score grows with the condition number.",
                        *both,
                        sign=1,
                        of=LABELS[kind],
                    )
                    for kind, both in kinds.items()
                ),
            ]
            sections.append(claims_section(claims, truth_note(record.result))._replace(title=words))
            data += [
                {"task": task, "designs": kind, "condition": c, "score_mse": e}
                for kind, both in kinds.items()
                for c, e in zip(*(each.tolist() for each in both), strict=True)
            ]
        return Page(
            self.title,
            lead(self.name, study, self.units(study), records),
            sections,
            [PagePicture(draw_conditioning(panels), CAPTION)],
            data,
        )

    def _jacobians(self) -> dict[str, Jacobians]:
        shared, values = read("items")["gradients"], values_of(self.name)
        below: Mapping[str, int] = shared["below_one"]
        found = {}
        for task in values["tasks"]:
            of = shared["tasks"][task]
            row = named_row(of["table"], task, of["score_row"])
            found[task] = Jacobians(
                row=row,
                outer=values["outer"],
                inner=below["inner"],
                particles=below["smc"],
            )
        return found


def _numbers(kind: Mapping[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """Condition numbers and errors; null, which stands for numbers that are not finite, is
    infinite.
    """
    return (
        np.asarray([np.inf if x is None else x for x in kind["condition"]], float),
        np.asarray([np.nan if x is None else x for x in kind["score_mse"]], float),
    )
