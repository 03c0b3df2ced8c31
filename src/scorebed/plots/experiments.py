"""Experiments drawn in their task's own space: one column per experiment, on common axes.

    one design coordinate     the mean of the outcome along it, with the measurements on top
    two design coordinates    a map of the mean, with the way of the designs across it
    anything else             designs and outcomes against the step, one row per unit

The first two need steps that are independent and Gaussian with one outcome: elsewhere the mean is
no function of the design alone. Gravimetry also shows the ground with its void, location finding
its sources, in 3-D as two projections.

Needs the extra `plots`. No global state of matplotlib is touched: a figure is returned, and
`figure.savefig(…)` writes it."""

import itertools
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure, FigureBase
from matplotlib.patches import Circle
from matplotlib.ticker import MaxNLocator

from scorebed.errors import require
from scorebed.rollout import Trajectory
from scorebed.tasks.base import IID, Gaussian, Task
from scorebed.tasks.library.gravimetry import KAPPA_PER_CUBIC_METRE, Gravimetry
from scorebed.tasks.library.location import LocationFinding
from scorebed.tasks.spaces import Box, Quantity

INK, SOFT, FAINT, TRUTH, GROUND = "#1b2430", "#8b96a5", "#dfe4ea", "#d1495b", "#efe6d8"
LINES = ("#2f6db5", "#e08a1e", "#3a8f6f", "#8a5fb0")
STEPS = "viridis"
MIST = LinearSegmentedColormap.from_list("mist", ("#fbfcfd", "#d5dee8", "#9fb2c6", "#6c86a3"))

COLUMN_WIDTH = 4.0  # inches
CAPTION_LIMIT = 4  # parameters that a caption can name


Range: TypeAlias = tuple[float, float]


class Panel(NamedTuple):
    """One row of the figure: how high it is, and how one experiment is drawn into it."""

    height: float
    draw: Callable[[Axes, Trajectory], None]


class Panels(NamedTuple):
    """The rows of a figure, and whether colour stands for the step in them."""

    rows: list[Panel]
    coloured: bool


def draw_experiments(task: Task, runs: Sequence[Trajectory]) -> Figure:
    """A new figure, one column per experiment."""
    panels = _panels(task, runs)
    width = COLUMN_WIDTH * len(runs) + (0.6 if panels.coloured else 0)
    figure = Figure(
        figsize=(width, sum(row.height for row in panels.rows) + 0.7), layout="compressed"
    )
    _fill(figure, task, runs, panels)
    return figure


def draw_into(figure: FigureBase, task: Task, runs: Sequence[Trajectory]) -> None:
    """The same, into a figure or subfigure that is there already."""
    _fill(figure, task, runs, _panels(task, runs))


def _fill(figure: FigureBase, task: Task, runs: Sequence[Trajectory], panels: Panels) -> None:
    heights = [row.height for row in panels.rows]
    axes = figure.subplots(
        len(heights), len(runs), squeeze=False, sharex="all", sharey="row", height_ratios=heights
    )
    for row, panel in zip(axes, panels.rows, strict=True):
        for ax, run in zip(row, runs, strict=True):
            panel.draw(ax, run)
            _tidy(ax)
        _legend(row, outside=not panels.coloured)
    for ax, run in zip(axes[0], runs, strict=True):
        ax.set_title(_caption(task, run), fontsize=8, color=INK, loc="left")
    if panels.coloured:
        _step_bar(figure, axes, task.horizon)


def _require_experiments(task: Task, runs: Sequence[Trajectory]) -> None:
    """One `Trajectory` with a batch axis is the mistake to expect. Experiments may be shorter than
    the horizon.
    """
    dims = task.outcome_dim, task.designs.dim
    shapes = [] if isinstance(runs, Trajectory) else [(run.ys.shape, run.xis.shape) for run in runs]
    fits = all(
        len(y) == len(xi) == 2 and y[0] == xi[0] >= 1 and (y[1], xi[1]) == dims for y, xi in shapes
    )
    require(
        fits and shapes != [],
        "experiments to draw",
        got=shapes or type(runs).__name__,
        expected=f"a list of single experiments, with outcomes [T, {dims[0]}] and designs [T, "
        f"{dims[1]}]",
        fix="pass [run] for one, and take a batch apart.",
    )


