"""The folder of a run: `config.toml`, `env.json`, `metrics.jsonl`, `record.json`, `checkpoints/`
and the trained networks.

A folder is a run from the moment that it holds its configuration. One process at a time owns it and
may write; anybody may read. A configuration holds a method, whose import is slow: it is imported
when it is read or written, so that a folder that is in use is refused at once."""

import itertools
import logging
import os
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scorebed._platform import sync_folder
from scorebed.errors import RunFolderError, require
from scorebed.runs import seal, strict_json
from scorebed.runs.durable import (
    explained,
    make_folder,
    remove_leftovers,
    replace_file,
)
from scorebed.runs.env import environment
from scorebed.runs.lock import Lock
from scorebed.runs.strict_json import Json

if TYPE_CHECKING:
    from scorebed.runs.config import RunConfig
    from scorebed.runs.tracking import MetricsLog

CONFIG, METRICS, ENV, LOCK = "config.toml", "metrics.jsonl", "env.json", "lock"

OnWarning = Callable[[str], object]
_log: OnWarning = logging.getLogger("scorebed.runs").warning


class RunFolder:
    """A run on disk. Made by `create`, `create_next` or `open`; ownership is dropped at the end of
    a `with` block.
    """

    def __init__(self, path: Path, *, on_warning: OnWarning = _log):
        self.path, self._warn = path, on_warning
        self._lock = Lock(path / LOCK)
        self.log: MetricsLog | None = None

    @classmethod
    def create(
        cls, path: Path, config: "RunConfig", *, on_warning: OnWarning = _log
    ) -> "RunFolder":
        """A new run, owned by this process. What exists already is never overwritten."""
        try:
            with explained("making the run folder", path):
                path.mkdir()
        except RunFolderError as error:
            raise _cannot_create(path) or error from error.__cause__
        return cls(path, on_warning=on_warning)._begin(config)

    @classmethod
    def create_next(
        cls, parent: Path, config: "RunConfig", *, on_warning: OnWarning = _log
    ) -> "RunFolder":
        """A new run named TASK-METHOD-N in `parent`, with the first N that is free. Processes that
        race get different ones.
        """
        with explained("making the run folder", parent):
            make_folder(parent)
            for number in itertools.count(1):
                path = parent / f"{_slug(config.task)}-{_slug(config.method)}-{number}"
                try:
                    path.mkdir()
                except FileExistsError:
                    continue
                break
        return cls(path, on_warning=on_warning)._begin(config)

    @classmethod
    def open(cls, path: Path, *, on_warning: OnWarning = _log) -> "RunFolder":
        """A run that exists, for reading. `acquire` makes it one to write to."""
        missing = (
            "no such folder"
            if not path.exists()
            else "a file"
            if not path.is_dir()
            else f"no {CONFIG} in it"
        )
        if not (path / CONFIG).is_file():
            raise RunFolderError(
                f"the run folder {path}",
                got=missing,
                expected=f"a folder with a {CONFIG}",
                fix="give the folder that 'scorebed train' has named.",
            )
        return cls(path, on_warning=on_warning)

    def acquire(self) -> "RunFolder":
        """Become the one process that writes here, or raise `FolderInUseError` at once. Clears up
        after a killed owner.
        """
        if not self._lock.held:
            self._lock.acquire()
            with explained("clearing up", self.path):
                remove_leftovers(self.path)
                self._drop_torn_line()
        return self

    def release(self) -> None:
        """Give up ownership."""
        self._lock.release()

    def __enter__(self) -> "RunFolder":
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def config(self) -> "RunConfig":
        """The resolved configuration."""
        from scorebed.runs.config import from_values, read_sealed_toml

        return from_values(read_sealed_toml(self.path / CONFIG))

    def checkpoint_folder(self, stage: str) -> Path:
        """Where the checkpoints of a stage are: what `Checkpoints` is to be given."""
        return (
            self.path / "checkpoints" / _plain(stage, "the name of a stage", r"[a-z0-9][a-z0-9-]*")
        )

    def write_json_atomic(self, name: str, value: Any) -> None:
        """Write a JSON file, whole or not at all. Numbers that are not finite become null."""
        self._need_ownership()
        whole = seal.sealed(value) if isinstance(value, Mapping) else value
        replace_file(self._json_path(name), (strict_json.dumps(whole, indent=2) + "\n").encode())

    def read_json(self, name: str) -> Json:
        """The value of a JSON file of the run."""
        path = self._json_path(name)
        with explained("reading", path):
            data = path.read_bytes()
        try:
            return seal.unsealed(strict_json.loads(data))
        except ValueError as error:
            raise RunFolderError(
                str(path),
                got=f"'{error}'",
                expected="strict JSON, as it was written",
                fix="delete it and run the command that makes it.",
            ) from error

    def write_env(self) -> None:
        """Record the versions and the class of machine in `env.json`."""
        self.write_json_atomic(ENV, environment())

    def append_metrics(self, record: Mapping[str, Any]) -> None:
        """Add a line with at least a `stage` and a `step`; it is on the disk when this returns,
        some milliseconds later.

        For once per block of steps. Append before the checkpoint of the same step is saved, so that
        a resumed curve has no gap."""
        self._need_ownership()
        stage, step = record.get("stage"), record.get("step")
        require(
            isinstance(stage, str) and isinstance(step, int),
            "a record of metrics",
            got=f"stage={stage!r}, step={step!r}",
            expected="a string and a whole number",
            fix="name the stage and the step of every record.",
        )
        line = (strict_json.dumps(seal.sealed(record)) + "\n").encode()
        path = self.path / METRICS
        with explained("writing", path, needed=len(line)), path.open("ab", buffering=0) as file:
            before = file.tell()
            try:
                written = file.write(line)
                while written < len(line):
                    written += file.write(line[written:])
                os.fsync(file.fileno())
            except BaseException:
                file.truncate(before)  # half a line would spoil the one after it
                raise
        if self.log is not None:
            self.log.add(seal.unsealed(strict_json.loads(line)))

    def read_metrics(self, stage: str | None = None) -> list[dict[str, Json]]:
        """The records of one stage or of all, in order. A last line that a crash has torn is left
        out.
        """
        records = (record for _, record in self._metric_lines())
        return [record for record in records if stage is None or record["stage"] == stage]

    def note_seconds(self, stage: str, seconds: float) -> None:
        """How long a stage without steps took, in place of what was noted of it in a life that
        ended before its result was kept.
        """
        self.truncate_metrics(stage, 0)
        self.append_metrics({"stage": stage, "step": 1, "seconds": seconds})

    def seconds_by_stage(self) -> dict[str, float]:
        """Seconds of every stage: the last record of each says how long it has taken so far, over
        all interruptions.
        """
        metrics: Any = self.read_metrics()
        return {str(each["stage"]): round(float(each["seconds"]), 2) for each in metrics}

    def truncate_metrics(self, stage: str, step: int) -> None:
        """Drop the records of a stage past `step`, at which it resumes (−1: it starts again), so
        that none comes twice.
        """
        self._need_ownership()
        lines = self._metric_lines()
        kept = [each for each in lines if each[1]["stage"] != stage or each[1]["step"] <= step]
        if len(kept) < len(lines):
            replace_file(self.path / METRICS, b"".join(line for line, _ in kept))
            if self.log is not None:
                self.log.begin(stage, [record for _, record in kept if record["stage"] == stage])

    def _begin(self, config: "RunConfig") -> "RunFolder":
        from scorebed.runs.config import to_toml

        try:
            self.acquire()
            replace_file(self.path / CONFIG, seal.sealed_text(to_toml(config)))
            with explained("making the run folder", self.path):
                sync_folder(self.path.parent)
        except BaseException:
            self.release()
            shutil.rmtree(self.path, ignore_errors=True)
            raise
        return self

    def _need_ownership(self) -> None:
        require(
            self._lock.held,
            f"writing to {self.path}",
            got="a folder opened for reading",
            expected="one that this process owns",
            fix="call acquire() first.",
        )

    def _json_path(self, name: str) -> Path:
        return self.path / _plain(
            name, "the name of a JSON file", r"[A-Za-z0-9][A-Za-z0-9._-]*\.json"
        )

    def _metric_lines(self) -> list[tuple[bytes, dict[str, Json]]]:
        """Lines and their records. A line that was ended but cannot be read is skipped with a
        warning.
        """
        path = self.path / METRICS
        if not path.exists():
            return []
        with explained("reading", path):
            data = path.read_bytes()
        found = []
        if data and not data.endswith(b"\n"):
            self._warn(f"The last line of {path} is torn, as by a crash, and was left out.")
        for number, line in enumerate(data.split(b"\n")[:-1], start=1):
            try:
                record = seal.unsealed(strict_json.loads(line))
                good = (
                    isinstance(record, dict)
                    and isinstance(record["stage"], str)
                    and isinstance(record["step"], int)
                )
            except (ValueError, KeyError):
                good = False
            if good:
                found.append((line + b"\n", record))
            else:
                self._warn(f"Skipped line {number} of {path}: it is no record of metrics.")
        return found

    def _drop_torn_line(self) -> None:
        path = self.path / METRICS
        if path.exists():
            data = path.read_bytes()
            whole = data.rfind(b"\n") + 1
            if whole < len(data):
                os.truncate(path, whole)


def _cannot_create(path: Path) -> RunFolderError | None:
    """Why a folder could not be made, where there is more to say than the system's word for it."""
    if path.exists() or path.is_symlink():
        return RunFolderError(
            f"the run folder {path}",
            got="one that exists",
            expected="a new one, because results are never overwritten",
            fix="choose another name, or go on with 'scorebed resume' if it is a run.",
        )
    if not path.parent.is_dir():
        return RunFolderError(
            f"the run folder {path}",
            got="a missing folder above it",
            expected=f"the folder {path.parent}",
            fix=f"make {path.parent} first.",
        )
    return None


def _slug(name: str) -> str:
    """The name of a task or method as part of a folder's: of FILE.py:NAME, the NAME."""
    return re.sub(r"[^a-z0-9]+", "-", name.rpartition(":")[2].lower()).strip("-")[:80] or "task"


def _plain(name: str, what: str, pattern: str) -> str:
    """File names come from us and stay inside of the folder."""
    require(
        re.fullmatch(pattern, name) is not None,
        what,
        got=repr(name),
        expected=f"one like {pattern}",
        fix="use letters, digits and hyphens.",
    )
    return name
