"""Figures of a sweep: how its best rose, which settings matter, who reached what at which cost."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from scorebed.plots.style import FAINT, INK, LINES, SOFT, STEPS, TRUTH, plain_axes
from scorebed.plots.svg import literal

NATS = "lower bound of the EIG (nats)"


def draw_history(
    numbers: Sequence[int], values: Sequence[float], pruned: Sequence[tuple[int, float]] = ()
) -> Figure:
    """Every trial's bound by its number, and the best so far. Trials that were stopped early are
    crosses.
    """
    figure = Figure(figsize=(7, 3.6), layout="constrained")
    axes: Axes = figure.subplots()
    plain_axes(axes)
    axes.plot(numbers, values, "o", color=LINES[0], markersize=4, label="trial")
    best = np.maximum.accumulate(np.asarray(values, float))
    axes.step(numbers, best, where="post", color=TRUTH, linewidth=1.2, label="best so far")
    if pruned:
        axes.plot(*zip(*pruned, strict=True), "x", color=SOFT, markersize=4, label="stopped early")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    _label(axes, "trial", NATS)
    axes.legend(frameon=False, fontsize=8)
    return figure


def draw_importance(shares: Mapping[str, float]) -> Figure:
    """One bar per setting, the most important one on top."""
    names = sorted(shares, key=lambda name: shares[name])
    figure = Figure(figsize=(7, 0.9 + 0.3 * len(names)), layout="constrained")
    axes: Axes = figure.subplots()
    plain_axes(axes)
    axes.barh([literal(name) for name in names], [shares[n] for n in names], color=LINES[0])
    axes.tick_params(axis="y", labelsize=8, length=0)
    axes.set_xlabel("share of the importance", fontsize=8, color=INK)
    return figure


def draw_coordinates(
    settings: Mapping[str, Sequence[Any]], values: Sequence[float], logarithmic: Sequence[str] = ()
) -> Figure:
    """Parallel coordinates: one line per trial through its settings, coloured by its bound. A
    setting that a trial does not have is None, and leaves a gap.
    """
    figure = Figure(figsize=(1.6 + 1.5 * len(settings), 4.0), layout="constrained")
    axes: Axes = figure.subplots()
    heights = np.full((len(values), len(settings)), np.nan)
    for place, (name, column) in enumerate(settings.items()):
        heights[:, place], ticks = _scaled(column, log=name in logarithmic)
        axes.axvline(place, color=FAINT, linewidth=1, zorder=0)
        for height, text in ticks:
            axes.text(place + 0.03, height, literal(text), fontsize=8, color=INK, va="center")
    order = np.argsort(values)  # the best ones are drawn last, above the others
    across = np.arange(len(settings), dtype=float)
    lines = LineCollection(
        [np.column_stack([across, heights[i]]) for i in order], cmap=STEPS, linewidths=1.0
    )
    lines.set_array(np.asarray(values, float)[order])
    axes.add_collection(lines)
    axes.set_xlim(-0.1, max(len(settings) - 0.5, 0.5))
    axes.set_ylim(-0.06, 1.06)
    labels = [literal(name.rpartition(".")[2]) for name in settings]
    axes.set_xticks(range(len(settings)), labels, fontsize=7, rotation=20, ha="right")
    axes.set_yticks([])
    axes.spines[:].set_visible(False)
    bar = figure.colorbar(lines, ax=axes, shrink=0.8)
    bar.set_label(NATS, fontsize=8)
    bar.ax.tick_params(labelsize=7)
    return figure


def draw_costs(
    values: Sequence[float],
    errors: Sequence[float],
    nle: Sequence[float],
    seconds: Sequence[float],
    groups: Sequence[str],
) -> Figure:
    """The bound of every trial against its likelihood evaluations and its seconds, by policy."""
    figure = Figure(figsize=(9, 3.8), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    names = list(dict.fromkeys(groups))
    for axes, x, label in zip(
        panels,
        (nle, seconds),
        ("likelihood evaluations of training (NLE)", "seconds"),
        strict=True,
    ):
        plain_axes(axes)
        for place, name in enumerate(names):
            chosen = [i for i, group in enumerate(groups) if group == name]
            axes.errorbar(
                [x[i] for i in chosen],
                [values[i] for i in chosen],
                yerr=[2 * errors[i] for i in chosen],
                fmt="o",
                markersize=4,
                elinewidth=0.6,
                color=f"C{place % 10}",
                label=literal(name),
            )
        if min(x, default=0) > 0 and max(x) >= 10 * min(x):  # within a decade its labels overlap
            axes.set_xscale("log")
        _label(axes, label, NATS if axes is panels[0] else "")
    panels[0].legend(frameon=False, fontsize=8)
    return figure


def _label(axes: Axes, x: str, y: str) -> None:
    axes.set_xlabel(x, fontsize=8, color=INK)
    axes.set_ylabel(y, fontsize=8, color=INK)


def _scaled(column: Sequence[Any], *, log: bool) -> tuple[list[float], list[tuple[float, str]]]:
    """Values between 0 and 1, and what to write where."""
    there = [value for value in column if value is not None]
    if all(type(value) in (int, float) for value in there):
        numbers = [float(np.log(value)) if log else float(value) for value in there]
        low, high = min(numbers, default=0.0), max(numbers, default=1.0)
        span = (high - low) or 1.0
        ends = [(0.0, f"{min(there):.3g}"), (1.0, f"{max(there):.3g}")] if there else []
        found = iter(numbers)
        return [np.nan if v is None else (next(found) - low) / span for v in column], ends
    names = sorted({str(value) for value in there})
    place = {name: i / max(1, len(names) - 1) for i, name in enumerate(names)}
    heights = [np.nan if value is None else place[str(value)] for value in column]
    return heights, [(height, name) for name, height in place.items()]
