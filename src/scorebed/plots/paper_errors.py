"""Errors of the EIG gradient as the paper draws them: MSE against N, EIG against squared bias, and
the conditioning of ∂y/∂ξ.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from scorebed.plots.paper_curves import PANEL, label_axes, nothing_yet
from scorebed.plots.style import LINES, SOFT, STEPS, TRUTH
from scorebed.plots.svg import literal

MAIN, OTHER, LIMIT = "x", "o", "$\\leftarrow$"
RIVALS = (LINES[1], TRUTH)  # colours that no step of training has
TRUSTED = 2.0  # standard errors above zero at which a squared bias counts as found


class ErrorCurve(NamedTuple):
    """‖B‖² with its standard error, and V, of one estimator of a gradient."""

    label: str
    squared_bias: float
    squared_bias_se: float
    variance: float
    depth: float | None = None
    """For one of a sequence of training: how far it had come, in [0, 1]; None for others."""

    @property
    def has_bias(self) -> bool:
        """Whether the bias was told from zero."""
        return self.squared_bias > TRUSTED * self.squared_bias_se

    def mse(self, n: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
        """‖B‖² + V/N of a mean over N independent trajectories."""
        return max(self.squared_bias, 0.0) + self.variance / n


class ErrorPanel(NamedTuple):
    """The estimators of one task, and ‖∇I‖², the size of what they estimate."""

    title: str
    curves: Sequence[ErrorCurve]
    squared_norm: float = math.nan


class BiasPoint(NamedTuple):
    """‖B‖² of an estimator with its standard error, and the EIG of the policy that it trained."""

    squared_bias: float
    squared_bias_se: float
    eig: float
    main: bool = False
    """Whether it has the budget of the paper's tables."""


class BiasPanel(NamedTuple):
    """Points of one task, by family."""

    title: str
    families: Sequence[tuple[str, Sequence[BiasPoint]]]


class ConditionCloud(NamedTuple):
    """Trajectories of one kind of designs: condition numbers of ∂y/∂ξ, and squared errors of the
    score where they are known.
    """

    label: str
    condition: Float[np.ndarray, " n"]
    error: Float[np.ndarray, " m"]
    """Of the first m of them."""


class ConditionPanel(NamedTuple):
    """Designs of the sampler and of the final policy, on one task."""

    title: str
    clouds: Sequence[ConditionCloud]