def _panels(task: Task, runs: Sequence[Trajectory]) -> Panels:
    _require_experiments(task, runs)
    if (
        isinstance(task, IID)
        and isinstance(task, Gaussian)
        and task.outcome_dim == 1
        and task.designs.dim <= 2
    ):
        if task.designs.dim == 2:
            return Panels([_map(task, runs)], coloured=True)
        spread = _spread(task, runs, 0)
        profile = Panel(2.7, lambda ax, run: _profile(task, run, spread, ax))
        if isinstance(task, Gravimetry):
            return Panels([profile, _ground(task, runs, spread)], coloured=True)
        return Panels([profile], coloured=True)
    if isinstance(task, LocationFinding):
        return Panels([_projection(task, runs, (0, i)) for i in (1, 2)], coloured=True)
    return Panels(_every_series(task), coloured=False)


# ---- one design coordinate


def _profile(task: Gaussian, run: Trajectory, spread: Range, ax: Axes) -> None:
    """The mean of the outcome along the design, ± two standard deviations, and the measurements."""
    grid = np.linspace(*spread, 500)
    mean, scale = _mean_and_scale(task, run, grid[:, None])
    ax.fill_between(
        grid, mean - 2 * scale, mean + 2 * scale, color=FAINT, linewidth=0, label="truth ± 2 sd"
    )
    ax.plot(grid, mean, color=SOFT, linewidth=1.3)
    _dots(ax, run.xis[:, 0], run.ys[:, 0], task.horizon)
    ax.set(xlim=spread, xlabel=str(task.designs.quantities[0]), ylabel=str(task.outcomes[0]))


def _ground(task: Gravimetry, runs: Sequence[Trajectory], spread: Range) -> Panel:
    """A section through the ground with the void in it, to scale."""
    width = spread[1] - spread[0]
    deepest = max(0.18 * width, *(1.15 * (float(run.theta[1]) + _radius(run)) for run in runs))

    def draw(ax: Axes, run: Trajectory) -> None:
        x0, depth = float(run.theta[0]), float(run.theta[1])
        ax.axhspan(0, deepest, color=GROUND, linewidth=0)
        ax.add_patch(
            Circle((x0, depth), _radius(run), facecolor="white", edgecolor=TRUTH, linewidth=1.4)
        )
        ax.plot(x0, depth, marker=".", color=TRUTH, markersize=3)
        ax.set(xlim=spread, ylim=(deepest, 0), aspect="equal", anchor="N")
        ax.set(xlabel=str(task.designs.quantities[0]), ylabel="depth [m]")

    return Panel(0.85 * COLUMN_WIDTH * deepest / width, draw)


def _radius(run: Trajectory) -> float:
    """R of κ = const · R³."""
    return float(run.theta[-1] / KAPPA_PER_CUBIC_METRE) ** (1 / 3)


# ---- two design coordinates


def _map(task: Gaussian, runs: Sequence[Trajectory]) -> Panel:
    """The mean over the plane of designs, the way across it, and what is sought."""
    spreads = _square(_spread(task, runs, 0), _spread(task, runs, 1))
    grids = [np.linspace(*spread, 160) for spread in spreads]
    points = np.stack(np.meshgrid(*grids), -1).reshape(-1, 2)
    means = np.concatenate([_mean_and_scale(task, run, points)[0] for run in runs])
    low, middle, high = np.quantile(means, (0.002, 0.5, 0.998))
    # The far end of the mean is dark: peaks where there are peaks, troughs where there are troughs.
    shades = MIST if high - middle >= middle - low else MIST.reversed()

    def draw(ax: Axes, run: Trajectory) -> None:
        mean = _mean_and_scale(task, run, points)[0].reshape(160, 160)
        ax.pcolormesh(
            *grids, mean, cmap=shades, norm=Normalize(low, high), shading="gouraud", rasterized=True
        )
        levels = [level for level in np.linspace(low, high, 9) if mean.min() < level < mean.max()]
        if levels:
            ax.contour(
                *grids, mean, levels=levels, colors="white", linewidths=0.6, linestyles="solid"
            )
        _way(task, run, (0, 1), ax)
        if isinstance(task, LocationFinding):
            _sources(task, run, (0, 1), ax)
        if isinstance(task, Gravimetry):
            ax.add_patch(
                Circle(
                    tuple(run.theta[:2].tolist()),
                    _radius(run),
                    fill=False,
                    edgecolor=TRUTH,
                    linewidth=1.6,
                )
            )
        ax.set(xlim=spreads[0], ylim=spreads[1], aspect="equal")
        ax.set(xlabel=str(task.designs.quantities[0]), ylabel=str(task.designs.quantities[1]))
        ax.text(
            0.02, 0.02, f"shade: {task.outcomes[0]}", transform=ax.transAxes, fontsize=7, color=INK
        )

    return Panel(0.85 * COLUMN_WIDTH, draw)


