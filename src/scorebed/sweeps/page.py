"""The report of a study: one HTML file, which needs no other. Needs the extra `plots`."""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jinja2
import optuna
from markupsafe import Markup
from optuna.distributions import FloatDistribution, IntDistribution
from optuna.study import Study as OptunaStudy
from optuna.trial import FrozenTrial, TrialState

from scorebed.report.pictures import ReportFigure
from scorebed.runs.durable import replace_file
from scorebed.runs.stage import Progress
from scorebed.runs.user_parts import BUILT_IN, UserParts
from scorebed.sweeps.status import study_status
from scorebed.sweeps.study import RESULT, SweepStudy
from scorebed.sweeps.winner import Winner, judge_winner

REPORT, TEMPLATE = "report.html", "sweep.html"
ENOUGH = 5  # trials before anything can be said about the importance of settings
LISTED = 100  # trials in the table, the best ones


def write_sweep_report(
    study: SweepStudy, *, parts: UserParts = BUILT_IN, progress: Progress | None = None
) -> Path:
    """Write the report of a study over the one that is there; the winner is judged for it."""
    winner = judge_winner(study, parts=parts, progress=progress)
    path = study.folder / REPORT
    replace_file(path, render_sweep(study, winner).encode("utf-8", "replace"))
    return path


def render_sweep(study: SweepStudy, winner: Winner) -> str:
    """The page of a study and its winner."""
    trials = study.load()
    done = trials.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    status = study_status(study)
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("scorebed"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    best = sorted(done, key=lambda trial: trial.values[0], reverse=True)[:LISTED]
    return environment.get_template(TEMPLATE).render(
        study=study,
        status=status,
        winner=winner,
        sentence=luck_sentence(winner),
        seconds=sum(trial.user_attrs[RESULT]["seconds"] for trial in done),
        nle=sum(trial.user_attrs[RESULT]["nle"] for trial in done),
        pictures=_pictures(trials, done),
        columns=list(dict.fromkeys(key for trial in done for key in trial.params)),
        rows=[(trial, trial.user_attrs[RESULT]) for trial in best],
        number=_number,
    )


def luck_sentence(winner: Winner) -> str:
    """How much of the winner's lead was luck."""
    words = (
        f"Trial {winner.trial} was chosen among {winner.candidates:,} by {winner.selection:.3f} ± "
        f"{winner.selection_se:.3f} nats; on draws that chose nothing it has "
        f"{winner.independent:.3f} ± {winner.independent_se:.3f}."
    )
    if winner.luck > 2 * winner.luck_se:
        return f"{words} {winner.luck:.3f} ± {winner.luck_se:.3f} nats of its lead were luck."
    return (
        f"{words} The difference, {winner.luck:+.3f} ± {winner.luck_se:.3f}, is within its error."
    )


def importance(trials: OptunaStudy, done: Sequence[FrozenTrial]) -> dict[str, float]:
    """The share of every setting that all trials have in reaching the better ones, by Optuna's
    PED-ANOVA; nothing where too few trials can tell.
    """
    shared = [key for key in done[0].params if all(key in t.params for t in done)] if done else []
    varied = [key for key in shared if len({str(trial.params[key]) for trial in done}) > 1]
    if len(done) < ENOUGH or not varied:
        return {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        evaluator = optuna.importance.PedAnovaImportanceEvaluator()
        found = optuna.importance.get_param_importances(trials, evaluator=evaluator, params=varied)
    return {key: float(share) for key, share in found.items()}


def _pictures(trials: OptunaStudy, done: Sequence[FrozenTrial]) -> list[ReportFigure]:
    from scorebed.plots.svg import svg_element
    from scorebed.plots.sweep import draw_coordinates, draw_costs, draw_history, draw_importance

    values = [trial.values[0] for trial in done]
    results = [trial.user_attrs[RESULT] for trial in done]
    pruned = [
        (trial.number, trial.values[0])
        for trial in trials.get_trials(deepcopy=False, states=(TrialState.PRUNED,))
        if trial.values
    ]
    keys = list(dict.fromkeys(key for trial in done for key in trial.params))
    found = [
        (
            draw_history([trial.number for trial in done], values, pruned),
            "history",
            "The bound of every trial by its number, and the best so far.",
        ),
        (
            draw_costs(
                values,
                [result["lower_se"] for result in results],
                [float(result["nle"]) for result in results],
                [result["seconds"] for result in results],
                [result["policy"] for result in results],
            ),
            "costs",
            "The bound against likelihood evaluations and seconds of the trial's own run, without "
            "the score's; two standard errors.",
        ),
        (
            draw_coordinates(
                {key: [trial.params.get(key) for trial in done] for key in keys},
                values,
                [key for key in keys if _is_logarithmic(done, key)],
            ),
            "coordinates",
            "Every trial as a line through its settings; bright ones have the higher bounds.",
        ),
    ]
    if shares := importance(trials, done):
        caption = (
            "Importance of the settings that all trials have, for reaching the better ones "
            "(PED-ANOVA)."
        )
        found.insert(1, (draw_importance(shares), "importance", caption))
    return [
        ReportFigure(Markup(svg_element(figure, name)), caption) for figure, name, caption in found
    ]


def _is_logarithmic(done: Sequence[FrozenTrial], key: str) -> bool:
    kinds = [trial.distributions[key] for trial in done if key in trial.distributions]
    return any(isinstance(kind, FloatDistribution | IntDistribution) and kind.log for kind in kinds)


def _number(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
