"""Methods side by side: the EIG that each reached against what it spent, and presets against the
paper.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

Spent = Literal["nle", "seconds"]
MARKS = "x+1*"  # of references


@runtime_checkable
class SpentAndReached(Protocol):
    """What a method had spent at some moment of its training, and the best lower bound by then."""

    @property
    def nle(self) -> float: ...
    @property
    def seconds(self) -> float: ...
    @property
    def lower(self) -> float: ...


@runtime_checkable
class ComparedMethod(Protocol):
    """A method, the record of its run, the seconds of its training, and its bound during it."""

    @property
    def method(self) -> str: ...
    @property
    def record(self) -> Any: ...
    @property
    def seconds(self) -> float: ...
    @property
    def curve(self) -> Sequence[SpentAndReached]: ...


@runtime_checkable
class BenchedTask(Protocol):
    """The runs of one task and method, one record and one tight bound per seed."""

    @property
    def task(self) -> str: ...
    @property
    def method(self) -> str: ...
    @property
    def records(self) -> Sequence[Any]: ...
    @property
    def tight(self) -> Sequence[Mapping[str, float]]: ...


def draw_comparison(
    entries: Sequence[ComparedMethod], title: str, *, against: Spent = "nle"
) -> Figure:
    """The EIG against NLE, or against the seconds of training: how each bound rose, and where it
    ended. A method that is not trained is a horizontal line.
    """
    figure = Figure(figsize=(8, 4.8), layout="constrained")
    axes: Axes = figure.subplots()
    for i, entry in enumerate(entries):
        colour, lower = f"C{i % 10}", entry.record.bounds.lower
        dashes = "-" if i < 10 else "--"
        label = f"{entry.method}  {lower:.2f}"
        if entry.record.nle == 0:
            axes.axhline(lower, color=colour, linestyle=":", label=label)
            continue
        if entry.curve:
            spent = [getattr(moment, against) for moment in entry.curve]
            best = [moment.lower for moment in entry.curve]
            axes.plot(spent, best, color=colour, linestyle=dashes, linewidth=1.2)
        end = entry.record.nle if against == "nle" else entry.seconds
        axes.errorbar(
            end,
            lower,
            yerr=2 * entry.record.bounds.lower_se,
            color=colour,
            fmt="o",
            capsize=3,
            label=label,
        )
    axes.set_xscale("log")
    axes.set_xlabel(
        "likelihood evaluations of training (NLE)" if against == "nle" else "seconds of training"
    )
    axes.set_ylabel("lower bound of the EIG (nats)")
    axes.set_title(title)
    axes.grid(alpha=0.3)
    figure.legend(loc="outside right center", frameon=False, fontsize=9)
    return figure


def draw_bench(
    reached: Sequence[BenchedTask], paper: Mapping[str, tuple[float, ...]], title: str
) -> Figure:
    """One line per task: what each method reached, with the references that it has to beat and the
    paper's figures, of ScoreBED and of its best method.
    """
    tasks = list(dict.fromkeys(each.task for each in reached))
    methods = list(dict.fromkeys(each.method for each in reached))
    references = list(
        dict.fromkeys(name for each in reached for r in each.records for name in r.references)
    )
    figure = Figure(figsize=(8, 1.2 + 0.8 * len(tasks)), layout="constrained")
    axes: Axes = figure.subplots()
    for each in reached:
        place = methods.index(each.method)
        y = len(tasks) - tasks.index(each.task) - (0.15 if place == 0 else -0.15)
        colour = f"C{place}"
        lower = float(np.mean([r.bounds.lower for r in each.records]))
        axes.errorbar(
            lower,
            y,
            xerr=2 * each.records[0].bounds.lower_se,
            fmt="o",
            color=colour,
            capsize=3,
            label=f"{each.method}, lower bound",
        )
        axes.plot(
            [np.mean([t["lower"] for t in each.tight])] if each.tight else [np.nan],
            [y],
            "|",
            color=colour,
            markersize=13,
            markeredgewidth=2,
            label=f"{each.method}, tight lower bound",
        )
        for record in each.records:
            for name, reference in record.references.items():
                mark = MARKS[references.index(name) % len(MARKS)]
                axes.plot([reference.lower], [y], mark, color="0.5", label=f"{name} designs")
    for i, task in enumerate(tasks):
        if task in paper:
            scorebed, best = paper[task][:2]
            y = len(tasks) - i
            label = "the paper's ScoreBED"
            axes.plot([scorebed], [y], "D", color="C3", fillstyle="none", label=label)
            axes.plot([best], [y], "D", color="C3", label="the paper's best method")
    axes.set_yticks(range(len(tasks), 0, -1), tasks)
    axes.set_ylim(0.4, len(tasks) + 0.6)
    axes.set_xlabel("expected information gain (nats)")
    axes.set_title(title)
    axes.grid(alpha=0.3, axis="x")
    marks = dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    figure.legend(
        marks.values(), marks.keys(), loc="outside right center", frameon=False, fontsize=9
    )
    return figure
