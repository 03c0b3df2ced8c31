"""What a preset reaches on every task of the paper, by `score` and `jointscore`, beside the paper's own figures.

`jointscore` starts from the score that the run beside it has trained, if it has trained one. Every run has a folder of its own,
so that a bench that was stopped goes on where it was.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from scorebed.bench.presets import preset_values
from scorebed.runs.artifacts import check_upfront, copy_upfront
from scorebed.runs.config import make_config
from scorebed.runs.durable import make_folder
from scorebed.runs.folder import RunFolder
from scorebed.runs.keeper import Progress
from scorebed.runs.methods import BY_SCORE
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
COLUMNS = ("task", "method", "policy", "lower bound", "upper bound", "random", "static", "NLE", "seconds", "paper")


class Reached(NamedTuple):
    """The runs of one task and method, one for each seed."""

    task: str
    method: str
    records: Sequence[dict[str, Any]]

    def row(self) -> list[str]:
        """The cells of `COLUMNS`; with several seeds the errors are those of their mean, across seeds."""
        first = self.records[0]
        bounds = [_mean([r[side] for r in self.records], first[f"{side}_se"]) for side in ("lower", "upper")]
        references = [
            f"{first['references'][n]['lower']:.2f}" if n in first["references"] else "" for n in ("random", "static")
        ]
        nle = sum(r["nle"] for r in self.records) // len(self.records)
        seconds = sum(_training_seconds(r) for r in self.records) / len(self.records)
        paper = f"{PAPER[self.task][0]:.2f}" if self.task in PAPER and self.method == "score" else ""
        return [self.task, self.method, str(first["policy"]), *bounds, *references, f"{nle:,}", f"{seconds:.0f}", paper]


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
    """The methods on every task, `seeds` times each."""
    make_folder(out)
    reached = []
    for name in tasks:
        records: dict[str, list[dict[str, Any]]] = {method: [] for method in methods}
        for seed in range(seeds):
            before = out / f"{name}-score-{seed}"
            for method, found in records.items():
                path = out / f"{name}-{method}-{seed}"
                progress.begin(f"{name}, {method}, seed {seed}", 0, 0)
                # What a policy is compared with does not depend on its seed: once for a task is enough.
                references = f"evaluation.references={str(method == 'score' and seed == 0).lower()}"
                with _run(name, method, path, before, preset, [f"seed={seed}", references, *overrides]) as folder:
                    progress.end(str(path))
                    found.append(Execution(folder, progress=progress).run())
                jax.clear_caches()
        reached += [Reached(name, method, found) for method, found in records.items()]
    return reached


def _run(name: str, method: str, path: Path, before: Path, preset: str, overrides: Sequence[str]) -> RunFolder:
    """A run to begin or to go on with; a joint one begins with the score of the run before it, if it can."""
    if (path / "config.toml").is_file():
        return RunFolder.open(path).own()
    task = make_task(name)
    values = preset_values(preset, name, task, method=method)
    if method == "score":
        return RunFolder.create(path, make_config(values, overrides))
    shared = before.is_dir() and RunFolder.open(before).config().score.kind == values["score"]["kind"]
    if shared:
        values |= check_upfront(before, method, task)
    folder = RunFolder.create(path, make_config(values, overrides))
    if shared:
        copy_upfront(before, folder)
    return folder


def table(reached: Sequence[Reached]) -> str:
    """The result as a Markdown table."""
    rows = [list(COLUMNS), [*["---"] * 3, *["---:"] * (len(COLUMNS) - 3)], *(each.row() for each in reached)]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _mean(values: Sequence[float], error: float) -> str:
    spread = float(np.std(values, ddof=1)) / len(values) ** 0.5 if len(values) > 1 else error
    return f"{sum(values) / len(values):.2f} ± {spread:.2f}"


def _training_seconds(record: dict[str, Any]) -> float:
    """Of the score and the policies; neither bounds nor references."""
    stages = record["seconds"].items()
    return float(sum(s for stage, s in stages if stage.startswith(("score", "policy"))))
