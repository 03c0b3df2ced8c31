"""Draw the pictures of README.md and docs/: python docs/render.py [FOLDER] (or `make docs`).

Random designs of each task's sampler, with fixed seeds: equal code draws equal pictures.
"""

import pathlib
import sys

import equinox as eqx
import jax.random as jr
from matplotlib.figure import Figure

import scorebed as sb
from scorebed.plots.experiments import draw_into
from scorebed.tasks.base import Task

IMAGES = pathlib.Path(__file__).parent / "images"
DPI = 110


def experiments(task: Task, count: int, *, seed: int) -> list[sb.Trajectory]:
    """Experiments with random designs."""
    policy = sb.make_policy("random", task, key=jr.key(0))
    simulate = eqx.filter_jit(sb.simulate)
    return [simulate(task, policy, key=key) for key in jr.split(jr.key(seed), count)]


def overview() -> Figure:
    """One experiment of each kind, side by side, for the README."""
    figure = Figure(figsize=(12.6, 4.3), layout="constrained")
    columns = figure.subfigures(1, 3, wspace=0.03, width_ratios=(1.05, 1.0, 0.95))
    titles = {
        "location-finding": "Where are the sources?",
        "gravimetry": "Where is the void?",
        "pendulum": "How heavy, how long?",
    }
    for column, (name, title) in zip(columns, titles.items(), strict=True):
        task = sb.make_task(name)
        column.suptitle(title, fontsize=11)
        draw_into(column, task, experiments(task, 1, seed=7))
    return figure


def main(folder: pathlib.Path) -> None:
    tasks = {name: sb.make_task(name) for name in sb.TASKS} | {
        "gravimetry-plane": sb.make_task("gravimetry", dim=2)
    }
    pictures = {
        f"task-{name}": sb.draw_experiments(task, experiments(task, 2, seed=4))
        for name, task in tasks.items()
    }
    folder.mkdir(parents=True, exist_ok=True)
    for name, figure in (pictures | {"overview": overview()}).items():
        # Without matplotlib's version in its metadata, a file changes only when its picture does.
        figure.savefig(folder / f"{name}.png", dpi=DPI, metadata={"Software": None})
        print(folder / f"{name}.png")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else IMAGES)
