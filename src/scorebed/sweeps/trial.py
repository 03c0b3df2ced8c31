"""One trial: its run folder, carried out under a lease."""

import dataclasses
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
from optuna.trial import Trial

from scorebed._platform import sync_folder
from scorebed.errors import InvalidValueError
from scorebed.runs.artifacts import upfront_files
from scorebed.runs.begin import NewRun
from scorebed.runs.durable import explained, replace_file, temporary_beside
from scorebed.runs.execution import Execution, job_for
from scorebed.runs.folder import CONFIG, LOCK, METRICS
from scorebed.runs.load import OpenRun, open_run
from scorebed.runs.record import Record
from scorebed.runs.stage import Progress
from scorebed.sweeps.away import patiently
from scorebed.sweeps.creation import TrialPlanner
from scorebed.sweeps.halving import rung_ends
from scorebed.sweeps.leases import Lease
from scorebed.sweeps.space import Primitive


class LosingTrialError(Exception):
    """A trial that is in the worse half at a rung."""


class LeasedProgress(Progress):
    """Progress that stops a trial before its next checkpoint once its lease is lost, and at the end
    of a rung if it is losing.
    """

    def __init__(self, shown: Progress, lease: Lease, watch: Callable[[str, int], None]):
        self.shown, self.lease, self.watch, self.stage = shown, lease, watch, ""

    def begin(self, stage: str, total: int, done: int) -> None:
        self.lease.check()
        self.stage = stage
        self.shown.begin(stage, total, done)

    def update(self, done: int, note: str, total: int | None = None) -> None:
        self.lease.check()
        self.watch(self.stage, done)
        self.shown.update(done, note, total)

    def end(self, line: str) -> None:
        self.lease.check()
        self.shown.end(line)


def carry_out(
    planner: TrialPlanner,
    trial: Trial,
    settings: Mapping[str, Primitive],
    lease: Lease,
    *,
    progress: Progress,
) -> dict[str, Any]:
    """Carry out what is left of a trial, and give what Optuna is to keep of it."""
    run = _open_attempt(planner, planner.plan(settings, trial.number), lease)
    with run.folder as folder:
        watch = _Rungs(planner, trial, run)
        leased = LeasedProgress(progress, lease, watch)
        progress.begin(f"trial {trial.number}", 0, 0)
        progress.end(", ".join(f"{key} {value}" for key, value in settings.items()))
        record = Execution(folder, run.config, run.task, progress=leased).run()
    # Nothing that one trial compiled serves another, and it would be held to the end.
    jax.clear_caches()
    return _result(record, lease, settings)


def attempt_folder(trials: Path, number: int, epoch: int) -> Path:
    """The run folder of a trial's epoch: nobody writes to that of another."""
    return trials / (f"{number:05d}" if epoch == 1 else f"{number:05d}-{epoch}")


def lines_of_metrics(trials: Path, number: int, epoch: int) -> int:
    """How far an attempt has come, as the number of its lines of metrics."""
    try:
        return (attempt_folder(trials, number, epoch) / METRICS).read_bytes().count(b"\n")
    except OSError:
        return 0


def remove_others(trials: Path, lease: Lease, kept: str | None) -> None:
    """Remove the run folders of a trial but the one that was kept, or this lease's own."""
    kept = kept or attempt_folder(trials, lease.number, lease.epoch).name
    for epoch in range(1, lease.epoch + 1):
        path = attempt_folder(trials, lease.number, epoch)
        if path.name != kept:
            shutil.rmtree(path, ignore_errors=True)


def _result(record: Record, lease: Lease, settings: Mapping[str, Primitive]) -> dict[str, Any]:
    bounds = record.bounds
    value = bounds.lower - (bounds.cost_nats or 0.0)
    if not np.isfinite(value):
        raise InvalidValueError(
            f"trial {lease.number}",
            got="a bound that is not finite",
            expected="a number of nats",
            fix="narrow the space, for example to smaller learning rates.",
        )
    return {
        "value": value,
        "lower": bounds.lower,
        "lower_se": bounds.lower_se,
        "upper": bounds.upper,
        "upper_se": bounds.upper_se,
        "saturated": bounds.saturated,
        "nle": record.nle,
        "seconds": float(record.seconds["total"]),
        "seed": record.seed,
        "method": record.method,
        "policy": record.policy,
        "run": attempt_folder(Path(), lease.number, lease.epoch).name,
        "attempts": lease.epoch,
        "settings": dict(settings),
    }


def _open_attempt(planner: TrialPlanner, new: NewRun, lease: Lease) -> OpenRun:
    """The run of this lease's epoch, owned by this process: a copy of the last attempt that left
    one, so that it goes on from there, or a new one.
    """
    trials = planner.study.trials_folder
    path = attempt_folder(trials, lease.number, lease.epoch)
    for epoch in range(lease.epoch - 1, 0, -1):
        before = attempt_folder(trials, lease.number, epoch)
        if (before / CONFIG).is_file() and _copied(before, path):
            break
    if not (path / CONFIG).is_file():
        return OpenRun(new.create(path), new.config, new.task)
    run = open_run(path, planner.parts, strict=True)
    run.folder.acquire()
    if new.score is not None:  # the attempt before may have ended before it had copied them
        for name in upfront_files(run.config.trained_by, job_for(run.config, run.task)):
            if not (path / name).exists():
                replace_file(path / name, (new.score / name).read_bytes())
    return OpenRun(run.folder, run.config, run.task)


def _copied(source: Path, target: Path) -> bool:
    """Copy a run folder whose owner may still be awake; whether that was possible. A file that is
    torn by it is found by its checksum.
    """
    temporary = temporary_beside(target)
    with explained("copying", source):
        try:
            shutil.copytree(source, temporary, ignore=shutil.ignore_patterns(LOCK, ".tmp-*"))
        except (shutil.Error, FileNotFoundError):
            shutil.rmtree(temporary, ignore_errors=True)
            return False
        os.rename(temporary, target)
        sync_folder(target.parent)
    return True


@dataclasses.dataclass
class _Rungs:
    """Reports the bound of a trial at the end of every rung, of its first stage of policies."""

    planner: TrialPlanner
    trial: Trial
    run: OpenRun
    ends: list[int] | None = None

    def __call__(self, stage: str, step: int) -> None:
        study, training = self.planner.study, self.run.config.trained_by.policy_settings
        if not study.halvings or training is None or stage != "policy-0-0":
            return
        if self.ends is None:
            self.ends = rung_ends(
                training.steps,
                study.trials,
                halvings=study.halvings,
                every=training.monitor_every,
            )
        for rung, end in enumerate(self.ends):
            if step >= end:
                self._report(rung, stage, end)

    def _report(self, rung: int, stage: str, end: int) -> None:
        known = patiently(lambda: self.trial.storage.get_trial(self.trial._trial_id))
        if rung in known.intermediate_values:
            return
        metrics: Any = self.run.folder.read_metrics(stage)
        found = [
            value
            for line in metrics
            if line["step"] <= end
            for value in line.get("lower", ())
            if value is not None
        ]
        if found:
            patiently(lambda: self.trial.report(max(found), rung))
            if patiently(self.trial.should_prune):
                raise LosingTrialError
