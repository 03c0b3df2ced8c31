"""What a preset reaches on every task of the paper, by `score` and `jointscore`, beside the paper's
own figures.

`jointscore` starts from the score that the run beside it has trained, if it has trained one. Beside
the contrastive bounds that a run reports stand tight ones of the same policy, by importance or, of
many sources, by SMC, which no ceiling holds down. Every run has a folder of its own, so that a
bench that was stopped goes on where it was."""

import dataclasses
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.random as jr
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from scorebed.bounds.importance import importance_bounds
from scorebed.bounds.smc import smc_bounds
from scorebed.keys import named
from scorebed.presets.values import preset_values
from scorebed.runs.artifacts import check_upfront, copy_upfront
from scorebed.runs.config import make_config
from scorebed.runs.durable import make_folder
from scorebed.runs.folder import RunFolder
from scorebed.runs.load import load
from scorebed.runs.methods import BY_SCORE
from scorebed.runs.stage import Progress
from scorebed.runs.training import Execution
from scorebed.tasks import make_task

# Lower bounds in nats, as published: ScoreBED's, and those of the best method of each table.
PAPER = {
    "location-finding": (10.98, 11.52),
    "location-finding-3d": (9.45, 9.45),
    "pendulum": (3.95, 3.95),
    "cart-pole": (7.17, 7.22),
    "double-link": (11.78, 11.99),
    "gravimetry": (8.42, 8.87),
}
COLUMNS = (
    "task",
    "method",
    "policy",
    "lower bound",
    "upper bound",
    "tight bounds",
    "random",
    "static",
    "NLE",
    "seconds",
    "paper",
)
# By importance; bounds by SMC have their usual sizes but for the trajectories.
TIGHT: dict[str, Any] = {"outer": 512, "inner": 4096}
TIGHT_OF_MANY: dict[str, Any] = {"outer": 512}
TIGHT_FILE = "bounds-tight.json"


class Reached(NamedTuple):
    """The runs of one task and method, one for each seed."""

    task: str
    method: str
    records: Sequence[dict[str, Any]]
    tight: Sequence[dict[str, float]]

    def row(self) -> list[str]:
        """The cells of `COLUMNS`; with several seeds the errors are those of their mean, across
        seeds.
        """
        first = self.records[0]
        bounds = [
            _mean([r[side] for r in self.records], first[f"{side}_se"])
            for side in ("lower", "upper")
        ]
        tight = " – ".join(
            _mean([t[side] for t in self.tight], None) for side in ("lower", "upper")
        )
        references = [
            f"{first['references'][n]['lower']:.2f}" if n in first["references"] else ""
            for n in ("random", "static")
        ]
        nle = sum(r["nle"] for r in self.records) // len(self.records)
        seconds = sum(_training_seconds(r) for r in self.records) / len(self.records)
        paper = (
            f"{PAPER[self.task][0]:.2f}" if self.task in PAPER and self.method == "score" else ""
        )
        return [
            self.task,
            self.method,
            str(first["policy"]),
            *bounds,
            tight,
            *references,
            f"{nle:,}",
            f"{seconds:.0f}",
            paper,
        ]


def laptop(
    tasks: Sequence[str],
    out: Path,
    *,
    preset: str,
    seeds: int,
    methods: Sequence[str] = BY_SCORE,
    overrides: Sequence[str] = (),
    progress: Progress,
) -> list[Reached]:
    """The methods on every task, `seeds` times each; runs of further seeds that the folder already
    has count too.
    """
    make_folder(out)
    reached = []
    for name in tasks:
        records: dict[str, list[tuple[dict[str, Any], dict[str, float]]]] = {
            method: [] for method in methods
        }
        counts = {method: max(seeds, _finished(out / f"{name}-{method}")) for method in methods}
        for seed in range(max(counts.values())):
            before = out / f"{name}-score-{seed}"
            for method, found in records.items():
                path = out / f"{name}-{method}-{seed}"
                if seed >= counts[method]:
                    continue
                progress.begin(f"{name}, {method}, seed {seed}", 0, 0)
                # What a policy is compared with does not depend on its seed: once for a task is
                # enough.
                references = f"evaluation.references={str(method == 'score' and seed == 0).lower()}"
                with _run(
                    name, method, path, before, preset, [f"seed={seed}", references, *overrides]
                ) as folder:
                    progress.end(str(path))
                    record = Execution(folder, progress=progress).run()
                    found.append((record, _tight(folder, progress)))
                jax.clear_caches()
        reached += [
            Reached(name, method, *zip(*found, strict=True)) for method, found in records.items()
        ]
    return reached


