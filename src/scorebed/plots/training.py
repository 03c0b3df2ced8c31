"""Training curves: losses of scores, and lower bounds of policies."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import (
    LogLocator,
    MaxNLocator,
    NullFormatter,
    NullLocator,
    ScalarFormatter,
)

from scorebed.plots.style import FAINT, INK, LINES, SOFT
from scorebed.plots.svg import literal

MANY = 8  # curves, beyond which a legend hides more than it tells


class Series(NamedTuple):
    """Values at steps of training, one column per network; NaN where there is no number."""

    steps: Float[np.ndarray, " n"]
    values: Float[np.ndarray, "n members"]


def loss_figure(curves: Mapping[str, Series], label: str) -> Figure:
    """A loss against the step, one line per stage."""
    figure, ax = _panel()
    for i, (stage, (steps, values)) in enumerate(curves.items()):
        colour = LINES[i % len(LINES)]
        ax.plot(steps, values, color=colour, linewidth=1.3, label=literal(stage))
    _log_scale(ax, np.concatenate([values.ravel() for _, values in curves.values()]))
    ax.set(ylabel=literal(label))
    _finish(ax, legend=1 < len(curves) <= MANY)
    return figure


def bound_figure(
    policies: Sequence[Series], references: Mapping[str, Series], best: int | None
) -> Figure:
    """The lower bound of every policy against the step. The one that was kept, number `best` of all
    members, and the references, by the name of their designs, stand out.
    """
    figure, ax = _panel()
    for name, (steps, values) in references.items():
        style: dict[str, Any] = {"color": SOFT, "linestyle": "--", "marker": ".", "linewidth": 1.1}
        for row in values.T:
            ax.plot(steps, row, label=literal(f"{name} designs"), **style)
    members = [(steps, row) for steps, values in policies for row in values.T]
    for number, (steps, row) in enumerate(members):
        ax.plot(steps, row, **_member_style(number, best))
    ax.set(ylabel="EIG lower bound [nats]")
    _finish(ax, legend=True)
    return figure


def _member_style(number: int, best: int | None) -> dict[str, Any]:
    if number == best:
        label = {"zorder": 3, "label": "policy kept"}
        return {"color": LINES[1], "alpha": 1.0, "linewidth": 1.8, "marker": ".", **label}
    style: dict[str, Any] = {"color": LINES[0], "alpha": 0.35, "linewidth": 1.0, "marker": "."}
    if number == (0 if best != 0 else 1):  # once for all of them
        style["label"] = "other policies" if best is not None else "policies"
    return style


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
    """A log scale if all values are positive, with plain numbers on it: losses often stay within a
    decade.
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
