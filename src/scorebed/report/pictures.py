"""The pictures of a report, as inline SVG: training curves and experiments of the policy. Needs the
extra `plots`.
"""

import io
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax.random as jr
import numpy as np
from markupsafe import Markup

from scorebed.errors import ScorebedError
from scorebed.keys import named
from scorebed.report.reading import as_number, json_object
from scorebed.rollout import simulate
from scorebed.runs.artifacts import load_policy
from scorebed.runs.config import RunConfig
from scorebed.runs.folder import RunFolder
from scorebed.runs.strict_json import Json
from scorebed.runs.user_task import UserTask, task_of
from scorebed.tasks.base import Task

try:
    import matplotlib
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.ticker import (
        LogLocator,
        MaxNLocator,
        NullFormatter,
        NullLocator,
        ScalarFormatter,
    )

    from scorebed.plots.experiments import FAINT, INK, LINES, SOFT, draw_experiments
except ModuleNotFoundError as missing:
    raise ScorebedError(
        f"the figures of a report, got no package '{missing.name}', expected matplotlib. "
        "Fix: pip install 'scorebed[plots]'."
    ) from missing

EXPERIMENT_SEEDS = (0, 1, 2)


class Picture(NamedTuple):
    """A figure as inline SVG, with its caption."""

    svg: Markup
    caption: str


def loss_pictures(metrics: Sequence[Mapping[str, Json]]) -> list[Picture]:
    """One picture per loss term of the scores, one line per score."""
    lines = [line for line in metrics if str(line["stage"]).startswith("score-")]
    terms = dict.fromkeys(
        name for line in lines for name in line if name not in ("stage", "step", "seconds")
    )
    pictures = []
    for number, term in enumerate(terms):
        figure, ax = _panel()
        curves = {str(line["stage"]): _curve(lines, str(line["stage"]), term) for line in lines}
        for (stage, (steps, values)), colour in zip(
            curves.items(), _colours(len(curves)), strict=True
        ):
            ax.plot(steps, values, color=colour, linewidth=1.3, label=_literal(stage))
        _log_scale(ax, np.concatenate([values.ravel() for _, values in curves.values()]))
        ax.set(ylabel=_literal(f"loss, {_symbol(term)}-residuals" if term in ("xi", "y") else term))
        _finish(ax, legend=1 < len(curves) <= 8)
        caption = f"Loss of stage 1, term {_symbol(term)}, mean over blocks of steps."
        pictures.append(Picture(_svg(figure, f"loss-{number}"), caption))
    return pictures


def bound_pictures(
    metrics: Sequence[Mapping[str, Json]], folder: RunFolder, config: RunConfig
) -> list[Picture]:
    """One picture per repeat: the bound of every policy while it trains, the chosen one and static
    designs set off.
    """
    pictures = []
    with_bound = [line for line in metrics if "lower" in line]
    for repeat in range(config.repeats):
        stages = [f"policy-{repeat}-{index}" for index in range(config.score.seeds)]
        curves = [_curve(with_bound, stage, "lower") for stage in stages]
        members = [(steps, row) for steps, values in curves for row in values.T]
        if not members:
            continue
        choice = json_object(folder, f"choice-{repeat}.json") or {}
        best = 0 if len(members) == 1 else choice.get("best")
        figure, ax = _panel()
        steps, values = _curve(with_bound, "static", "lower")
        for row in values.T:
            ax.plot(
                steps,
                row,
                color=SOFT,
                linestyle="--",
                marker=".",
                linewidth=1.1,
                label="static designs",
            )
        for number, (steps, row) in enumerate(members):
            style: dict[str, Any] = {
                "color": LINES[0],
                "alpha": 0.35,
                "linewidth": 1.0,
                "marker": ".",
            }
            if number == best:
                style |= {
                    "color": LINES[1],
                    "alpha": 1.0,
                    "linewidth": 1.8,
                    "zorder": 3,
                    "label": "policy kept",
                }
            elif number == (0 if best != 0 else 1):
                style |= {"label": "other policies" if best is not None else "policies"}
            ax.plot(steps, row, **style)
        ax.set(ylabel="EIG lower bound [nats]")
        _finish(ax, legend=True)
        which = f" of repeat {repeat + 1:,}" if config.repeats > 1 else ""
        caption = (
            f"Lower bound of each policy{which} while training, by a small sample on the same "
            f"draws every time."
        )
        pictures.append(Picture(_svg(figure, f"lower-{repeat}"), caption))
    return pictures