def _finished(stem: Path) -> int:
    """How many seeds, from zero on, have a run that is done."""
    return next(s for s in itertools.count() if not Path(f"{stem}-{s}", "record.json").exists())


def _tight(folder: RunFolder, progress: Progress) -> dict[str, float]:
    """Tight bounds of the run's policy, from their file if they were computed before."""
    if not (folder.path / TIGHT_FILE).exists():
        run = load(folder.path)
        progress.begin("tight bounds", 0, 0)
        bounds, sizes = (
            (importance_bounds, TIGHT) if run.task.can_order_blocks else (smc_bounds, TIGHT_OF_MANY)
        )
        found = bounds(
            run.task,
            run.policy,
            **sizes,
            on_group=lambda done, total: progress.update(done, "", total),
            key=named(jr.key(run.config.seed), "bounds-tight"),
        )
        progress.end(str(found))
        folder.write_json_atomic(TIGHT_FILE, dataclasses.asdict(found))
    kept: dict[str, float] = folder.read_json(TIGHT_FILE)  # type: ignore[assignment]
    return kept


def _run(
    name: str, method: str, path: Path, before: Path, preset: str, overrides: Sequence[str]
) -> RunFolder:
    """A run to begin or to go on with; a joint one begins with the score of the run before it, if
    it can.
    """
    if (path / "config.toml").is_file():
        return RunFolder.open(path).own()
    task = make_task(name)
    values = preset_values(preset, name, task, method=method)
    if method == "score":
        return RunFolder.create(path, make_config(values, overrides))
    shared = (
        before.is_dir() and RunFolder.open(before).config().score.kind == values["score"]["kind"]
    )
    if shared:
        values |= check_upfront(before, method, task)
    folder = RunFolder.create(path, make_config(values, overrides))
    if shared:
        copy_upfront(before, folder)
    return folder


def table(reached: Sequence[Reached]) -> str:
    """The result as a Markdown table."""
    rows = [
        list(COLUMNS),
        [*["---"] * 3, *["---:"] * (len(COLUMNS) - 3)],
        *(each.row() for each in reached),
    ]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def draw(reached: Sequence[Reached], title: str) -> Figure:
    """One line for each task: what every method reached, beside the paper's two figures and what it
    has to beat.
    """
    tasks = list(dict.fromkeys(each.task for each in reached))
    figure = Figure(figsize=(8, 1.2 + 0.8 * len(tasks)), layout="constrained")
    axes: Axes = figure.subplots()
    for each in reached:
        y = len(tasks) - tasks.index(each.task) - (0.15 if each.method == "score" else -0.15)
        colour = "C0" if each.method == "score" else "C1"
        lower, error = (
            float(np.mean([r["lower"] for r in each.records])),
            float(each.records[0]["lower_se"]),
        )
        axes.errorbar(
            lower,
            y,
            xerr=2 * error,
            fmt="o",
            color=colour,
            capsize=3,
            label=f"{each.method}, lower bound",
        )
        axes.plot(
            [np.mean([t["lower"] for t in each.tight])],
            [y],
            "|",
            color=colour,
            markersize=13,
            markeredgewidth=2,
            label=f"{each.method}, tight lower bound",
        )
        for name, mark in (("random", "x"), ("static", "+")):
            for reference in [
                r["references"][name]["lower"] for r in each.records if name in r["references"]
            ]:
                axes.plot([reference], [y], mark, color="0.5", label=f"{name} designs")
    for i, task in enumerate(tasks):
        if task in PAPER:
            own, best = PAPER[task]
            axes.plot(
                [own],
                [len(tasks) - i],
                "D",
                color="C3",
                fillstyle="none",
                label="the paper's ScoreBED",
            )
            axes.plot([best], [len(tasks) - i], "D", color="C3", label="the paper's best method")
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


def _mean(values: Sequence[float], error: float | None) -> str:
    """The mean with its standard error: over several values, or else the one given."""
    mean = f"{sum(values) / len(values):.2f}"
    spread = float(np.std(values, ddof=1)) / len(values) ** 0.5 if len(values) > 1 else error
    return mean if spread is None else f"{mean} ± {spread:.2f}"


def _training_seconds(record: dict[str, Any]) -> float:
    """Of the score and the policies; neither bounds nor references."""
    stages = record["seconds"].items()
    return float(sum(s for stage, s in stages if stage.startswith(("score", "policy"))))
