"""What a step of training and a bound cost as their sizes grow: restarts P, batch N, contrastive
parameters M, horizon T, and the sources K and dimensions d of location finding.

Milliseconds of one step of the score, one step of P policies, and one pair of bounds on the
pendulum; K and d are varied on location finding. One size grows at a time from its base value.
Curves are ratios to their first point, which depend less on the machine than times do. The best of
several blocks counts.

    make bench, or: python benchmarks/costs.py            some minutes; writes docs/images/costs.png
    python benchmarks/costs.py --quick [--out FILE.png]   does it run?
"""

import argparse
import contextlib
import functools
import pathlib
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import scorebed  # before JAX, so that the memory allocator is set
import equinox as eqx
import jax
import jax.random as jr
from measuring import table
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullFormatter, NullLocator, ScalarFormatter
from scorebed.bounds.contrastive import GROUPS, eig_bounds
from scorebed.plots.experiments import FAINT, LINES, SOFT
from scorebed.policies import make_policy
from scorebed.presets.reader import shared_policy
from scorebed.samplers.paper import paper_sampler
from scorebed.scores import make_score, score_kind
from scorebed.scores.base import Score
from scorebed.scores.standardise import standardiser
from scorebed.tasks.base import Task
from scorebed.tasks.library.location import LocationFinding
from scorebed.tasks.library.pendulum import Pendulum
from scorebed.training.policy import train_policies
from scorebed.training.score import train_score

PICTURE = pathlib.Path(__file__).parents[1] / "docs" / "images" / "costs.png"
BLOCKS = 4  # that count, after one that compiles
SPLIT = 20  # blocks that a training is split into
KEY = jr.key(0)


class Sizes(NamedTuple):
    """Restarts, batch, contrastive parameters, horizon; sources and dimensions, or none for the
    pendulum.
    """

    P: int
    N: int
    M: int
    T: int
    K: int = 0
    d: int = 0

    @property
    def task(self) -> Task:
        return (
            LocationFinding(sources=self.K, dim=self.d, horizon=self.T)
            if self.K
            else Pendulum(horizon=self.T)
        )


class Grown(NamedTuple):
    """Growing values of each."""

    P: tuple[int, ...]
    N: tuple[int, ...]
    M: tuple[int, ...]
    T: tuple[int, ...]
    K: tuple[int, ...]
    d: tuple[int, ...]


class Plan(NamedTuple):
    """How far each size grows from its first value; steps of a block, trajectories of a bound,
    width of the score.
    """

    grown: Grown
    block: int
    outer: int
    width: int

    @property
    def base(self) -> Sizes:
        return Sizes(*(values[0] for values in self.grown[:4]))

    def sizes(self, name: str, value: int) -> Sizes:
        """With one of them grown."""
        sources = {"K": self.grown.K[0], "d": self.grown.d[0]} if name in ("K", "d") else {}
        return self.base._replace(**(sources | {name: value}))


FULL = Plan(
    Grown(
        P=(1, 2, 4, 8),
        N=(128, 256, 512),
        M=(50_000, 100_000, 200_000, 400_000),
        T=(25, 50, 100),
        K=(2, 4, 8, 16),
        d=(2, 4, 8),
    ),
    block=6,
    outer=256,
    width=128,
)
QUICK = Plan(Grown((1, 2), (8,), (100,), (2,), (1, 2), (1,)), block=1, outer=32, width=8)


class EnoughLapsError(Exception):
    """Ends a training that was begun for its first blocks."""


class Clock:
    """Seconds between the calls of a hook, which ends what calls it after `most` of them."""

    def __init__(self, most: int = 0) -> None:
        self.last, self.laps, self.most = time.perf_counter(), list[float](), most

    def lap(self, *_: Any) -> None:
        now = time.perf_counter()
        self.laps.append(now - self.last)
        self.last = now
        if len(self.laps) == self.most:
            raise EnoughLapsError

    @property
    def best(self) -> float:
        """The shortest, without the first, which compiles."""
        return min(self.laps[1:])


@functools.cache
def fresh_score(sizes: Sizes, width: int) -> Score:
    task = sizes.task
    wanted = {"particles": 8, "cloud": 8, "width": width, "blocks": 4, "heads": 8}
    standardise = standardiser(task, paper_sampler(task), key=KEY)
    return make_score(score_kind("particles", wanted), task, standardise, key=KEY)


@functools.cache
def score_step(plan: Plan, sizes: Sizes) -> float:
    """Seconds of one step of stage 1."""
    task, clock = sizes.task, Clock(1 + BLOCKS)
    with contextlib.suppress(EnoughLapsError):
        train_score(
            task,
            fresh_score(sizes, plan.width),
            paper_sampler(task),
            steps=plan.block * SPLIT,
            batch=sizes.N,
            on_block=clock.lap,
            key=KEY,
        )
    return clock.best / plan.block