def experiments_picture(
    folder: RunFolder, config: RunConfig, given: UserTask | Task | None
) -> tuple[Picture | None, str]:
    """A few experiments of the policy of the first repeat, or why there are none."""
    path = folder.path / "policy-0.safetensors"
    if not path.exists():
        return None, f"There is no trained policy yet: no {path.name}."
    try:
        task = task_of(config, given, on_warning=lambda _: None)
        policy = load_policy(path, config.policy, task)
    except ScorebedError as error:
        return None, f"The policy cannot be shown: {error}"
    runs = [simulate(task, policy, key=named(jr.key(seed), "report")) for seed in EXPERIMENT_SEEDS]
    seeds = ", ".join(str(seed) for seed in EXPERIMENT_SEEDS)
    first = ", that of the first repeat" if config.repeats > 1 else ""
    caption = (
        f"{len(runs)} simulated experiments of the policy{first}, with parameters from the "
        f"prior; seeds {seeds}."
    )
    return Picture(_svg(draw_experiments(task, runs), "experiments"), caption), ""


def _curve(
    lines: Sequence[Mapping[str, Json]], stage: str, name: str
) -> tuple[np.ndarray, np.ndarray]:
    """Steps [n], and the values [n, policies] of one name in one stage; NaN where there is no
    number.
    """
    found = [line for line in lines if line["stage"] == stage and name in line]
    rows = [_numbers(line[name]) for line in found]
    values = np.full((len(rows), max(map(len, rows), default=0)), np.nan)
    for to, row in zip(values, rows, strict=True):
        to[: len(row)] = row
    return np.asarray([line["step"] for line in found], float), values


def _numbers(value: Json) -> list[float]:
    return [as_number(item) for item in value] if isinstance(value, list) else [as_number(value)]


def _panel() -> tuple[Figure, Axes]:
    figure = Figure(figsize=(4.6, 2.9), layout="constrained")
    return figure, figure.subplots()


def _finish(ax: Axes, *, legend: bool) -> None:
    ax.set_xlabel("step", fontsize=9, color=INK)
    ax.yaxis.label.set(fontsize=9, color=INK)
    ax.spines[["top", "right"]].set_visible(False)
    ax.spines[["left", "bottom"]].set_color(SOFT)
    ax.tick_params(which="both", labelsize=8, color=SOFT)
    ax.grid(axis="y", color=FAINT, linewidth=0.7)
    ax.set_axisbelow(True)
    ax.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    if legend:
        ax.legend(fontsize=8, framealpha=0.8, edgecolor="none", borderpad=0.3)


def _log_scale(ax: Axes, values: np.ndarray) -> None:
    """A log scale where one can be had, with plain numbers on it: a loss often moves within a
    single decade.
    """
    finite = values[np.isfinite(values)]
    if not finite.size or finite.min() <= 0:
        return
    ax.set_yscale("log")
    if finite.max() / finite.min() < 30:
        ax.yaxis.set_major_locator(LogLocator(subs=(1, 1.5, 2, 3, 5, 7)))
        ax.yaxis.set_major_formatter(ScalarFormatter())
        ax.yaxis.set_minor_locator(NullLocator())
    ax.yaxis.set_minor_formatter(NullFormatter())


def _colours(number: int) -> list[str]:
    return [LINES[i % len(LINES)] for i in range(number)]


def _symbol(term: str) -> str:
    return "ξ" if term == "xi" else term


def _literal(text: str) -> str:
    """Text that matplotlib draws as it stands: a dollar would begin a formula, a first underscore
    hide a legend's entry.
    """
    return "".join(c if c.isprintable() else " " for c in text).replace("$", r"\$").lstrip("_")


def _svg(figure: Figure, name: str) -> Markup:
    """A figure as an element of the page. Its ids begin with `name`, because a page's ids are
    common to all its figures.
    """
    buffer = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": name, "svg.fonttype": "path"}):
        figure.savefig(buffer, format="svg", dpi=150, facecolor="white", metadata={"Date": None})
    text = buffer.getvalue()
    text = re.sub(
        r"<metadata>.*?</metadata>|<!--.*?-->", "", text[text.index("<svg") :], flags=re.DOTALL
    )
    text = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{name}-", text)
    return Markup(text)  # all text in it was escaped by matplotlib
