"""What a preset reaches on every task of the paper, by `score` and `jointscore`, compared with
the paper's figures.

`jointscore` starts from the score that the run by `score` has trained, if there is one. A row has
the contrastive bounds that the run reports, and tight ones of the same policy: by importance or,
for many sources, by SMC, which has no ceiling of log(M+1). Every run has its folder, so that a
bench that was stopped goes on where it was."""

import dataclasses
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.random as jr
import numpy as np

from scorebed.bench.compare import training_seconds
from scorebed.bench.reuse import require_same
from scorebed.bounds import tight_bounds
from scorebed.keys import named
from scorebed.methods import METHODS
from scorebed.methods.score import ByScore
from scorebed.policies import RANDOM, STATIC
from scorebed.presets.files import read
from scorebed.runs.begin import NewRun, Request, plan
from scorebed.runs.durable import make_folder
from scorebed.runs.execution import RECORD, Execution
from scorebed.runs.folder import CONFIG
from scorebed.runs.load import OpenRun, load, open_run
from scorebed.runs.record import Record
from scorebed.runs.stage import Progress
from scorebed.runs.user_parts import BUILT_IN
from scorebed.tasks import make_task

# The first trains a score, which the others go on with.
BY_SCORE = tuple(name for name, method in METHODS.items() if issubclass(method, ByScore))
REFERENCES = (RANDOM, STATIC)
COLUMNS = (
    "task",
    "method",
    "policy",
    "lower bound",
    "upper bound",
    "tight bounds",
    *REFERENCES,
    "NLE",
    "seconds",
    "the paper",
)
TIGHT_OUTER = 512
TIGHT_FILE = "bounds-tight.json"


class Published(NamedTuple):
    """Lower bounds of the paper: ScoreBED's, and that of the best method of its table."""

    score: float
    best: float


def published() -> dict[str, Published]:
    """The paper's figures, by task."""
    return {task: Published(**values) for task, values in read("published").items()}


class Reached(NamedTuple):
    """The runs of one task and method, one for each seed."""

    task: str
    method: str
    records: Sequence[Record]
    tight: Sequence[dict[str, float]]

    def row(self) -> list[str]:
        """The cells of `COLUMNS`; with several seeds the errors are those of their mean, across
        seeds.
        """
        first, paper = self.records[0], published()
        lower = _mean([r.bounds.lower for r in self.records], first.bounds.lower_se)
        upper = _mean([r.bounds.upper for r in self.records], first.bounds.upper_se)
        tight = " – ".join(
            _mean([t[side] for t in self.tight], None) for side in ("lower", "upper")
        )
        references = [
            f"{first.references[n].lower:.2f}" if n in first.references else "" for n in REFERENCES
        ]
        nle = sum(r.nle for r in self.records) // len(self.records)
        seconds = sum(training_seconds(r) for r in self.records) / len(self.records)
        figure = (
            f"{paper[self.task].score:.2f}"
            if self.task in paper and self.method == BY_SCORE[0]
            else ""
        )
        return [
            self.task,
            self.method,
            first.policy,
            lower,
            upper,
            tight,
            *references,
            f"{nle:,}",
            f"{seconds:.0f}",
            figure,
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
        records: dict[str, list[tuple[Record, dict[str, float]]]] = {m: [] for m in methods}
        counts = {method: max(seeds, _finished(out / f"{name}-{method}")) for method in methods}
        for seed in range(max(counts.values())):
            first = out / f"{name}-{BY_SCORE[0]}-{seed}"
            for method, found in records.items():
                path = out / f"{name}-{method}-{seed}"
                if seed >= counts[method]:
                    continue
                progress.begin(f"{name}, {method}, seed {seed}", 0, 0)
                # What a policy is compared with does not depend on its seed: once for a task is
                # enough.
                compared = str(method == BY_SCORE[0] and seed == 0).lower()
                settings = [f"seed={seed}", f"evaluation.references={compared}", *overrides]
                run = _run(name, method, path, first, preset, settings)
                with run.folder as folder:
                    progress.end(str(path))
                    record = Execution(folder, run.config, run.task, progress=progress).run()
                    found.append((record, _tight(run, progress)))
                jax.clear_caches()
        reached += [
            Reached(name, method, *zip(*found, strict=True)) for method, found in records.items()
        ]
    return reached


def _finished(stem: Path) -> int:
    """How many seeds, from zero on, have a run that is done."""
    return next(s for s in itertools.count() if not Path(f"{stem}-{s}", RECORD).exists())


def _tight(run: OpenRun, progress: Progress) -> dict[str, float]:
    """Tight bounds of the run's policy, from their file if they were computed before."""
    if not (run.folder.path / TIGHT_FILE).exists():
        progress.begin("tight bounds", 0, 0)
        found = tight_bounds(
            run.task,
            load(run.folder.path).policy,
            outer=TIGHT_OUTER,
            on_group=lambda done, total: progress.update(done, "", total),
            key=named(jr.key(run.config.seed), "bounds-tight"),
        )
        progress.end(str(found))
        run.folder.write_json_atomic(TIGHT_FILE, dataclasses.asdict(found))
    kept: Any = run.folder.read_json(TIGHT_FILE)
    return {name: value for name, value in kept.items() if name != "groups"}


def _run(
    name: str, method: str, path: Path, first: Path, preset: str, overrides: Sequence[str]
) -> OpenRun:
    """A run to begin or to go on with; a joint one begins with the score of the run before it, if
    that has the kind of score that it would train.
    """
    task = make_task(name)
    request = Request(task_name=name, task=task, preset=preset, method=method, overrides=overrides)
    new = plan(request)
    lent = plan(dataclasses.replace(request, score=first)) if _lends(first, path, new) else new
    if not (path / CONFIG).is_file():
        return OpenRun(lent.create(path), lent.config, lent.task)
    run = open_run(path, BUILT_IN, strict=True)
    # What it began with stays: a score of its own, or the one that was there to be taken over.
    wanted = lent if run.config.score_run else new
    require_same(path, run.config, wanted.config, apart_from=("score_run",))
    run.folder.acquire()
    return run


def _lends(first: Path, path: Path, new: NewRun) -> bool:
    """Whether a finished run has a score of the kind that another one would train."""
    if path == first or not (first / RECORD).is_file():
        return False
    return bool(_config(first).trained_by.score_kind == new.config.trained_by.score_kind)


def _config(path: Path) -> Any:
    return open_run(path, BUILT_IN).config


def table(reached: Sequence[Reached]) -> str:
    """The result as a Markdown table."""
    rows = [
        list(COLUMNS),
        [*["---"] * 3, *["---:"] * (len(COLUMNS) - 3)],
        *(each.row() for each in reached),
    ]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _mean(values: Sequence[float], error: float | None) -> str:
    """The mean with its standard error: over several values, or else the one given."""
    mean = f"{sum(values) / len(values):.2f}"
    spread = float(np.std(values, ddof=1)) / len(values) ** 0.5 if len(values) > 1 else error
    return mean if spread is None else f"{mean} ± {spread:.2f}"
