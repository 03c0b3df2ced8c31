"""The pictures of a live experiment: information against the step, marginals, and the steps as the
task's sketch says.

    two design coordinates    a map: past measurements, the next design, and where hidden objects
                              may be
    Profile                   the outcome along the design: what to expect, and what was measured
    anything else             every design and outcome coordinate against the step
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from markupsafe import Markup

from scorebed.session.events import ExperimentState as State
from scorebed.session.events import StepRecord, Vector
from scorebed.session.posterior import QUANTILES, Posterior
from scorebed.session.posterior import MarginalSummary as Marginal
from scorebed.session.what_if import Expectation
from scorebed.tasks.base import Task
from scorebed.tasks.sketch import Profile
from scorebed.tasks.spaces import Quantity
from scorebed.web.pairs import shared_range
from scorebed.web.rendering import number
from scorebed.web.svg import Plot, Range, spread

BINS = 40
SHOWN = 400  # particles of a map
GRID = 33
LOW, HIGH = QUANTILES.index(0.05), QUANTILES.index(0.95)


class Picture(NamedTuple):
    """An image and its caption."""

    svg: Markup
    caption: str


class Curve(NamedTuple):
    """The expected outcome along one design coordinate: 90% of the outcomes lie between `low` and
    `high`.
    """

    x: Vector = ()
    low: Vector = ()
    high: Vector = ()

    @staticmethod
    def grid(task: Task, state: State) -> Vector:
        """The designs of such a curve; none if the task is not drawn as a profile."""
        if not _is_profile(task):
            return ()
        low, high = _limits(task, state, 0)
        return tuple(np.linspace(low, high, GRID).tolist())


def draw_information(
    gained: Sequence[float], steps: Sequence[int], horizon: int, expected: Expectation | None
) -> Markup:
    """Nats gained after each measurement, and the band that is expected by the end."""
    tops = [*gained, *((expected.upper,) if expected else ())]
    top, bottom = max([1e-3, *tops]), min([0.0, *gained])
    plot = Plot(
        (0.0, float(horizon)),
        (bottom, top + 0.12 * (top - bottom)),
        x_label="step",
        y_label="information [nats]",
        whole_x=True,
    )
    words = f"Information gained: {number(gained[-1], 3)} nats after step {steps[-1]} of {horizon}."
    if expected is not None:
        low, high = sorted((expected.lower, expected.upper))
        least = 0.012 * (plot.y[1] - plot.y[0])  # visible, however tight the bounds
        middle, half = (low + high) / 2, max((high - low) / 2, least / 2)
        floor, ceiling, end = middle - half, middle + half, float(horizon)
        plot.area([(0.0, floor), (end, floor), (end, ceiling), (0.0, ceiling)], "expected")
        plot.text(end, ceiling, "expected by the end", "label soft end", dx=-6.0, dy=-5.0)
        words += f" Expected by the end: {number(low, 3)} to {number(high, 3)} nats."
    points = list(zip(map(float, steps), gained, strict=True))
    plot.line(points, "curve")
    for step, value in points:
        plot.dot(step, value, "dot", title=f"step {step:.0f}: {number(value, 3)} nats")
    return plot.render(words)


def draw_marginal(quantity: Quantity, prior: np.ndarray, posterior: np.ndarray) -> Markup:
    """Histograms on one scale: the prior as an outline, the posterior filled."""
    edges = np.linspace(*shared_range(prior, posterior), BINS + 1)
    heights = [
        np.histogram(values, edges)[0] / max(len(values), 1) for values in (prior, posterior)
    ]
    top = max(float(h.max()) for h in heights)
    plot = Plot(
        (float(edges[0]), float(edges[-1])),
        (0.0, top * 1.05 or 1.0),
        width=180,
        height=110,
        y_ticks=False,
    )
    plot.area(_steps(edges, heights[1]), "posterior")
    plot.line(_steps(edges, heights[0]), "prior")
    five, ninety_five = np.quantile(posterior, (0.05, 0.95))
    return plot.render(
        f"{quantity}: 90% of the posterior between {number(float(five), 4)} and "
        f"{number(float(ninety_five), 4)}; "
        "the outline is the prior."
    )


def draw_space(
    task: Task,
    state: State,
    posterior: Posterior | None,
    predicted: Sequence[Marginal],
    curve: Curve,
) -> Picture:
    """The steps so far and the next design, with or without a posterior."""
    if task.designs.dim == 2:
        return _map(task, state, posterior)
    if _is_profile(task):
        return _along(task, state, predicted, curve)
    return _series(task, state, predicted)


def _is_profile(task: Task) -> bool:
    return isinstance(task.sketch(), Profile) and task.structure == "iid"


# ---- one design coordinate


def _along(task: Task, state: State, predicted: Sequence[Marginal], curve: Curve) -> Picture:
    design, outcome = task.designs.quantities[0], task.outcomes[0]
    points = [
        (r, r.used[0], r.y[0]) for r in state.measured if r.used is not None and r.y is not None
    ]
    plot = Plot(
        _limits(task, state, 0),
        spread([*curve.low, *curve.high, *(y for _, _, y in points)]),
        height=300,
        x_label=str(design),
        y_label=str(outcome),
    )
    if curve.x:
        there = list(zip(curve.x, curve.high, strict=True))
        plot.area([*there, *reversed(list(zip(curve.x, curve.low, strict=True)))], "expected")
    pending = () if state.finished else state.pending
    for i, proposal in enumerate(pending):
        x = proposal.design[0]
        plot.line([(x, plot.y[0]), (x, plot.y[1])], "next-line")
        plot.text(x, plot.y[1], "next", "label next-word middle", dy=-6.0)
        for m in predicted if i == 0 else ():
            plot.line([(x, m.quantiles[LOW]), (x, m.quantiles[HIGH])], "next-band")
    for record, x, y in points:
        plot.dot(x, y, "dot", r=5.0, title=_reading(task, record))
        plot.text(x, y, str(record.step), "step-word", dx=8.0, dy=-6.0)
    words = f"{outcome} against {design}: {len(points)} measurements" + (
        ", and the next design." if pending else "."
    )
    return Picture(
        plot.render(words),
        f"Measurements by step. Shaded: 90% of the outcomes expected so far, along {design}.",
    )


def _limits(task: Task, state: State, i: int) -> Range:
    """The range of a design coordinate: its limits, or its typical size and all designs so far."""
    if task.designs.bounded:
        low, high = task.designs.limits
        return float(low[i]), float(high[i])
    used = [r.used[i] for r in state.measured if r.used is not None]
    used += [proposal.design[i] for proposal in state.pending]
    size = 2.0 * task.designs.typical_size[i]
    return spread([-size, size, *used], 0.04)


# ---- a map


def _map(task: Task, state: State, posterior: Posterior | None) -> Picture:
    clouds = _clouds(task, posterior)
    across, up = (_around(task, state, clouds, i) for i in (0, 1))
    first, second = task.designs.quantities
    plot = Plot(
        *_same_scale(across, up, task),
        width=440,
        height=440,
        x_label=str(first),
        y_label=str(second),
    )
    for k, cloud in enumerate(clouds):
        for x, y in cloud[:: max(1, len(cloud) // SHOWN)]:
            if plot.x[0] <= x <= plot.x[1] and plot.y[0] <= y <= plot.y[1]:
                plot.dot(float(x), float(y), f"particle cloud-{k % 4}", r=1.8)
    points = [(r, r.used) for r in state.measured if r.used is not None]
    plot.line([(xi[0], xi[1]) for _, xi in points], "way")
    for record, xi in points:
        plot.dot(xi[0], xi[1], "dot", r=9.0, title=_reading(task, record))
        plot.text(xi[0], xi[1], str(record.step), "step-inside middle", dy=4.0)
    pending = () if state.finished else state.pending
    for proposal in pending:
        title = f"next: {number(proposal.design[0])}, {number(proposal.design[1])}"
        plot.cross(proposal.design[0], proposal.design[1], "next-mark", title=title)
    words = f"Map of {first} and {second}: {len(points)} measurements" + (
        ", and the next design." if pending else "."
    )
    caption = "Circles: measurements by step. Cross: the next design."
    if clouds:
        caption += f" Small dots: where the {task.sketch().hidden} may be."
    return Picture(plot.render(words), caption)


def _around(task: Task, state: State, clouds: list[np.ndarray], i: int) -> Range:
    """The range of an axis of the map: designs, and nearly all particles."""
    inner = [float(q) for cloud in clouds for q in np.quantile(cloud[:, i], (0.01, 0.99))]
    return spread([*_limits(task, state, i), *inner], 0.02)


def _clouds(task: Task, posterior: Posterior | None) -> list[np.ndarray]:
    """Particles of the positions of hidden objects, one cloud per object."""
    hidden = task.sketch().hidden
    if posterior is None or hidden is None:
        return []
    return [posterior.theta[:, list(place)] for place in hidden.coordinates]


def _same_scale(x: Range, y: Range, task: Task) -> tuple[Range, Range]:
    """The same scale on both axes, if they share a unit."""
    first, second = task.designs.quantities
    if first.unit != second.unit:
        return x, y
    half = max(x[1] - x[0], y[1] - y[0]) / 2
    return tuple(((a + b) / 2 - half, (a + b) / 2 + half) for a, b in (x, y))  # type: ignore[return-value]


# ---- against the step


def _series(task: Task, state: State, predicted: Sequence[Marginal]) -> Picture:
    """One row per coordinate."""
    proposal = None if state.finished else state.proposal
    rows = []
    for i, quantity in enumerate(task.designs.quantities):
        taken = [(float(r.step), r.used[i]) for r in state.measured if r.used is not None]
        rows.append(
            _row(state, quantity, taken, None if proposal is None else (proposal.design[i],) * 2)
        )
    for i, quantity in enumerate(task.outcomes):
        taken = [(float(r.step), r.y[i]) for r in state.measured if r.y is not None]
        band = (predicted[i].quantiles[LOW], predicted[i].quantiles[HIGH]) if predicted else None
        rows.append(_row(state, quantity, taken, band))
    caption = (
        "Designs and outcomes by step. Coloured: the next design, and where 90% of its "
        "outcomes are expected."
    )
    return Picture(Markup("").join(rows), caption)


def _row(
    state: State, quantity: Quantity, taken: list[tuple[float, float]], coming: Range | None
) -> Markup:
    values = [y for _, y in taken] + list(coming or ())
    plot = Plot(
        (0.5, state.horizon + 0.5),
        spread(values, 0.15),
        height=150,
        x_label="",
        y_label=str(quantity),
        whole_x=True,
    )
    plot.line(taken, "curve")
    for x, y in taken:
        plot.dot(x, y, "dot", r=3.5, title=f"step {x:.0f}: {number(y)} {quantity.unit}".rstrip())
    if coming is not None:
        step = float(state.step)
        plot.line([(step, coming[0]), (step, coming[1])], "next-band")
        plot.dot(step, sum(coming) / 2, "next-dot", r=4.0, title="next")
    return plot.render(f"{quantity} by step, {len(taken)} so far.")


def _steps(edges: np.ndarray, heights: np.ndarray) -> list[tuple[float, float]]:
    """The outline of a histogram, closed at the axis."""
    points = [(float(edges[0]), 0.0)]
    for left, right, height in zip(edges[:-1], edges[1:], heights, strict=True):
        points += [(float(left), float(height)), (float(right), float(height))]
    return [*points, (float(edges[-1]), 0.0)]


def _reading(task: Task, record: StepRecord) -> str:
    """What was measured in a step."""
    values = zip(task.outcomes, record.y or (), strict=False)
    return f"step {record.step}: " + ", ".join(
        f"{q.name} {number(v)} {q.unit}".rstrip() for q, v in values
    )
