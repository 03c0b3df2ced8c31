"""What a preset reaches on every task of the paper, by `score` and `jointscore`, compared with
the paper's figures.

`jointscore` starts from the score that the run by `score` has trained, if there is one. A row has
the contrastive bounds that the run reports, and tight ones of the same policy: by importance or,
for many sources, by SMC, which has no ceiling of log(M+1). In the same experiments as these the
policy is compared with greed and with its own start: before training, or without feedback. It is
past the paper where its tight lower bound is clear of the paper's upper one. Every run has its
folder, so that a bench that was stopped goes on where it was."""

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from scorebed.bench.compare import training_seconds
from scorebed.bench.reuse import require_same
from scorebed.methods import METHODS
from scorebed.methods.score import ByScore
from scorebed.policies import RANDOM, STATIC
from scorebed.presets.files import read
from scorebed.runs.begin import NewRun, Request, plan
from scorebed.runs.durable import make_folder
from scorebed.runs.execution import RECORD, Execution
from scorebed.runs.folder import CONFIG
from scorebed.runs.load import OpenRun, load, open_run
from scorebed.runs.record import BOUND_FIELDS, PairedRecord, Record
from scorebed.runs.stage import Progress
from scorebed.runs.user_parts import BUILT_IN
from scorebed.tasks import make_task

# The first trains a score, which the others go on with.
BY_SCORE = tuple(name for name, method in METHODS.items() if issubclass(method, ByScore))
REFERENCES = (RANDOM, STATIC)
GREED, STARTS = "greedy", ("untrained", "start")  # what a policy is to be ahead of
COLUMNS = (
    "task",
    "method",
    "policy",
    "lower bound",
    "upper bound",
    "tight bounds",
    "to greed",
    "to its start",
    *REFERENCES,
    "NLE",
    "seconds",
    "the paper",
    "past the paper",
)
CLEAR = 2.0  # standard errors by which a policy is past the paper


class Published(NamedTuple):
    """Bounds of the paper: ScoreBED's lower one, and both of the best method of its table."""

    score: float
    best: float
    upper: float


def published() -> dict[str, Published]:
    """The paper's figures, by task."""
    return {task: Published(**values) for task, values in read("published").items()}


class Reached(NamedTuple):
    """The runs of one task and method, one for each seed: what was recorded, tight bounds, and by
    how much the policy of the first seed is ahead of greed and of its own start.
    """

    task: str
    method: str
    records: Sequence[Record]
    tight: Sequence[dict[str, float]]
    ahead: dict[str, PairedRecord]

    def row(self) -> list[str]:
        """The cells of `COLUMNS`; with several seeds the errors are those of their mean, across
        seeds.
        """
        first, paper = self.records[0], published()
        lower = _mean([r.bounds.lower for r in self.records], first.bounds.lower_se)
        upper = _mean([r.bounds.upper for r in self.records], first.bounds.upper_se)
        tight, ahead = "", ["", ""]
        if self.tight:
            sides = [
                _mean([t[side] for t in self.tight], self.tight[0][f"{side}_se"])
                for side in ("lower", "upper")
            ]
            tight = " – ".join(sides)
            ahead = [_difference(self.ahead, names) for names in ((GREED,), STARTS)]
        references = [
            f"{first.references[n].lower:.2f}" if n in first.references else "" for n in REFERENCES
        ]
        nle = sum(r.nle for r in self.records) // len(self.records)
        seconds = sum(training_seconds(r) for r in self.records) / len(self.records)
        known = self.task in paper and self.method == BY_SCORE[0]
        figure = f"{paper[self.task].best:.2f} – {paper[self.task].upper:.2f}" if known else ""
        past = self._past(paper[self.task].upper) if known and self.tight else ""
        return [
            self.task,
            self.method,
            first.policy,
            lower,
            upper,
            tight,
            *ahead,
            *references,
            f"{nle:,}",
            f"{seconds:.0f}",
            figure,
            past,
        ]

    def _past(self, upper: float) -> str:
        """Whether the lower bounds of all seeds are clear of the paper's upper one."""
        clear = [t["lower"] - CLEAR * t["lower_se"] > upper for t in self.tight]
        return "yes" if all(clear) else "not decided"


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
        records: dict[str, list[tuple[Record, Standing | None]]] = {m: [] for m in methods}
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
                    execution = Execution(folder, run.config, run.task, progress=progress)
                    found.append((execution.run(), _tight(run, execution)))
                jax.clear_caches()
        for method, found in records.items():
            bounds = [tight for _, tight in found if tight is not None]
            ahead = bounds[0].ahead if bounds else {}
            each = [record for record, _ in found]
            reached.append(Reached(name, method, each, [t.bounds for t in bounds], ahead))
    return reached


class Standing(NamedTuple):
    """Tight bounds of a run's policy, and what it is ahead of in the same experiments."""

    bounds: dict[str, float]
    ahead: dict[str, PairedRecord]


def _finished(stem: Path) -> int:
    """How many seeds, from zero on, have a run that is done."""
    return next(s for s in itertools.count() if not Path(f"{stem}-{s}", RECORD).exists())


def _tight(run: OpenRun, execution: Execution) -> Standing | None:
    """Those of the run's own size; None if it is to have none. What a policy is ahead of is asked
    where a run has references.
    """
    sizes = run.config.evaluation
    if not sizes.tight_outer:
        return None
    policy = load(run.folder.path).policy
    bounds, ahead = execution.bounds.ahead_of(policy, compared=sizes.references)
    return Standing({name: getattr(bounds, name) for name in BOUND_FIELDS}, ahead)


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


def _difference(ahead: Mapping[str, PairedRecord], names: Sequence[str]) -> str:
    """By how much the policy is ahead of the first of these that there is."""
    found = [ahead[name] for name in names if name in ahead]
    return f"{found[0].advantage:+.3f} ± {found[0].advantage_se:.3f}" if found else "stands for it"


def _mean(values: Sequence[float], error: float | None) -> str:
    """The mean with its standard error: over several values, or else the one given."""
    mean = f"{sum(values) / len(values):.2f}"
    spread = float(np.std(values, ddof=1)) / len(values) ** 0.5 if len(values) > 1 else error
    return mean if spread is None else f"{mean} ± {spread:.2f}"
