"""A row as an ordinary run folder: begun, or gone on with, and what its record keeps of it."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.random as jr

from scorebed.bench.compare import training_seconds
from scorebed.bounds import tight_bounds
from scorebed.errors import InvalidValueError
from scorebed.keys import named
from scorebed.paper.rows import TableRow
from scorebed.paper.study import Study
from scorebed.paper.units import record_name
from scorebed.policies.base import Policy
from scorebed.runs.artifacts import load_policy
from scorebed.runs.begin import NewRun
from scorebed.runs.config import to_values
from scorebed.runs.execution import Execution, job_for
from scorebed.runs.folder import CONFIG
from scorebed.runs.load import OpenRun, open_run
from scorebed.runs.record import Record, RepeatRecord
from scorebed.runs.stage import Progress
from scorebed.runs.user_parts import BUILT_IN

TIGHT_OUTER = 256
Result = dict[str, Any]


def run_row(row: TableRow, study: Study, *, progress: Progress) -> Result:
    """Carry out what is left of a row's run, bound its policies tightly as well, and give what its
    record keeps.
    """
    words = f"{row.label} on {row.task}"
    return run_planned(row.planned(study), row_folder(row, study), words, progress=progress)


def run_planned(new: NewRun, path: Path, words: str, *, progress: Progress) -> Result:
    """Carry out what is left of a run in a folder, and give what a record keeps of it."""
    run = open_planned(new, path)
    try:
        with run.folder as folder:
            progress.begin(folder.path.name, 0, 0)
            progress.end(f"{words}, in {folder.path}")
            record = Execution(folder, run.config, run.task, progress=progress).run()
            return _result(run, record, progress=progress)
    finally:
        # Nothing that one row compiled serves another, and it would be held to the end.
        jax.clear_caches()


def open_planned(new: NewRun, path: Path) -> OpenRun:
    """The run in a folder, owned by this process: begun if there is none, refused if it was begun
    with other settings.
    """
    if not (path / CONFIG).is_file():
        return OpenRun(new.create(path), new.config, new.task)
    run = open_run(path, BUILT_IN, strict=True)
    _require_same(path, run, new)
    run.folder.acquire()
    return run


def row_folder(row: TableRow, study: Study) -> Path:
    """Where the run of a row is."""
    return study.runs_folder / record_name(row, study)


def chosen_policy(run: OpenRun, repeat: int) -> Policy:
    """The policy that a repeat of a finished run has chosen."""
    job = job_for(run.config, run.task)
    file = run.folder.path / f"policy-{repeat}.safetensors"
    if not file.exists():
        return run.config.trained_by.untrained(job)
    return load_policy(file, job.make_policy, run.task)


def _result(run: OpenRun, record: Record, *, progress: Progress) -> Result:
    single = RepeatRecord(bounds=record.bounds, nle=record.nle)
    repeats = [
        {**each.values(), "tight": _tight(run, repeat, progress=progress)}
        for repeat, each in enumerate(record.repeats or [single])
    ]
    return {
        "policy": record.policy,
        "bound": record.bound,
        "tight_bound": run.task.tight_bound,
        "repeats": repeats,
        "nle": record.nle,
        "nle_stages": dict(record.nle_stages),
        "nle_selection": record.nle_selection,
        "nle_evaluation": record.nle_evaluation,
        **dict(record.by_method),
        "seconds": {
            "training": round(training_seconds(record), 1),
            "total": float(record.seconds["total"]),
        },
        "config": to_values(run.config),
    }


def _tight(run: OpenRun, repeat: int, *, progress: Progress) -> dict[str, Any] | None:
    """Tight bounds of the policy of a repeat, from their file if they were computed before; None
    where the task has none.
    """
    if run.task.tight_bound is None:
        return None
    stage = f"bounds-tight-{repeat}"
    if not (run.folder.path / f"{stage}.json").exists():
        progress.begin(stage, 0, 0)
        found = tight_bounds(
            run.task,
            chosen_policy(run, repeat),
            outer=min(TIGHT_OUTER, run.config.evaluation.outer),
            on_group=lambda done, total: progress.update(done, "", total),
            key=named(jr.key(run.config.seed), stage),
        )
        progress.end(str(found))
        run.folder.write_json_atomic(f"{stage}.json", dataclasses.asdict(found))
    kept: Any = run.folder.read_json(f"{stage}.json")
    return {name: kept[name] for name in ("lower", "lower_se", "upper", "upper_se", "outer")}


def _require_same(path: Path, run: OpenRun, planned: NewRun) -> None:
    begun, wanted = (_flat(to_values(each.config)) for each in (run, planned))
    differing = [key for key in (*wanted, *begun) if begun.get(key) != wanted.get(key)]
    if differing:
        key = differing[0]
        raise InvalidValueError(
            f"the run folder {path}",
            got=f"one begun with {key} = {begun.get(key)}",
            expected=f"{key} = {wanted.get(key)}",
            fix="give the settings that it was begun with, another folder by --out, or delete it.",
        )


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            found |= _flat(value, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = list(value) if isinstance(value, tuple) else value
    return found
