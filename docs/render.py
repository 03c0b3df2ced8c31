"""Draw the pictures of README.md and docs/: python docs/render.py [FOLDER] (or `make docs`).

Random designs of each task's sampler, with fixed seeds: equal code draws equal pictures.
"""

import pathlib
import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
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
    """One experiment of each kind, side by side, for how-it-works.md."""
    figure = Figure(figsize=(10.4, 4.3), layout="constrained")
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


def marginal_score() -> Figure:
    """p(y | ξ) of one measurement of one source, and its score, from draws of the prior."""
    task = sb.make_task("location-finding", sources=1, dim=1, horizon=1)
    thetas = jax.vmap(lambda key: task.prior.sample(key=key))(jr.split(jr.key(0), 4000))

    def log_marginal(point):
        xi, y = point[:1], point[1:]
        each = jax.vmap(lambda theta: task.log_prob(y, theta, None, xi))(thetas)
        return jax.nn.logsumexp(each) - jnp.log(len(thetas))

    def on_grid(f, n, m):
        xi, y = jnp.meshgrid(jnp.linspace(-3, 3, n), jnp.linspace(-3, 6, m))
        return (
            xi,
            y,
            jax.jit(lambda points: jax.lax.map(f, points))(
                jnp.stack([xi.ravel(), y.ravel()], axis=1)
            ),
        )

    figure = Figure(figsize=(7.5, 3.8), layout="constrained")
    axes = figure.subplots()
    xi, y, height = on_grid(log_marginal, 90, 90)
    axes.contourf(xi, y, np.exp(height.reshape(xi.shape)), levels=14, cmap="Blues")
    xi, y, slope = on_grid(jax.grad(log_marginal), 19, 13)
    shown = slope / (1 + jnp.linalg.norm(slope, axis=1, keepdims=True))  # long ones are shortened
    axes.quiver(xi.ravel(), y.ravel(), *shown.T, color="tab:red", width=0.003, scale=28)
    axes.set(
        xlabel="design ξ: place of the sensor", ylabel="outcome y: log intensity", ylim=(-3, 4.3)
    )
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
    for name, figure in (pictures | {"overview": overview(), "score": marginal_score()}).items():
        # Without matplotlib's version in its metadata, a file changes only when its picture does.
        figure.savefig(folder / f"{name}.png", dpi=DPI, metadata={"Software": None})
        print(folder / f"{name}.png")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else IMAGES)