def draw_gradient_mse(panels: Sequence[ErrorPanel], *, largest: float = 1e6) -> Figure:
    """MSE = ‖B‖² + V/N against N; a dotted line marks ‖B‖² where it was told from zero."""
    columns = min(len(panels), 2)
    rows = -(-len(panels) // columns)
    figure = Figure(
        figsize=(PANEL[0] * columns + 1.2, (PANEL[1] + 0.2) * rows), layout="constrained"
    )
    axes = np.atleast_1d(figure.subplots(rows, columns)).ravel()
    for ax, panel in zip(axes, panels, strict=False):
        _draw_errors(ax, panel, largest)
    for ax in axes[len(panels) :]:
        ax.axis("off")
    return figure


def _draw_errors(ax: Axes, panel: ErrorPanel, largest: float) -> None:
    n = np.geomspace(1, largest, 61)
    rivals = [curve for curve in panel.curves if curve.depth is None]
    for curve in panel.curves:
        colour: Any
        if curve.depth is None:
            colour, style = RIVALS[rivals.index(curve) % len(RIVALS)], "--"
        else:
            colour, style = colormaps[STEPS](0.1 + 0.75 * curve.depth), "-"
        note = "" if curve.has_bias else " (bias not told from 0)"
        ax.plot(
            n,
            curve.mse(n),
            color=colour,
            linestyle=style,
            linewidth=1.3,
            label=literal(curve.label + note),
        )
        if curve.has_bias:
            ax.axhline(curve.squared_bias, color=colour, linestyle=":", linewidth=0.9)
    if math.isfinite(panel.squared_norm) and panel.squared_norm > 0:
        ax.axhline(
            panel.squared_norm, color=SOFT, linewidth=0.9, label="squared norm of the gradient"
        )
    ax.set(xscale="log", yscale="log")
    label_axes(ax, "number of trajectories N", "MSE of the EIG gradient", panel.title)
    if panel.curves:
        ax.legend(fontsize=6.5, frameon=False, borderpad=0.2)
    else:
        nothing_yet(ax)


def draw_eig_against_bias(panels: Sequence[BiasPanel]) -> Figure:
    """EIG against ‖B‖²; × marks the budgets of the tables, an arrow to the left a bias that was not
    told from zero, drawn at its upper limit ‖B‖² + 2 standard errors.
    """
    width, height = 3.4, 3.2
    figure = Figure(figsize=(width * len(panels), height), layout="constrained")
    axes = np.atleast_1d(figure.subplots(1, len(panels)))
    for ax, panel in zip(axes, panels, strict=True):
        for colour, (name, points) in zip((LINES[0], LINES[2]), panel.families, strict=False):
            ax.plot([], [], OTHER, color=colour, label=literal(name))
            for point in points:
                found = point.squared_bias > TRUSTED * point.squared_bias_se
                limit = max(point.squared_bias, 0) + TRUSTED * point.squared_bias_se
                mark = (MAIN if point.main else OTHER) if found else LIMIT
                ax.plot(
                    [point.squared_bias if found else limit],
                    [point.eig],
                    linestyle="none",
                    marker=mark,
                    markersize=7 if point.main or not found else 4,
                    markeredgewidth=2 if point.main else 0.8,
                    color=colour,
                    alpha=1.0 if point.main else 0.7,
                )
        label_axes(ax, "squared bias of the EIG gradient", "EIG lower bound [nats]", panel.title)
        if any(points for _, points in panel.families):
            ax.set_xscale("log")
            ax.legend(fontsize=7, frameon=False)
        else:
            nothing_yet(ax)
    return figure


def draw_conditioning(panels: Sequence[ConditionPanel]) -> Figure:
    """Per task a histogram of condition numbers and, below it, squared errors of the score against
    them.
    """
    figure = Figure(figsize=(PANEL[0] * len(panels), 2 * 2.8), layout="constrained")
    axes = figure.subplots(2, len(panels), squeeze=False)
    for column, panel in enumerate(panels):
        above, below = axes[0, column], axes[1, column]
        logs = [_finite_logs(cloud.condition) for cloud in panel.clouds]
        everything = np.concatenate([*logs, [0.0, 1.0]])
        bins = np.linspace(everything.min(), everything.max(), 41)
        for colour, cloud, values in zip(LINES, panel.clouds, logs, strict=False):
            above.hist(
                values, bins=bins, color=colour, alpha=0.6, density=True, label=literal(cloud.label)
            )
            both = _finite_pairs(cloud)
            below.plot(*both, ".", color=colour, markersize=3, alpha=0.6)
        label_axes(above, "log₁₀ condition number of ∂y/∂ξ", "density", panel.title)
        below.set(xscale="log", yscale="log")
        label_axes(below, "condition number of ∂y/∂ξ", "squared error of the score", "")
        if panel.clouds:
            above.legend(fontsize=7, frameon=False)
        else:
            nothing_yet(above)
            nothing_yet(below)
    return figure


def _finite_logs(values: Float[np.ndarray, " n"]) -> Float[np.ndarray, " m"]:
    values = np.asarray(values, float)
    return np.log10(values[np.isfinite(values) & (values > 0)])


def _finite_pairs(cloud: ConditionCloud) -> tuple[np.ndarray, np.ndarray]:
    error = np.asarray(cloud.error, float)
    condition = np.asarray(cloud.condition, float)[: len(error)]
    whole = np.isfinite(condition) & np.isfinite(error) & (error > 0)
    return condition[whole], error[whole]
