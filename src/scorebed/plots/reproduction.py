"""Rows of a table as dots: what was reached here beside what the paper prints."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Figure

from scorebed.plots.style import FAINT, INK, LINES, plain_axes

Point = tuple[float, float]  # a mean and its standard error, which may be NaN


class Dots(NamedTuple):
    """A row: our lower and upper bound, where it has been run, and the paper's."""

    label: str
    ours: tuple[Point, Point] | None
    paper: tuple[Point, Point]


def draw_rows(panels: Mapping[str, Sequence[Dots]]) -> Figure:
    """One panel per task, one line per row: a bar from the lower to the upper bound, with dots at
    both and their standard errors; ours above, the paper's below.
    """
    tallest = max(len(rows) for rows in panels.values())
    width = 2.2 + 3.2 * len(panels)
    figure = Figure(figsize=(width, 1.3 + 0.42 * tallest), layout="constrained")
    each: np.ndarray = figure.subplots(1, len(panels), squeeze=False)[0]
    for place, (axes, (task, rows)) in enumerate(zip(each, panels.items(), strict=True)):
        _panel(axes, rows, labelled=place == 0 or not _same_labels(panels))
        axes.set_title(task, fontsize=9, color=INK)
    marks: dict[Any, Any] = {}
    for axes in each:
        marks |= dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    figure.legend(
        marks.values(),
        marks.keys(),
        loc="outside lower center",
        ncols=2,
        frameon=False,
        fontsize=8,
    )
    return figure


def _panel(axes: Axes, rows: Sequence[Dots], *, labelled: bool) -> None:
    plain_axes(axes)
    count = len(rows)
    for place, row in enumerate(rows):
        y = count - place
        axes.axhline(y, color=FAINT, linewidth=0.6, zorder=0)
        _bounds(axes, row.paper, y - 0.15, LINES[1], "the paper")
        if row.ours is not None:
            _bounds(axes, row.ours, y + 0.15, LINES[0], "here")
    axes.set_yticks(range(count, 0, -1), [row.label for row in rows] if labelled else [""] * count)
    axes.tick_params(axis="y", labelsize=8, length=0)
    axes.set_ylim(0.4, count + 0.6)
    axes.set_xlabel("expected information gain (nats)", fontsize=8)


def _bounds(axes: Axes, pair: tuple[Point, Point], y: float, colour: str, label: str) -> None:
    (lower, lower_se), (upper, upper_se) = pair
    axes.plot([lower, upper], [y, y], color=colour, linewidth=2.5, alpha=0.35)
    for value, error, filled in ((upper, upper_se, False), (lower, lower_se, True)):
        axes.errorbar(
            [value],
            [y],
            xerr=[0 if np.isnan(error) else error],
            fmt="o",
            markersize=4,
            markerfacecolor=colour if filled else "white",
            color=colour,
            elinewidth=1,
            capsize=2,
            label=f"{label}: lower bound" if filled else f"{label}: upper bound",
        )


def _same_labels(panels: Mapping[str, Sequence[Dots]]) -> bool:
    return len({tuple(row.label for row in rows) for rows in panels.values()}) == 1