def _projection(task: LocationFinding, runs: Sequence[Trajectory], axes: tuple[int, int]) -> Panel:
    """Two coordinates of a space of three or more."""
    spreads = [_square(*(_spread(task, runs, i) for i in range(task.designs.dim)))[i] for i in axes]

    def draw(ax: Axes, run: Trajectory) -> None:
        _sources(task, run, axes, ax)
        _way(task, run, axes, ax)
        ax.set(xlim=spreads[0], ylim=spreads[1], aspect="equal")
        ax.set(
            xlabel=str(task.designs.quantities[axes[0]]),
            ylabel=str(task.designs.quantities[axes[1]]),
        )

    return Panel(0.85 * COLUMN_WIDTH, draw)


def _sources(task: LocationFinding, run: Trajectory, axes: tuple[int, int], ax: Axes) -> None:
    at = np.asarray(run.theta).reshape(task.sources, task.designs.dim)[:, axes]
    ax.scatter(
        *at.T,
        marker="X",
        s=75,
        color=TRUTH,
        edgecolor="white",
        linewidth=0.9,
        label="source",
        zorder=4,
    )


def _way(task: Task, run: Trajectory, axes: tuple[int, int], ax: Axes) -> None:
    ax.plot(*np.asarray(run.xis)[:, axes].T, color=INK, linewidth=0.6, alpha=0.35)
    _dots(ax, run.xis[:, axes[0]], run.xis[:, axes[1]], task.horizon)


def _square(*spreads: Range) -> list[Range]:
    """The ranges, widened about their middles to the widest."""
    half = max(high - low for low, high in spreads) / 2
    return [((low + high) / 2 - half, (low + high) / 2 + half) for low, high in spreads]


# ---- against the step


def _every_series(task: Task) -> list[Panel]:
    """Designs, then outcomes, in groups of one unit."""
    designs = [
        _series(group, lambda run, at=at: run.xis[:, at], "steps-pre")
        for group, at in _by_unit(task.designs.quantities)
    ]
    return designs + [
        _series(group, lambda run, at=at: run.ys[:, at], "default")
        for group, at in _by_unit(task.outcomes)
    ]


def _by_unit(quantities: tuple[Quantity, ...]) -> list[tuple[list[Quantity], np.ndarray]]:
    """Quantities of one unit, and their places."""
    places = [
        [i for i, q in enumerate(quantities) if q.unit == unit]
        for unit in dict.fromkeys(q.unit for q in quantities)
    ]
    return [([quantities[i] for i in at], np.asarray(at)) for at in places]


def _series(
    quantities: list[Quantity], values: Callable[[Trajectory], Float[Array, "T n"]], style: str
) -> Panel:
    """Lines over the steps, a design being held from the step before."""

    def draw(ax: Axes, run: Trajectory) -> None:
        steps = np.arange(1, len(run.ys) + 1)
        ax.axhline(0, color=FAINT, linewidth=0.8, zorder=0)
        for line, q, colour in zip(
            np.asarray(values(run)).T, quantities, itertools.cycle(LINES), strict=False
        ):
            label = q.name if len(quantities) > 1 else None
            ax.plot(steps, line, color=colour, label=label, drawstyle=style, linewidth=1.4)
        ax.xaxis.set_major_locator(MaxNLocator(6, integer=True, steps=(1, 2, 5, 10)))
        title = [quantities[0].name] * (len(quantities) == 1) + [f"[{quantities[0].unit}]"] * bool(
            quantities[0].unit
        )
        ax.set(xlabel="step", ylabel="\n".join(title))

    return Panel(1.35, draw)


