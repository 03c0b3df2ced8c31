"""Methods side by side on one task: each trained with the same budget of likelihood evaluations, or
for the same time.

Every method has a run folder of its own below one folder, so that a comparison that was stopped
goes on where it was, and any of its runs can be looked into like another.
"""

import dataclasses
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax

from scorebed.bench.reuse import require_same, timed_settings
from scorebed.bounds.contrastive import SATURATED
from scorebed.cluster.pool import Pool
from scorebed.errors import ScorebedError, UnknownNameError
from scorebed.methods import METHODS
from scorebed.presets import DEFAULT_PRESET
from scorebed.presets.reader import shared_policy
from scorebed.runs.begin import NewRun, Request, plan
from scorebed.runs.config import overrides_for
from scorebed.runs.durable import make_folder
from scorebed.runs.execution import Execution, job_for
from scorebed.runs.folder import CONFIG
from scorebed.runs.load import OpenRun, open_run
from scorebed.runs.record import Record
from scorebed.runs.spending import Spending
from scorebed.runs.stage import Progress
from scorebed.runs.user_parts import BUILT_IN, METHOD, UserParts, is_from_file, read_part
from scorebed.tasks import make_task
from scorebed.tasks.base import Task

COLUMNS = ("method", "lower bound", "upper bound", "NLE per repeat", "NLE", "seconds")
WITHOUT_REFERENCES = "evaluation.references=false"
ALL = "all"


class CurvePoint(NamedTuple):
    """What a method had spent in training, and the best lower bound by then."""

    nle: float
    seconds: float
    lower: float


class Entry(NamedTuple):
    """One method: its run, and how its bound rose with what it had spent."""

    method: str
    record: Record
    curve: Sequence[CurvePoint]

    @property
    def seconds(self) -> float:
        """Of training; bounds are not counted."""
        return training_seconds(self.record)

    @property
    def nle_per_repeat(self) -> int:
        """The most that a repeat has spent on training, what it shares with others in full."""
        return max((each.nle for each in self.record.repeats or ()), default=self.record.nle)

    @property
    def saturated(self) -> bool:
        """Whether its lower bound is saturated, that is, close to log(M+1)."""
        return self.record.bounds.saturated > SATURATED

    def row(self) -> list[str]:
        """The cells of `COLUMNS`."""
        bounds = self.record.bounds
        lower = f"{bounds.lower:.3f} ± {bounds.lower_se:.3f}" + (" *" if self.saturated else "")
        upper = f"{bounds.upper:.3f} ± {bounds.upper_se:.3f}"
        spent = [f"{nle:,}" for nle in (self.nle_per_repeat, self.record.nle)]
        return [self.method, lower, upper, *spent, f"{self.seconds:.0f}"]


def training_seconds(record: Record) -> float:
    """Seconds of training; bounds and references are not counted."""
    others = ("total", *record.references)
    stages = record.seconds.items()
    return float(sum(s for stage, s in stages if stage not in others and not _is_bound(stage)))


def comparable(task_name: str, task: Task, preset: str) -> tuple[str, ...]:
    """The methods that serve a task with the policy that all can share."""
    found = []
    for method in [name for name in METHODS if not is_from_file(name)]:
        try:
            plan(_request(task_name, task, method, preset))
        except ScorebedError:
            continue
        found.append(method)
    return tuple(found)


def chosen(names: str, task_name: str, task: Task, preset: str) -> tuple[str, ...]:
    """The methods that a comma-separated list names, or `all` of those for the task. A method of
    the user's is FILE.py:NAME.
    """
    possible = comparable(task_name, task, preset)
    if names == ALL:
        return possible
    found = tuple(name.strip() for name in names.split(","))
    for name in found:
        if is_from_file(name):
            parts = UserParts(method=read_part(METHOD, name))
            plan(_request(task_name, task, name, preset, parts=parts))
        elif name not in possible:
            raise UnknownNameError("method for this task", name, possible)
    return found


def compare(
    task_name: str,
    methods: Sequence[str],
    spending: Spending,
    out: Path,
    *,
    preset: str = DEFAULT_PRESET,
    overrides: Sequence[str] = (),
    progress: Progress,
) -> list[Entry]:
    """Train every method below `out`, or go on with it there, and give them with the best first."""
    task = make_task(task_name)
    make_folder(out)
    entries = []
    for method in methods:
        path = out / _folder(method)
        progress.begin(method, 0, 0)
        part = read_part(METHOD, method) if is_from_file(method) else None
        parts = UserParts(method=part)
        request = _request(task_name, task, method, preset, overrides, spending, parts)
        run = _gone_on(path, request) if (path / CONFIG).is_file() else _begun(plan(request), path)
        with run.folder as folder:
            progress.end(f"{spending}, in {path}")
            record = Execution(folder, run.config, run.task, progress=progress).run()
            entries.append(Entry(method, record, _curve(run, record)))
        # Nothing that one method compiled serves another, and it would be held to the end.
        jax.clear_caches()
    return sorted(entries, key=lambda entry: -entry.record.bounds.lower)


