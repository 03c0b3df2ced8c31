"""The mean squared error of the EIG gradient against N, for scores part of the way of their
training and for PCE.
"""

from collections.abc import Mapping
from typing import Any

from scorebed.paper.claims import Claim, MeasuredBias, correlates, lower_bias, plateaus
from scorebed.paper.data import read
from scorebed.paper.figures._page import claims_section, lead, truth_note, values_of
from scorebed.paper.gradients import gradient_errors_of
from scorebed.paper.item import PaperItem
from scorebed.paper.page import Page, PagePicture
from scorebed.paper.study import Study
from scorebed.paper.trained_scores import rows_of_scores, trained_scores
from scorebed.paper.units import Unit, UnitRecord

BATCH = 1024  # the paper's, of policies
CAPTION = (
    "Squared bias plus variance over N, as measured, at a policy that PCE has trained for a "
    "quarter of its steps; dotted lines mark squared biases that are told from zero. Scores "
    "of the first seed after 1/16 to all of their steps; PCE with the numbers of contrastive "
    "parameters of the tables."
)


class GradientMSE(PaperItem):
    """Figure 3, and its continuation in the appendix."""

    @property
    def name(self) -> str:
        return "gradient-mse"

    @property
    def title(self) -> str:
        return str(values_of(self.name)["title"])

    def units(self, study: Study) -> list[Unit]:
        units: list[Unit] = []
        for task in read("items")["gradients"]["tasks"]:
            scores = trained_scores(task, study)
            units += [*rows_of_scores(scores), *gradient_errors_of(task, scores)]
        return units

    def page(self, study: Study, records: Mapping[str, UnitRecord]) -> Page:
        from scorebed.plots.paper_errors import ErrorPanel, draw_gradient_mse

        panels, data, sections = [], [], []
        for task, values in read("items")["gradients"]["tasks"].items():
            _, unit = gradient_errors_of(task, ())
            found = records.get(unit.name)
            if found is None:
                panels.append(ErrorPanel(values["words"], []))
                continue
            result = found.result
            panels.append(_panel(values, result))
            data += _lines(task, result)
            sections.append(claims_section(_claims(values, result), _truth(result)))
            sections[-1] = sections[-1]._replace(title=values["words"])
        return Page(
            self.title,
            lead(self.name, study, self.units(study), records),
            sections,
            [PagePicture(draw_gradient_mse(panels), CAPTION)],
            data,
        )


def first_seed(result: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The scores of the first seed, from the least to the most trained."""
    return sorted(
        (each for each in result["scores"] if each["seed"] == 0), key=lambda each: each["step"]
    )


def _panel(values: Mapping[str, Any], result: Mapping[str, Any]) -> Any:
    from scorebed.plots.paper_errors import ErrorCurve, ErrorPanel

    scores = first_seed(result)
    curves = [
        ErrorCurve(
            f"ScoreBED, {each['step']:,} score steps",
            each["squared_bias"],
            each["squared_bias_se"],
            each["variance"],
            (place + 1) / len(scores),
        )
        for place, each in enumerate(scores)
    ]
    curves += [
        ErrorCurve(
            f"PCE, M = {each['inner']}",
            each["squared_bias"],
            each["squared_bias_se"],
            each["variance"],
        )
        for each in _of_tables(values, result)
    ]
    return ErrorPanel(values["words"], curves, result["squared_norm"])


def _claims(values: Mapping[str, Any], result: Mapping[str, Any]) -> list[Claim]:
    scores = [_bias(f"ScoreBED at step {each['step']:,}", each) for each in first_seed(result)]
    pce = [_bias(f"PCE with M = {each['inner']}", each) for each in _of_tables(values, result)]
    steps = [each["step"] for each in result["scores"]]
    biases = [each["squared_bias"] for each in result["scores"]]
    return [
        *lower_bias(
            scores[-1] if scores else None, pce, claimed_for_score=values["score_has_lower_bias"]
        ),
        correlates(
            "The squared bias falls with the training of the score.",
            steps,
            biases,
            sign=-1,
            of="all seeds",
        ),
        plateaus([*scores[-1:], *pce], BATCH),
    ]


def _bias(label: str, each: Mapping[str, Any]) -> MeasuredBias:
    return MeasuredBias(label, each["squared_bias"], each["squared_bias_se"], each["variance"])


def _of_tables(values: Mapping[str, Any], result: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [each for each in result["rivals"] if each["inner"] in values["main"]]


def _truth(result: Mapping[str, Any]) -> str:
    return (
        f"{result['outer']:,} trajectories; squared norm of the true gradient "
        f"{result['squared_norm']:.2g} ± {result['squared_norm_se']:.1g}. {truth_note(result)}"
    )


def _lines(task: str, result: Mapping[str, Any]) -> list[dict[str, Any]]:
    keys = ("squared_bias", "squared_bias_se", "variance")
    same = {"squared_norm": result["squared_norm"], "truth": result["truth"]}
    return [
        {
            "task": task,
            "seed": each.get("seed"),
            "score_step": each.get("step"),
            "inner": each.get("inner"),
            **{key: each[key] for key in keys},
            **same,
        }
        for each in (*result["scores"], *result["rivals"])
    ]
