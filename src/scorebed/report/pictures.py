"""The figures of a report, as inline SVG: training curves and experiments of the policy. Needs the
extra `plots`.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import jax.random as jr
import numpy as np
from jaxtyping import PRNGKeyArray
from markupsafe import Markup

from scorebed._jit import jit_once
from scorebed.errors import ScorebedError
from scorebed.keys import named
from scorebed.policies.base import Policy
from scorebed.report.reading import as_number, json_object
from scorebed.rollout import Trajectory, simulate
from scorebed.runs.artifacts import load_policy
from scorebed.runs.config import RunConfig
from scorebed.runs.execution import RECORD, job_for
from scorebed.runs.folder import RunFolder
from scorebed.runs.strict_json import Json
from scorebed.runs.user_task import UserTask, task_of
from scorebed.tasks.base import Task
from scorebed.training.dropped import DROPPED

if TYPE_CHECKING:
    from scorebed.plots.training import Series

EXPERIMENT_SEEDS = (0, 1, 2)


class ReportFigure(NamedTuple):
    """A figure as inline SVG, with its caption."""

    svg: Markup
    caption: str


def loss_pictures(metrics: Sequence[Mapping[str, Json]]) -> list[ReportFigure]:
    """One figure per loss term of the scores, one line per score."""
    from scorebed.plots.svg import svg_element
    from scorebed.plots.training import loss_figure

    lines = [line for line in metrics if str(line["stage"]).startswith("score-")]
    terms = dict.fromkeys(
        name for line in lines for name in line if name not in ("stage", "step", "seconds", DROPPED)
    )
    figures = []
    for number, term in enumerate(terms):
        curves = {str(line["stage"]): _series(lines, str(line["stage"]), term) for line in lines}
        label = f"loss, {_symbol(term)}-residuals" if term in ("xi", "y") else term
        caption = f"Loss of stage 1, term {_symbol(term)}, mean over blocks of steps."
        svg = Markup(svg_element(loss_figure(curves, label), f"loss-{number}"))
        figures.append(ReportFigure(svg, caption))
    return figures


def bound_pictures(
    metrics: Sequence[Mapping[str, Json]], folder: RunFolder, config: RunConfig
) -> list[ReportFigure]:
    """One figure per repeat: the lower bound of every policy during training. The one that was kept
    and the trained reference stand out.
    """
    from scorebed.plots.svg import svg_element
    from scorebed.plots.training import bound_figure

    figures = []
    with_bound = [line for line in metrics if "lower" in line]
    others = dict.fromkeys(
        stage for line in with_bound if not (stage := str(line["stage"])).startswith("policy-")
    )
    references = {stage: _series(with_bound, stage, "lower") for stage in others}
    for repeat in range(config.repeats):
        stages = _stages(with_bound, repeat)
        policies = [_series(with_bound, stage, "lower") for stage in stages]
        members = sum(series.values.shape[1] for series in policies)
        if not members:
            continue
        choice = json_object(folder, f"choice-{repeat}.json") or {}
        best = 0 if members == 1 else choice.get("best")
        figure = bound_figure(policies, references, best)
        which = f" of repeat {repeat + 1:,}" if config.repeats > 1 else ""
        caption = (
            f"Lower bound of each policy{which} during training, from a small sample with the same "
            f"draws every time."
        )
        svg = Markup(svg_element(figure, f"lower-{repeat}"))
        figures.append(ReportFigure(svg, caption))
    return figures


def _stages(metrics: Sequence[Mapping[str, Any]], repeat: int) -> list[str]:
    """The stages in which the policies of a repeat were trained, in order."""
    start = f"policy-{repeat}-"
    names = {str(line["stage"]) for line in metrics if str(line["stage"]).startswith(start)}
    return sorted(names, key=lambda name: int(name.removeprefix(start)))


def experiments_picture(
    folder: RunFolder, config: RunConfig, given: UserTask | Task | None
) -> tuple[ReportFigure | None, str]:
    """A few experiments of the policy of the first repeat, or why there are none."""
    from scorebed.plots.experiments import draw_experiments
    from scorebed.plots.svg import svg_element

    path = folder.path / "policy-0.safetensors"
    stands = (json_object(folder, RECORD) or {}).get("trained") is False
    if not path.exists() and not stands:
        return None, f"There is no trained policy yet: no {path.name}."
    try:
        task = task_of(config, given, on_warning=lambda _: None)
        job = job_for(config, task)
        policy = (
            load_policy(path, job.make_policy, task)
            if path.exists()
            else config.trained_by.untrained(job)
        )
    except ScorebedError as error:
        return None, f"The policy cannot be shown: {error}"
    keys = [named(jr.key(seed), "report") for seed in EXPERIMENT_SEEDS]
    runs = [_simulated(task, policy, key) for key in keys]
    seeds = ", ".join(str(seed) for seed in EXPERIMENT_SEEDS)
    first = ", that of the first repeat" if config.repeats > 1 else ""
    caption = (
        f"{len(runs)} simulated experiments of the policy{first}, with parameters from the "
        f"prior; seeds {seeds}."
    )
    svg = Markup(svg_element(draw_experiments(task, runs), "experiments"))
    return ReportFigure(svg, caption), ""


@jit_once
def _simulated(task: Task, policy: Policy, key: PRNGKeyArray) -> Trajectory:
    return simulate(task, policy, key=key)


def _series(lines: Sequence[Mapping[str, Json]], stage: str, name: str) -> "Series":
    """The values of one name in one stage."""
    from scorebed.plots.training import Series

    found = [line for line in lines if line["stage"] == stage and name in line]
    rows = [_numbers(line[name]) for line in found]
    values = np.full((len(rows), max(map(len, rows), default=0)), np.nan)
    for to, row in zip(values, rows, strict=True):
        to[: len(row)] = row
    return Series(np.asarray([line["step"] for line in found], float), values)


def _numbers(value: Json) -> list[float]:
    return [as_number(item) for item in value] if isinstance(value, list) else [as_number(value)]


def _symbol(term: str) -> str:
    return "ξ" if term == "xi" else term