def share_methods(
    task_name: str,
    methods: Sequence[str],
    spending: Spending,
    out: Path,
    pool: Pool,
    *,
    preset: str = DEFAULT_PRESET,
    overrides: Sequence[str] = (),
    progress: Progress,
) -> dict[str, str]:
    """Train every method by the workers of a pool, each in its own folder below `out`, where
    `compare` finds it; why some of them failed.
    """
    make_folder(out)
    given = (str(out.resolve()), preset, list(overrides))
    pieces = {method: (task_name, method, list(spending), *given) for method in methods}
    done: list[str] = []

    def on_done(name: str) -> None:
        done.append(name)
        progress.update(len(done), name)

    progress.begin(f"methods by {pool.workers} workers", len(pieces), 0)
    failed = pool.run(train_method, pieces, on_done=on_done).failed
    progress.end(f"{len(done)} of {len(pieces)} methods")
    return failed


def train_method(
    task_name: str,
    method: str,
    spending: Sequence[Any],
    out: str,
    preset: str,
    overrides: Sequence[str],
) -> None:
    """One method of a comparison, on a worker: it leaves a finished run."""
    how: dict[str, Any] = {"preset": preset, "overrides": overrides, "progress": Progress()}
    compare(task_name, [method], Spending(*spending), Path(out), **how)


def _request(
    task_name: str,
    task: Task,
    method: str,
    preset: str,
    overrides: Sequence[str] = (),
    spending: Spending | None = None,
    parts: UserParts = BUILT_IN,
) -> Request:
    """A run with the policy that all methods share; one that trains none, or static designs, has
    its own.
    """
    own = method in METHODS and METHODS[method].has_own_policy
    return Request(
        task_name=task_name,
        task=task,
        preset=preset,
        method=method,
        policy=None if own else shared_policy(task),
        overrides=[WITHOUT_REFERENCES, *overrides_for(method, overrides)],
        spending=spending,
        parts=parts,
    )


def _begun(run: NewRun, path: Path) -> OpenRun:
    return OpenRun(run.create(path), run.config, run.task)


def _folder(method: str) -> str:
    """The folder of a method: its name, and with FILE.py:NAME that of the file as well."""
    file, _, name = method.rpartition(":")
    words = f"{Path(file).stem} {name}" if file else name
    return re.sub(r"[^a-z0-9]+", "-", words.lower()).strip("-")


def _gone_on(path: Path, request: Request) -> OpenRun:
    """The run in a folder, if it is the one that is asked for. How many steps fit into a given time
    is not measured again.
    """
    run = open_run(path, request.parts, strict=True)
    spending = request.spending
    if spending is None or spending.minutes is None:
        require_same(path, run.config, plan(request).config)
    else:
        plain = plan(dataclasses.replace(request, spending=None)).config
        wanted = dataclasses.replace(plain, minutes=spending.minutes)
        require_same(path, run.config, wanted, apart_from=timed_settings(wanted, request.task))
    run.folder.acquire()
    return run


def _curve(run: OpenRun, record: Record) -> list[CurvePoint]:
    """For the first repeat: what was spent upfront, and on its policies until then."""
    method, job = run.config.trained_by, job_for(run.config, run.task)
    stem, parts = method.upfront_stem, method.parts(job)
    stage, upfront = job.groups(parts)[0][0], {f"{stem}-{part}" for part in range(parts)}
    before: list[float] = [
        sum(n for name, n in of.items() if name in upfront)
        for of in (record.nle_stages, record.seconds)
    ]
    metrics: Any = run.folder.read_metrics(stage)
    best, curve = float("-inf"), []
    for m in metrics:
        if "lower" in m:
            best = max(best, *(lower for lower in m["lower"] if lower is not None))
            share = m["step"] / metrics[-1]["step"]
            nle = before[0] + record.nle_stages[stage] * share
            curve.append(CurvePoint(nle, before[1] + float(m["seconds"]), best))
    return curve


def table(entries: Sequence[Entry]) -> str:
    """The comparison as a Markdown table."""
    rows = [
        list(COLUMNS),
        ["---", *["---:"] * (len(COLUMNS) - 1)],
        *(entry.row() for entry in entries),
    ]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows) + "".join(
        f"\n{line}\n" for line in remarks(entries)
    )


def remarks(entries: Sequence[Entry]) -> list[str]:
    """What the numbers do not say."""
    saturated = [entry for entry in entries if entry.saturated]
    if not saturated:
        return []
    ceiling = saturated[0].record.bounds.ceiling
    return [
        f"* saturated: the lower bound cannot exceed log(M+1) = {ceiling:.2f}, and the EIG may be "
        "far above it."
    ]


def _is_bound(stage: str) -> bool:
    return stage.startswith(("bounds", "tight", "round", "choose"))
