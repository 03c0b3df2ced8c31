"""`--hours H`: the largest scale at which the rows that are left fit into the time.

A few steps of every method are timed at a small scale, on the first of the tasks that it has to
serve; its other rows are taken to need as many seconds per likelihood evaluation (NLE). With n the
NLE of a stage at scale S, p its seconds per NLE when timed, and w the width of the network,

    seconds(S) = 5/4 · Σ_stages n(S) · p · g(w(S) / w_timed) + compilation

where g(r) is r² for wider networks than the timed one and r for narrower ones, and 5/4 is for
bounds, which take at most a quarter of the training. It is a forecast: steps of a busy machine take
longer, small batches use a machine less well than large ones, and a task whose likelihood is dear
is taken for one whose likelihood is cheap. What was measured is kept beside the runs, so that the
same command, given again, goes on at the same scale; commands that are given at the same time share
it.
"""

import bisect
import contextlib
import dataclasses
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax

from scorebed.errors import FolderInUseError, InvalidValueError
from scorebed.paper.rows import TableRow, spending
from scorebed.paper.study import Study
from scorebed.paper.units import LOOK_AGAIN, Unit
from scorebed.runs import strict_json
from scorebed.runs.config import RunConfig, to_values
from scorebed.runs.durable import make_folder, replace_file
from scorebed.runs.execution import job_for
from scorebed.runs.lock import Lock
from scorebed.runs.spending import timed_paces
from scorebed.runs.stage import Progress
from scorebed.tasks.base import Task

TIMED_AT = 0.01
GRID = (
    *(float(f"{digits}e{power}") for power in range(-4, 0) for digits in (1, 1.5, 2, 3, 5, 7)),
    1.0,
)
WITH_BOUNDS = 1.25
FILE = "hours.json"


class MethodPace(NamedTuple):
    """Seconds per NLE of what is learned upfront and of policies, seconds of compilation, and the
    width of the network they were measured with; 0 without one.
    """

    upfront: float
    policies: float
    before: float
    width: int


def scale_for(
    units: Sequence[Unit], study: Study, hours: float, *, progress: Progress
) -> tuple[float, dict[str, float]]:
    """The scale, and the seconds that every unit takes at it; both from their file if this command
    was given before.
    """
    make_folder(study.out)
    path = study.out / FILE
    with _waited_for(Lock(study.out / f"{FILE}.lock")):
        kept = _kept(path)
        asked = {"hours": hours, **study.settings(), "units": [unit.name for unit in units]}
        del asked["scale"]
        if kept.get("asked") == asked:
            return float(kept["scale"]), dict(kept["seconds"])
        paces = time_methods(units, study, progress=progress)
        scale = largest_scale(units, study, paces, hours)
        found = forecast(units, dataclasses.replace(study, scale=scale), paces)
        values = {"asked": asked, "scale": scale, "seconds": found}
        replace_file(path, (strict_json.dumps(values, indent=1) + "\n").encode())
        return scale, found


def time_methods(
    units: Sequence[Unit], study: Study, *, progress: Progress
) -> dict[str, MethodPace]:
    """The pace of every method of the rows, timed once."""
    trial = dataclasses.replace(study, scale=TIMED_AT)
    paces: dict[str, MethodPace] = {}
    for row in rows_of(units, study):
        if row.method not in paces:
            progress.begin(f"timing {row.method} on {row.task}", 0, 0)
            run = row.planned(trial)
            paces[row.method] = _pace(run.config, run.task)
            progress.end(f"{paces[row.method].before:.0f} s of compilation")
            jax.clear_caches()
    return paces


def forecast(units: Sequence[Unit], study: Study, paces: dict[str, MethodPace]) -> dict[str, float]:
    """Seconds of every unit at the study's scale. A unit that is no row rests on the NLE it
    announces, at the mean pace of the rows.
    """
    found: dict[str, float] = {}
    mean = sum(pace.policies for pace in paces.values()) / max(1, len(paces))
    for unit in units:
        row = unit.timed_as(study)
        if row is None:
            found[unit.name] = WITH_BOUNDS * unit.estimate(study).nle * mean
            continue
        run = row.planned(study)
        spent, pace = spending(run), paces[row.method]
        ratio = _width(run.config) / pace.width if pace.width else 1.0
        growth = ratio**2 if ratio > 1 else ratio
        policies = spent.total - spent.total_upfront
        training = growth * (spent.total_upfront * pace.upfront + policies * pace.policies)
        found[unit.name] = WITH_BOUNDS * training + pace.before
    return found


def largest_scale(
    units: Sequence[Unit], study: Study, paces: dict[str, MethodPace], hours: float
) -> float:
    """The largest scale of `GRID` at which all units fit; refused if the smallest does not."""

    def taken(scale: float) -> float:
        return sum(forecast(units, dataclasses.replace(study, scale=scale), paces).values())

    fitting = bisect.bisect_right(GRID, 3600 * hours, key=taken)
    if fitting == 0:
        raise InvalidValueError(
            "--hours",
            got=f"{hours:g}",
            expected=f"at least {taken(GRID[0]) / 3600:.2g}, which scale {GRID[0]:g} takes here",
            fix="raise it, or choose fewer rows by --rows.",
        )
    return GRID[fitting - 1]


def rows_of(units: Sequence[Unit], study: Study) -> list[TableRow]:
    """The rows that the times of units rest on, each once."""
    found = [unit.timed_as(study) for unit in units]
    return list({row.name: row for row in found if row is not None}.values())


def _pace(config: RunConfig, task: Task) -> MethodPace:
    """A few steps of one policy, and of what comes before it."""
    one = dataclasses.replace(config, policies=1, repeats=1)
    method, job = one.trained_by, job_for(one, task)
    first, second = timed_paces(one, task)
    stage = method.train(job, None, job.groups(method.parts(job))[0][0], 1)
    each = stage.nle_at_most() / stage.steps if stage is not None else 1
    upfront = method.upfront(job, 0)
    before = second.before + (first.before if first else 0.0)
    per_step = upfront.nle_at_most() / upfront.steps if upfront is not None and first else 1.0
    return MethodPace(
        upfront=first.step / per_step if first else 0.0,
        policies=second.step / each,
        before=before,
        width=_width(config),
    )


def _width(config: RunConfig) -> int:
    """The width of the network of a method; 0 without one."""
    tables = [table for table in to_values(config).values() if isinstance(table, dict)]
    return max((int(table["width"]) for table in tables if "width" in table), default=0)


def _kept(path: Path) -> dict[str, Any]:
    try:
        values: dict[str, Any] = strict_json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return values


@contextlib.contextmanager
def _waited_for(lock: Lock) -> Iterator[None]:
    """Hold a lock, once nobody else does."""
    while not lock.held:
        try:
            lock.acquire()
        except FolderInUseError:
            time.sleep(LOOK_AGAIN)
    try:
        yield
    finally:
        lock.release()
