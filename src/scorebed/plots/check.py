"""The picture of a sound task: what the prior predicts, where one step is most informative, and a
few experiments with random designs.
"""

from typing import Literal

import jax
import jax.random as jr
import numpy as np
from jaxtyping import PRNGKeyArray
from matplotlib.axis import Axis
from matplotlib.figure import Figure, FigureBase

from scorebed._jit import jit_once
from scorebed.check.one_step import axes, line, one_step_eig, plane
from scorebed.keys import named
from scorebed.plots.experiments import draw_into
from scorebed.plots.style import FAINT, INK, LINES, SHADES, SOFT, plain_axes
from scorebed.policies.random import RandomDesigns
from scorebed.rollout import Trajectory, simulate
from scorebed.samplers.paper import reference_sampler
from scorebed.tasks.base import Task
from scorebed.tasks.spaces import Quantity

PREDICTED, SHOWN = 64, 3  # simulated experiments, and how many of them are drawn one by one
LINE, PLANE = 61, 17  # designs along an axis at which the information gain of a step is estimated
MOST = 3  # panels side by side
TICKS = 10  # named values along an axis, at most


def draw_check(task: Task, name: str, *, key: PRNGKeyArray) -> Figure:
    """A new figure."""
    sampler, words = reference_sampler(task)
    keys = jr.split(named(key, "runs"), PREDICTED)
    runs = jit_once(jax.vmap(lambda k: simulate(task, RandomDesigns(sampler), key=k)))(keys)
    figure = Figure(figsize=(12, 9), layout="constrained")
    top, bottom = figure.subfigures(2, 1, height_ratios=(1, 1.4))
    left, right = top.subfigures(1, 2)
    titles = (
        (left, "prior predictive"),
        (right, "expected information gain of one step [nats]"),
        (bottom, f"{SHOWN} experiments with {words}"),
    )
    for part, title in titles:
        part.suptitle(title, fontsize=10, color=INK)
    _predictive(left, task, runs)
    _information(right, task, key=named(key, "eig"))
    draw_into(bottom, task, [jax.tree.map(lambda leaf, i=i: leaf[i], runs) for i in range(SHOWN)])
    figure.suptitle(name, fontsize=11, color=INK)
    return figure


def _predictive(figure: FigureBase, task: Task, runs: Trajectory) -> None:
    """Outcomes against the design if steps are independent and the design is one number, else
    against the step.
    """
    ys, xis = np.asarray(runs.ys), np.asarray(runs.xis)
    shown = min(task.outcome_dim, MOST)
    panels = figure.subplots(shown, 1, squeeze=False, sharex=True)[:, 0]
    by_design = task.structure == "iid" and task.designs.dim == 1
    for i, ax in enumerate(panels):
        if by_design:
            ax.scatter(xis[..., 0], ys[..., i], s=6, color=LINES[0], alpha=0.35, linewidth=0)
        else:
            steps = np.arange(1, ys.shape[1] + 1)
            low, middle, high = np.quantile(ys[..., i], (0.05, 0.5, 0.95), axis=0)
            ax.plot(steps, ys[:16, :, i].T, color=FAINT, linewidth=0.8)
            ax.fill_between(steps, low, high, color=LINES[0], alpha=0.2, linewidth=0)
            ax.plot(steps, middle, color=LINES[0])
        ax.set_ylabel(str(task.outcomes[i]), fontsize=8)
        plain_axes(ax)
    panels[-1].set_xlabel(
        str(task.designs.quantities[0]) if by_design else "step (band: 90%)", fontsize=8
    )


def _information(figure: FigureBase, task: Task, *, key: PRNGKeyArray) -> None:
    """A map for two design coordinates, else one curve per coordinate; a remark if there is no
    density.
    """
    space = task.designs
    if not task.has_density:
        figure.text(
            0.5, 0.5, "not known: the model has no density", ha="center", fontsize=9, color=SOFT
        )
        return
    if space.dim == 2:
        x, y = axes(space, PLANE)
        eig = one_step_eig(task, plane(x, y), outer=128, key=key).reshape(len(x), len(y))
        ax = figure.subplots()
        places = [_places(q, values) for q, values in zip(space.quantities, (x, y), strict=True)]
        shading: Literal["nearest", "gouraud"] = "nearest" if space.listed else "gouraud"
        shades = ax.pcolormesh(*places, eig.T, cmap=SHADES, shading=shading)
        figure.colorbar(shades, ax=ax, shrink=0.8)
        _label(ax.xaxis, space.quantities[0])
        _label(ax.yaxis, space.quantities[1])
        plain_axes(ax)
        return
    panels = figure.subplots(1, min(space.dim, MOST), squeeze=False, sharey=True)[0]
    for i, ax in enumerate(panels):
        values, quantity = axes(space, LINE)[i], space.quantities[i]
        eig = one_step_eig(task, line(space, i, values), key=key)
        ax.plot(_places(quantity, values), eig, "o" if quantity.values else "-", color=LINES[1])
        _label(ax.xaxis, quantity)
        ax.set_ylim(bottom=0)
        plain_axes(ax)


def _places(quantity: Quantity, values: np.ndarray) -> np.ndarray:
    """Where values stand along an axis: those of a list at equal distances."""
    return np.arange(len(values)) if quantity.values else values


def _label(axis: Axis, quantity: Quantity) -> None:
    axis.set_label_text(str(quantity), fontsize=8)
    if quantity.values:
        shown = range(0, len(quantity.values), -(-len(quantity.values) // TICKS))
        axis.set_ticks(list(shown), [quantity.show(quantity.values[i]) for i in shown])
