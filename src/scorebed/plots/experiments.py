"""Experiments drawn as their task's sketch says: one column per experiment, on common axes.

    Profile       the mean of the outcome along the design, with the measurements on top, and a
                  section through the ground if hidden objects are below
    Positions     a map of the mean, with the path of the designs across it and hidden objects;
                  without a map where the mean cannot be drawn, as projections beyond the plane
    TimeSeries    designs and outcomes against the step, one row per unit

The mean is a function of the design alone, and can be drawn, if steps are independent and Gaussian
with one outcome. A profile without it is drawn as time series."""

import itertools
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure, FigureBase
from matplotlib.patches import Circle
from matplotlib.ticker import MaxNLocator

from scorebed.errors import require
from scorebed.plots.style import (
    FAINT,
    GROUND,
    INK,
    LINES,
    SHADES,
    SOFT,
    STEPS,
    TRUTH,
    plain_axes,
)
from scorebed.rollout import Trajectory
from scorebed.tasks.base import Gaussian, Task
from scorebed.tasks.sketch import HiddenObjects, Positions, Profile, check_sketch
from scorebed.tasks.spaces import Quantity

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
    """Draw experiments side by side, as the task's sketch says. Needs the extra `plots`.

    Arguments:
        task: the task.
        runs: single experiments, one column each.

    Returns:
        A new matplotlib figure.

    Raises:
        InvalidValueError: if there is no experiment, one is a batch, or shapes do not fit the task.

    Example:
        >>> task = sb.make_task("linear-gaussian")
        >>> policy = sb.make_policy("static", task, key=jr.key(0))
        >>> figure = sb.draw_experiments(task, [sb.simulate(task, policy, key=jr.key(1))])
    """
    panels = _panels(task, runs)
    width = COLUMN_WIDTH * len(runs) + (0.6 if panels.coloured else 0)
    figure = Figure(
        figsize=(width, sum(row.height for row in panels.rows) + 0.7), layout="compressed"
    )
    _fill(figure, task, runs, panels)
    return figure