@functools.cache
def policy_step(plan: Plan, sizes: Sizes) -> float:
    """Seconds of one step of stage 2, for all restarts together."""
    task, clock = sizes.task, Clock(1 + BLOCKS)
    policies = eqx.filter_vmap(lambda key: make_policy(shared_policy(task), task, key=key))(
        jr.split(KEY, sizes.P)
    )
    with contextlib.suppress(EnoughLapsError):
        train_policies(
            task,
            fresh_score(sizes, plan.width),
            policies,
            steps=plan.block * SPLIT,
            batch=sizes.N,
            on_block=clock.lap,
            key=KEY,
        )
    return clock.best / plan.block


@functools.cache
def bound(plan: Plan, sizes: Sizes) -> float:
    """Seconds of one pair of bounds: its groups are equal, and the best of them stands for all."""
    task, clock = sizes.task, Clock()
    eig_bounds(
        task,
        make_policy(shared_policy(task), task, key=KEY),
        outer=plan.outer,
        inner=sizes.M,
        on_group=clock.lap,
        key=KEY,
    )
    return clock.best * GROUPS


# What each size bears upon.
CURVES: dict[str, dict[str, Callable[[Plan, Sizes], float]]] = {
    "P": {"policy step": policy_step},
    "N": {"score step": score_step, "policy step": policy_step},
    "M": {"bound": bound},
    "T": {"score step": score_step, "policy step": policy_step, "bound": bound},
    "K": {"score step": score_step, "policy step": policy_step, "bound": bound},
    "d": {"score step": score_step, "policy step": policy_step, "bound": bound},
}
WORDS = {
    "P": "restarts P",
    "N": "batch N",
    "M": "contrastive parameters M",
    "T": "horizon T",
    "K": "sources K",
    "d": "dimensions d",
}
COLOURS = dict(zip(("score step", "policy step", "bound"), LINES, strict=False))


def measure(plan: Plan) -> dict[str, dict[str, list[float]]]:
    """Size → curve → seconds; prints a table of all points."""
    rows = []
    found: dict[str, dict[str, list[float]]] = {}
    for size, works in CURVES.items():
        values = getattr(plan.grown, size)
        for name, work in works.items():
            curve = found.setdefault(size, {}).setdefault(name, [])
            for value in values:
                curve.append(work(plan, plan.sizes(size, value)))
                ratio, proportional = curve[-1] / curve[0], value / values[0]
                rows.append(
                    [
                        size,
                        f"{value:,}",
                        name,
                        f"{1e3 * curve[-1]:.1f}",
                        f"{ratio:.2f}",
                        f"{proportional:.2f}",
                    ]
                )
    table(("grows", "to", "what", "ms", "ratio", "in proportion"), rows)
    return found


def draw(plan: Plan, found: dict[str, dict[str, list[float]]]) -> Figure:
    """A panel for each size, ratios against it; dashed is cost in proportion."""
    figure = Figure(figsize=(11, 6.2), layout="constrained")
    for ax, (size, curves) in zip(figure.subplots(2, 3).flat, found.items(), strict=True):
        _panel(ax, getattr(plan.grown, size), curves)
        ax.set_xlabel(WORDS[size])
    handles = {
        label: line
        for ax in figure.axes
        for line, label in zip(*ax.get_legend_handles_labels(), strict=True)
    }
    for ax in figure.axes[::3]:
        ax.set_ylabel("cost, first point = 1")
    figure.legend(handles.values(), handles, loc="outside right center", frameon=False, fontsize=9)
    return figure


def _panel(ax: Axes, values: tuple[int, ...], curves: dict[str, list[float]]) -> None:
    ax.loglog(
        values, [v / values[0] for v in values], color=SOFT, linestyle="--", label="in proportion"
    )
    for name, seconds in curves.items():
        ax.loglog(
            values,
            [s / seconds[0] for s in seconds],
            color=COLOURS[name],
            marker="o",
            markersize=4,
            label=name,
        )
    ax.xaxis.set_major_locator(FixedLocator(values))
    ax.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    ax.yaxis.set_major_locator(FixedLocator([1, 2, 4, 8]))
    ax.yaxis.set_major_formatter(ScalarFormatter())
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_minor_locator(NullLocator())
        axis.set_minor_formatter(NullFormatter())
    ax.tick_params(labelsize=8)
    ax.grid(color=FAINT, linewidth=0.7)
    ax.spines[["top", "right"]].set_visible(False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--quick", action="store_true", help="tiny sizes, whose figures mean nothing"
    )
    parser.add_argument(
        "--out", type=pathlib.Path, help="the picture; docs/images/costs.png, or none if --quick"
    )
    options = parser.parse_args()
    plan, begun = QUICK if options.quick else FULL, time.perf_counter()
    base = ", ".join(f"{name} = {values[0]:,}" for name, values in plan.grown._asdict().items())
    print(f"costs from {base}; scorebed {scorebed.__version__}, jax {jax.__version__}")
    figure = draw(plan, measure(plan))
    path = options.out or (None if options.quick else PICTURE)
    if path is not None:
        figure.savefig(path, dpi=150)
        print(f"wrote {path}")
    print(f"{time.perf_counter() - begun:.0f} s in all")


if __name__ == "__main__":
    main()
