"""EIG of final policies against the training steps of the score, one curve per seed of it."""

import math
from collections.abc import Mapping

from scorebed.paper.claims import Claim, spread, stable
from scorebed.paper.data import read
from scorebed.paper.figures._page import claims_section, lead, leading, lower, results_of, values_of
from scorebed.paper.figures.eig_bias import policies_of
from scorebed.paper.item import PaperItem
from scorebed.paper.page import Page, PagePicture
from scorebed.paper.study import Study
from scorebed.paper.trained_scores import rows_of_scores, trained_scores
from scorebed.paper.units import Unit, UnitRecord

CAPTION = (
    "Lower bounds of final policies (P = 1) against the steps that the score had been trained for, "
    "one curve per seed of the score. Scores are checkpoints of one training each: at all but the "
    "last the learning rate was still that of the longer training."
)


class Stability(PaperItem):
    """The appendix on the stability of score training."""

    @property
    def name(self) -> str:
        return "stability"

    @property
    def title(self) -> str:
        return str(values_of(self.name)["title"])

    def units(self, study: Study) -> list[Unit]:
        units: list[Unit] = []
        for task in values_of(self.name)["tasks"]:
            rows = rows_of_scores(trained_scores(task, study))
            units += [*rows, *policies_of(task, study)]
        return units

    def page(self, study: Study, records: Mapping[str, UnitRecord]) -> Page:
        from scorebed.plots.paper_curves import CurvePanel, PaperCurve, draw_curves

        panels, data, notes = [], [], []
        apart: dict[str, list[dict[int, float]]] = {}
        for task in values_of(self.name)["tasks"]:
            words = read("items")["gradients"]["tasks"][task]["words"]
            policies = policies_of(task, study)
            results = results_of(records, policies)
            bound = leading(list(results.values()))
            seeds: dict[int, list[tuple[int, int, float]]] = {}
            for each in policies:
                if each.name in results:
                    result = results[each.name]
                    found = lower(result, bound).mean
                    seeds.setdefault(each.score.seed, []).append((each.part, result["step"], found))
            curves = [
                PaperCurve(f"seed {seed}", [x for _, x, _ in points], [y for _, _, y in points])
                for seed, points in seeds.items()
            ]
            panels.append(CurvePanel(words, "training steps of the score", curves))
            apart[words] = [{part: y for part, _, y in points} for points in seeds.values()]
            notes += stable(words, apart[words])
            data += [
                {"task": task, "seed": seed, "score_step": x, "lower": y, "bound": bound}
                for seed, points in seeds.items()
                for _, x, y in points
            ]
        return Page(
            self.title,
            lead(self.name, study, self.units(study), records),
            [claims_section(_claims(apart), *notes)],
            [PagePicture(draw_curves(panels), CAPTION)],
            data,
        )


def _claims(apart: Mapping[str, list[dict[int, float]]]) -> list[Claim]:
    """The first task is stable; the second is not, early in the training of its score."""
    if len(apart) != 2:
        return []
    first, second = apart
    calm, wild = (spread(apart[task], early=True) for task in (first, second))
    end = spread(apart[second], early=False)
    unknown = any(math.isnan(each) for each in (calm, wild, end))
    return [
        Claim(
            f"Early in the training of the score, seeds lie further apart on {second} than on "
            f"{first}.",
            None if unknown else wild > calm,
            f"By up to {wild:.2f} and {calm:.2f} nats." if not unknown else "Seeds are missing.",
        ),
        Claim(
            f"On {second}, seeds come closer by the end of the training.",
            None if unknown else end < wild,
            f"From {wild:.2f} to {end:.2f} nats." if not unknown else "Seeds are missing.",
        ),
    ]