def draw_into(figure: FigureBase, task: Task, runs: Sequence[Trajectory]) -> None:
    """The same, into an existing figure or subfigure."""
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
    """The likely mistake is one `Trajectory` with a batch axis. Experiments may be shorter than the
    horizon.
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
        fix="pass [run] for one experiment, and split a batch.",
    )


def _panels(task: Task, runs: Sequence[Trajectory]) -> Panels:
    _require_experiments(task, runs)
    check_sketch(task)
    sketch, hidden = task.sketch(), task.sketch().hidden
    if isinstance(task, Gaussian) and task.structure == "iid" and task.outcome_dim == 1:
        if isinstance(sketch, Profile):
            spread = _spread(task, runs, 0)
            rows = [Panel(2.7, lambda ax, run: _profile(task, run, spread, ax))]
            if hidden is not None and sketch.depth is not None:
                rows.append(_ground(task, hidden, sketch.depth, runs, spread))
            return Panels(rows, coloured=True)
        if isinstance(sketch, Positions) and task.designs.dim == 2:
            return Panels([_map(task, runs)], coloured=True)
    if isinstance(sketch, Positions) and (hidden is not None or task.designs.dim > 2):
        others = range(1, min(task.designs.dim, 3))
        return Panels([_projection(task, runs, (0, i)) for i in others], coloured=True)
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


def _ground(
    task: Task, hidden: HiddenObjects, depth: int, runs: Sequence[Trajectory], spread: Range
) -> Panel:
    """A section through the ground with the hidden objects in it, to scale."""
    width = spread[1] - spread[0]
    radius = hidden.radius or (lambda _: 0.0)
    below = [float(run.theta[depth]) + radius(run.theta) for run in runs]
    deepest = max(0.18 * width, *(1.15 * reached for reached in below))

    def draw(ax: Axes, run: Trajectory) -> None:
        ax.axhspan(0, deepest, color=GROUND, linewidth=0)
        for (i,) in hidden.coordinates:
            at = float(run.theta[i]), float(run.theta[depth])
            ax.add_patch(
                Circle(at, radius(run.theta), facecolor="white", edgecolor=TRUTH, linewidth=1.4)
            )
            ax.plot(*at, marker=".", color=TRUTH, markersize=3)
        ax.set(xlim=spread, ylim=(deepest, 0), aspect="equal", anchor="N")
        ax.set(xlabel=str(task.designs.quantities[0]), ylabel=str(task.prior.quantities[depth]))

    return Panel(0.85 * COLUMN_WIDTH * deepest / width, draw)


# ---- two design coordinates


def _map(task: Gaussian, runs: Sequence[Trajectory]) -> Panel:
    """The mean over the plane of designs, the path across it, and the hidden objects."""
    spreads = _square(_spread(task, runs, 0), _spread(task, runs, 1))
    grids = [np.linspace(*spread, 160) for spread in spreads]
    points = np.stack(np.meshgrid(*grids), -1).reshape(-1, 2)
    means = np.concatenate([_mean_and_scale(task, run, points)[0] for run in runs])
    low, middle, high = np.quantile(means, (0.002, 0.5, 0.998))
    # Dark is the end that is farther from the median: peaks if there are peaks, else troughs.
    shades = SHADES if high - middle >= middle - low else SHADES.reversed()

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
        _path(task, run, (0, 1), ax)
        _hidden(task, run, (0, 1), ax)
        ax.set(xlim=spreads[0], ylim=spreads[1], aspect="equal")
        ax.set(xlabel=str(task.designs.quantities[0]), ylabel=str(task.designs.quantities[1]))
        ax.text(
            0.02, 0.02, f"shade: {task.outcomes[0]}", transform=ax.transAxes, fontsize=7, color=INK
        )

    return Panel(0.85 * COLUMN_WIDTH, draw)


def _projection(task: Task, runs: Sequence[Trajectory], axes: tuple[int, int]) -> Panel:
    """Two of the design coordinates, without the mean."""
    spreads = [_square(*(_spread(task, runs, i) for i in range(task.designs.dim)))[i] for i in axes]

    def draw(ax: Axes, run: Trajectory) -> None:
        _hidden(task, run, axes, ax)
        _path(task, run, axes, ax)
        ax.set(xlim=spreads[0], ylim=spreads[1], aspect="equal")
        ax.set(
            xlabel=str(task.designs.quantities[axes[0]]),
            ylabel=str(task.designs.quantities[axes[1]]),
        )

    return Panel(0.85 * COLUMN_WIDTH, draw)


def _hidden(task: Task, run: Trajectory, axes: tuple[int, int], ax: Axes) -> None:
    """Hidden objects at their true positions: circles if they have a radius, else crosses."""
    hidden = task.sketch().hidden
    if hidden is None:
        return
    at = np.asarray(run.theta)[np.asarray(hidden.coordinates)[:, axes]]
    if hidden.radius is None:
        ax.scatter(
            *at.T,
            marker="X",
            s=75,
            color=TRUTH,
            edgecolor="white",
            linewidth=0.9,
            label=hidden.name,
            zorder=4,
        )
        return
    for x, y in at.tolist():
        size = hidden.radius(run.theta)
        ax.add_patch(Circle((x, y), size, fill=False, edgecolor=TRUTH, linewidth=1.6))


def _path(task: Task, run: Trajectory, axes: tuple[int, int], ax: Axes) -> None:
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
    """Quantities that share a unit, and their indices."""
    places = [
        [i for i, q in enumerate(quantities) if q.unit == unit]
        for unit in dict.fromkeys(q.unit for q in quantities)
    ]
    return [([quantities[i] for i in at], np.asarray(at)) for at in places]


def _series(
    quantities: list[Quantity], values: Callable[[Trajectory], Float[Array, "T n"]], style: str
) -> Panel:
    """Lines over the steps."""

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
    """The range of design coordinate i: its limits, or all designs and hidden objects."""
    if task.designs.bounded:
        low, high = task.designs.limits
        return low[i], high[i]
    hidden = task.sketch().hidden
    places = [place[i] for place in hidden.coordinates] if hidden else []
    values = [np.asarray(run.xis[:, i]) for run in runs]
    values += [np.asarray(run.theta)[places] for run in runs if places]
    least, most = float(min(v.min() for v in values)), float(max(v.max() for v in values))
    margin = 0.12 * (most - least) or task.designs.typical_size[i]
    return least - margin, most + margin


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
    """The true parameters, if they are few and not all marked in the drawing."""
    hidden = task.sketch().hidden
    marked = {i for place in hidden.coordinates for i in place} if hidden else set()
    if len(marked) == task.prior.dim or task.prior.dim > CAPTION_LIMIT:
        return ""
    parts = [
        f"{q.name} {v:.4g} {q.unit}".strip()
        for q, v in zip(task.prior.quantities, run.theta, strict=True)
    ]
    return "\n".join(", ".join(parts[i : i + 2]) for i in range(0, len(parts), 2)).replace("-", "−")


def _legend(row: np.ndarray, *, outside: bool) -> None:
    """Names, once per row: outside of the axes for lines, which leave no space between them."""
    if row[0].get_legend_handles_labels()[1]:
        ax, place = (
            (row[-1], {"loc": "center left", "bbox_to_anchor": (1.0, 0.5)})
            if outside
            else (row[0], {"loc": "best"})
        )
        ax.legend(fontsize=7, framealpha=0.8, edgecolor="none", borderpad=0.3, **place)


def _tidy(ax: Axes) -> None:
    plain_axes(ax)
    ax.xaxis.label.set_fontsize(8)
    ax.yaxis.label.set_fontsize(8)
    ax.label_outer()
