"""Curves as the paper draws them: EIG against likelihood evaluations, steps, and steps of stage 1.

One panel per setting; every curve has standard errors where they are known. All numbers come from
records, none is made here.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from scorebed.plots.style import FAINT, INK, SOFT
from scorebed.plots.svg import literal

PANEL = (4.6, 3.4)  # inches


class PaperCurve(NamedTuple):
    """Numbers against numbers, with standard errors where they are known (else NaN or empty)."""

    label: str
    x: Sequence[float]
    y: Sequence[float]
    se: Sequence[float] = ()
    dashed: bool = False
    colour: int | None = None
    """A number of a colour, where two curves share one."""


class CurvePanel(NamedTuple):
    """Curves with the same axes."""

    title: str
    x_label: str
    curves: Sequence[PaperCurve]
    y_label: str = "EIG lower bound [nats]"
    log_x: bool = True
    markers: bool = True
    """Whether every point is a measurement of its own."""


def draw_curves(panels: Sequence[CurvePanel], title: str = "") -> Figure:
    """Panels side by side, each with a legend of its own below it."""
    width, height = PANEL
    figure = Figure(figsize=(width * len(panels), height + 0.3 * bool(title)), layout="constrained")
    axes = np.atleast_1d(figure.subplots(1, len(panels)))
    for ax, panel in zip(axes, panels, strict=True):
        _draw_panel(ax, panel)
    if title:
        figure.suptitle(literal(title), fontsize=10, color=INK)
    return figure


def _draw_panel(ax: Axes, panel: CurvePanel) -> None:
    for number, curve in enumerate(panel.curves):
        order = np.argsort(curve.x)
        x, y = np.asarray(curve.x, float)[order], np.asarray(curve.y, float)[order]
        style: dict[str, Any] = {
            "color": f"C{(number if curve.colour is None else curve.colour) % 10}",
            "linestyle": "--" if curve.dashed else "-",
            "linewidth": 1.3,
            "label": literal(curve.label),
        }
        if panel.markers:
            style |= {"marker": "o" if not curve.dashed else "s", "markersize": 3.5}
        if np.isfinite(np.asarray(curve.se, float)).any():  # of single repeats there are none
            spread = np.nan_to_num(np.asarray(curve.se, float)[order])
            ax.errorbar(x, y, yerr=spread, capsize=2.5, elinewidth=0.8, **style)
        else:
            ax.plot(x, y, **style)
    if panel.log_x:
        ax.set_xscale("log")
    label_axes(ax, panel.x_label, panel.y_label, panel.title)
    if panel.curves:
        ax.legend(fontsize=7, frameon=False, borderpad=0.2)
    else:
        nothing_yet(ax)


def label_axes(ax: Axes, x_label: str, y_label: str, title: str) -> None:
    """Labels, a grid, two faint spines."""
    ax.set_xlabel(literal(x_label), fontsize=8, color=INK)
    ax.set_ylabel(literal(y_label), fontsize=8, color=INK)
    ax.set_title(literal(title), fontsize=9, color=INK)
    ax.spines[["top", "right"]].set_visible(False)
    ax.spines[["left", "bottom"]].set_color(SOFT)
    ax.tick_params(which="both", labelsize=7, color=SOFT)
    ax.grid(color=FAINT, linewidth=0.6)
    ax.set_axisbelow(True)


def nothing_yet(ax: Axes) -> None:
    """Say that a panel has no numbers."""
    ax.text(0.5, 0.5, "no records yet", transform=ax.transAxes, ha="center", color=SOFT)
