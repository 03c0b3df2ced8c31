"""`scorebed check FILE.py:NAME`: is this task of mine sound? What is wrong, how to mend it, and
pictures.
"""

import io
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from scorebed.cli._output import Json, print_json, print_text
from scorebed.cli._task import named_task

if TYPE_CHECKING:
    from jaxtyping import PRNGKeyArray
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from scorebed.rollout import Trajectory
    from scorebed.tasks.base import Task

PREDICTED, SHOWN = 64, 3  # simulated experiments, and those of them that are drawn one by one
LINE, PLANE = 61, 17  # designs along an axis at which the information gain of a step is estimated
MOST = 3  # panels beside each other


def check(
    task: Annotated[str, Parameter(help="FILE.py:NAME, or a built-in task.")],
    /,
    *,
    out: Annotated[Path | None, Parameter(help="The picture; NAME-check.png if left out.")] = None,
    seed: Annotated[str, Parameter(help="Seed of the draws.")] = "0",
    as_json: Json = False,
) -> None:
    """Look for whatever would make training on a task wrong, and say how to mend it.

    Wrong shapes, gradients that are NaN or zero, designs without effect, a sampler that is not its
    density's, and more. A sound task ends with a picture: what the prior predicts, experiments with
    random designs, and where one step tells most."""
    import time

    import jax.random as jr

    from scorebed.check import ERROR, check_task
    from scorebed.cli._numbers import whole
    from scorebed.errors import InvalidValueError
    from scorebed.keys import named
    from scorebed.runs.durable import replace_file

    key = named(jr.key(whole("--seed", seed, 0)), "check")
    begun = time.monotonic()
    model, _ = named_task(task)
    findings = check_task(model, key=named(key, "findings"))
    faults = [finding for finding in findings if finding.severity == ERROR]
    path = out or Path(re.sub(r"[^A-Za-z0-9_-]", "-", task.rpartition(":")[2]) + "-check.png")
    if not faults:
        picture = io.BytesIO()
        _draw(model, task, key=named(key, "pictures")).savefig(picture, format="png", dpi=110)
        replace_file(path, picture.getvalue())
    seconds = time.monotonic() - begun
    if as_json:
        print_json(
            {
                "task": task,
                "sound": not faults,
                "findings": [finding._asdict() for finding in findings],
                "picture": None if faults else str(path),
                "seconds": round(seconds, 2),
            }
        )
    else:
        for finding in findings:
            print_text(f"{finding.severity}: {finding}")
        if not faults:
            print_text(f"{task} is sound ({seconds:.1f} s); pictures: {path}")
    if faults:
        raise InvalidValueError(
            task,
            got=f"{len(faults)} fault{'s' if len(faults) > 1 else ''}",
            expected="a sound task",
            fix=faults[0].fix + ".",
        )


def _draw(task: "Task", name: str, *, key: "PRNGKeyArray") -> "Figure":
    import jax
    import jax.random as jr

    from scorebed._jit import jit_once
    from scorebed.errors import ScorebedError
    from scorebed.keys import named
    from scorebed.policies.random import RandomDesigns
    from scorebed.rollout import simulate
    from scorebed.samplers.paper import reference_sampler

    try:
        from matplotlib.figure import Figure

        from scorebed.plots.experiments import INK, draw_into
    except ModuleNotFoundError as missing:
        raise ScorebedError(
            f"the pictures of a check, got no package '{missing.name}', expected matplotlib. "
            "Fix: pip install 'scorebed[plots]'."
        ) from missing

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


def _predictive(figure: Any, task: "Task", runs: "Trajectory") -> None:
    """Outcomes against the design where it is one number and steps are independent, else against
    the step.
    """
    import numpy as np

    from scorebed.plots.experiments import FAINT, LINES, SOFT
    from scorebed.tasks.base import IID

    ys, xis = np.asarray(runs.ys), np.asarray(runs.xis)
    shown = min(task.outcome_dim, MOST)
    axes = figure.subplots(shown, 1, squeeze=False, sharex=True)[:, 0]
    by_design = isinstance(task, IID) and task.designs.dim == 1
    for i, ax in enumerate(axes):
        if by_design:
            ax.scatter(xis[..., 0], ys[..., i], s=6, color=LINES[0], alpha=0.35, linewidth=0)
        else:
            steps = np.arange(1, ys.shape[1] + 1)
            low, middle, high = np.quantile(ys[..., i], (0.05, 0.5, 0.95), axis=0)
            ax.plot(steps, ys[:16, :, i].T, color=FAINT, linewidth=0.8)
            ax.fill_between(steps, low, high, color=LINES[0], alpha=0.2, linewidth=0)
            ax.plot(steps, middle, color=LINES[0])
        ax.set_ylabel(str(task.outcomes[i]), fontsize=8)
        _plain(ax, SOFT)
    axes[-1].set_xlabel(
        str(task.designs.quantities[0]) if by_design else "step (band: 90%)", fontsize=8
    )


def _information(figure: Any, task: "Task", *, key: "PRNGKeyArray") -> None:
    """A map for two design coordinates, a line for each of any other number; nothing where there is
    no density.
    """
    from scorebed.check.one_step import axes, line, one_step_eig, plane
    from scorebed.plots.experiments import LINES, MIST, SOFT

    space = task.designs
    if not task.has_density:
        figure.text(
            0.5, 0.5, "not known: the model has no density", ha="center", fontsize=9, color=SOFT
        )
        return
    if space.dim == 2:
        x, y = axes(space, PLANE)
        eig = one_step_eig(task, plane(x, y), outer=128, key=key).reshape(PLANE, PLANE)
        ax = figure.subplots()
        shades = ax.pcolormesh(x, y, eig.T, cmap=MIST, shading="gouraud")
        figure.colorbar(shades, ax=ax, shrink=0.8)
        ax.set_xlabel(str(space.quantities[0]), fontsize=8)
        ax.set_ylabel(str(space.quantities[1]), fontsize=8)
        _plain(ax, SOFT)
        return
    panels = figure.subplots(1, min(space.dim, MOST), squeeze=False, sharey=True)[0]
    for i, ax in enumerate(panels):
        values = axes(space, LINE)[i]
        ax.plot(values, one_step_eig(task, line(space, i, values), key=key), color=LINES[1])
        ax.set_xlabel(str(space.quantities[i]), fontsize=8)
        ax.set_ylim(bottom=0)
        _plain(ax, SOFT)


def _plain(ax: "Axes", colour: str) -> None:
    ax.spines[["top", "right"]].set_visible(False)
    ax.spines[["left", "bottom"]].set_color(colour)
    ax.tick_params(labelsize=7, color=colour)