# ---- shared


def _mean_and_scale(
    task: Gaussian, run: Trajectory, points: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of the one outcome at many designs."""

    def at(xi: Float[Array, " dx"]) -> tuple[Array, Array]:
        return task.mean(run.theta, None, xi)[0], jnp.asarray(
            task.scale(run.theta, None, xi)[0], xi.dtype
        )

    mean, scale = jax.vmap(at)(jnp.asarray(points, run.xis.dtype))
    return np.asarray(mean), np.asarray(scale)


def _spread(task: Task, runs: Sequence[Trajectory], i: int) -> Range:
    """A range of design coordinate i that holds all designs and all that is sought there."""
    if isinstance(task.designs, Box):
        return task.designs.low[i], task.designs.high[i]
    d = task.designs.dim
    values = [np.asarray(run.xis[:, i]) for run in runs]
    if isinstance(task, LocationFinding):
        values += [np.asarray(run.theta[i::d]) for run in runs]
    if isinstance(task, Gravimetry):
        values += [np.asarray(run.theta[i : i + 1]) for run in runs]
    low, high = float(min(v.min() for v in values)), float(max(v.max() for v in values))
    margin = 0.12 * (high - low) or task.designs.constrain(jnp.ones(d))[i].item()
    return low - margin, high + margin


def _dots(ax: Axes, x: Float[Array, " T"], y: Float[Array, " T"], horizon: int) -> None:
    steps = np.arange(1, len(x) + 1)
    ax.scatter(
        np.asarray(x),
        np.asarray(y),
        s=20,
        c=steps,
        cmap=STEPS,
        norm=Normalize(1, horizon),
        edgecolor="white",
        linewidth=0.4,
        zorder=3,
        clip_on=False,
    )


def _step_bar(figure: FigureBase, axes: np.ndarray, steps: int) -> None:
    bar = figure.colorbar(
        ScalarMappable(Normalize(1, steps), STEPS), ax=axes, aspect=35, pad=0.01, shrink=0.85
    )
    bar.set_label("step", fontsize=8)
    bar.locator = MaxNLocator(6, integer=True, steps=(1, 2, 5, 10))
    bar.minorticks_off()
    bar.ax.tick_params(labelsize=7)
    bar.outline.set_visible(False)


def _caption(task: Task, run: Trajectory) -> str:
    """The true parameters, where they are few and not marked in the drawing."""
    if isinstance(task, LocationFinding) or task.prior.dim > CAPTION_LIMIT:
        return ""
    parts = [
        f"{q.name} {v:.4g} {q.unit}".strip()
        for q, v in zip(task.prior.quantities, run.theta, strict=True)
    ]
    return "\n".join(", ".join(parts[i : i + 2]) for i in range(0, len(parts), 2)).replace("-", "−")


def _legend(row: np.ndarray, *, outside: bool) -> None:
    """Names, once per row and only where there are any: beside lines, which leave no room among
    them.
    """
    if row[0].get_legend_handles_labels()[1]:
        ax, place = (
            (row[-1], {"loc": "center left", "bbox_to_anchor": (1.0, 0.5)})
            if outside
            else (row[0], {"loc": "best"})
        )
        ax.legend(fontsize=7, framealpha=0.8, edgecolor="none", borderpad=0.3, **place)


def _tidy(ax: Axes) -> None:
    ax.spines[["top", "right"]].set_visible(False)
    ax.spines[["left", "bottom"]].set_color(SOFT)
    ax.tick_params(labelsize=7, color=SOFT)
    ax.xaxis.label.set_fontsize(8)
    ax.yaxis.label.set_fontsize(8)
    ax.label_outer()
