"""Units of work: each is carried out once, under a lock, and leaves a small record.

A record says by what settings it was made; a unit whose record agrees with what is asked is not
carried out again, whether or not its run folder is still there, and one that does not agree is
refused. A unit whose training diverges leaves a record that says so, and the others go on. Several
processes with the same command share the work: a unit that another process has in hand is passed
over and looked at again at the end.
"""

import abc
import dataclasses
import hashlib
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from scorebed.errors import FolderInUseError, InvalidValueError, NewerFormatError
from scorebed.paper.study import Study
from scorebed.runs import seal, strict_json
from scorebed.runs.durable import explained, make_folder, replace_file
from scorebed.runs.lock import Lock
from scorebed.runs.stage import Progress
from scorebed.training.fit import TrainingStoppedError

if TYPE_CHECKING:
    from scorebed.paper.rows import TableRow

FORMAT = 1
DIVERGED = "diverged"
LOOK_AGAIN = 2.0  # seconds between two looks at a unit that another process has in hand


class UnitPlan(NamedTuple):
    """What a unit is going to be, for `--dry-run`: its likelihood evaluations, and its sizes in
    words.
    """

    nle: int
    words: str


class Unit(abc.ABC):
    """A piece of an item, with a name that is a file name."""

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """Its name, the same in every study; `record_name` adds what the study adds."""

    @abc.abstractmethod
    def definition(self) -> dict[str, Any]:
        """What it is, in JSON: a record of another definition does not count."""

    @abc.abstractmethod
    def estimate(self, study: Study) -> UnitPlan:
        """What it will cost."""

    def timed_as(self, study: Study) -> "TableRow | None":
        """The row whose steps are timed for it by --hours; None if there is none like it."""
        del study
        return None

    @abc.abstractmethod
    def carry_out(self, study: Study, *, progress: Progress) -> dict[str, Any]:
        """Do the work, or what is left of it, and give the result in JSON."""


class UnitRecord(NamedTuple):
    """What a unit came to, with the settings that it was made by."""

    name: str
    settings: Mapping[str, Any]
    result: Mapping[str, Any]

    @property
    def diverged(self) -> str | None:
        """Why its training stopped before the end; None if it did not. There is no more of it."""
        found = self.result.get(DIVERGED)
        return None if found is None else str(found)


def record_name(unit: Unit, study: Study) -> str:
    """The name of a unit in a study: that of its record, its run folder and its row."""
    return f"{unit.name}{study.suffix}"


def find_record(unit: Unit, study: Study) -> UnitRecord | None:
    """The record of a unit, if there is one; refused if it was made by other settings."""
    found = _read(unit, study)
    if found is not None:
        _require_same(_path(unit, study), found.settings, _settings(unit, study))
    return found


def study_of_records(units: Sequence[Unit], study: Study) -> Study:
    """The study with the settings of the first record that there is, to show what was made before;
    as it is where there is none.
    """
    for unit in units:
        found = _read(unit, study)
        if found is not None:
            names = {"set": "overrides"}
            settings = {names.get(k, k): v for k, v in found.settings.items() if k != "unit"}
            settings["overrides"] = tuple(settings["overrides"])
            return dataclasses.replace(study, **settings)
    return study


def _read(unit: Unit, study: Study) -> UnitRecord | None:
    path = _path(unit, study)
    return read_record(path) if path.is_file() else None


def read_record(path: Path) -> UnitRecord:
    """The record in a file."""
    with explained("reading", path):
        data = path.read_bytes()
    try:
        values = seal.unsealed(strict_json.loads(data))
        number, settings, result = values["format"], values["settings"], values["result"]
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidValueError(
            f"the record {path}",
            got=f"'{error}'",
            expected="one that `scorebed paper` wrote",
            fix="delete it, and the unit is carried out again.",
        ) from error
    if number > FORMAT:
        raise NewerFormatError(
            f"the record {path}",
            got=f"format {number}",
            expected=f"at most format {FORMAT}",
            fix="install a newer version of scorebed.",
        )
    return UnitRecord(path.stem, settings, result)


def finished(units: Sequence[Unit], study: Study) -> dict[str, UnitRecord]:
    """The records of finished units that there are, by the names of their units."""
    return {name: each for name, each in _records(units, study).items() if each.diverged is None}


def diverged(units: Sequence[Unit], study: Study) -> dict[str, str]:
    """Why units stopped before their end, by the names of those that did."""
    found = {name: each.diverged for name, each in _records(units, study).items()}
    return {name: reason for name, reason in found.items() if reason is not None}


def _records(units: Sequence[Unit], study: Study) -> dict[str, UnitRecord]:
    found = {unit.name: find_record(unit, study) for unit in units}
    return {name: record for name, record in found.items() if record is not None}


def carry_out(units: Sequence[Unit], study: Study, *, progress: Progress) -> dict[str, UnitRecord]:
    """All units, each carried out by this process or by another, and the records by name of those
    that did not diverge.
    """
    for folder in (study.runs_folder, study.records_folder):
        make_folder(folder)
    finished(units, study)  # refuse what does not agree before anything is begun
    found: dict[str, UnitRecord] = {}
    waiting = list(units)
    while waiting:
        left = []
        for unit in waiting:
            record = _carried_out(unit, study, progress=progress)
            if record is None:
                left.append(unit)
            else:
                found[unit.name] = record
        if left:
            time.sleep(LOOK_AGAIN)
        waiting = left
    return {unit.name: found[unit.name] for unit in units if found[unit.name].diverged is None}


def _carried_out(unit: Unit, study: Study, *, progress: Progress) -> UnitRecord | None:
    """A unit's record, made if there is none; None if another process has it in hand."""
    found = find_record(unit, study)
    if found is not None:
        return found
    lock = Lock(study.runs_folder / f"{record_name(unit, study)}.lock")
    try:
        lock.acquire()
    except FolderInUseError:
        return None
    try:
        found = find_record(unit, study)  # another process may have finished it meanwhile
        if found is None:
            found = _keep(unit, study, _result(unit, study, progress=progress))
        return found
    finally:
        lock.release()


def _result(unit: Unit, study: Study, *, progress: Progress) -> Mapping[str, Any]:
    """What a unit came to, or why its training stopped."""
    try:
        return unit.carry_out(study, progress=progress)
    except TrainingStoppedError as error:
        progress.begin(record_name(unit, study), 0, 0)
        progress.end(f"diverged: {error}")
        return {DIVERGED: str(error)}


def _keep(unit: Unit, study: Study, result: Mapping[str, Any]) -> UnitRecord:
    settings = _settings(unit, study)
    values = {"format": FORMAT, "hash": _hash(settings), "settings": settings, "result": result}
    text = strict_json.dumps(seal.sealed(values), indent=1) + "\n"
    replace_file(_path(unit, study), text.encode())
    plain: Any = strict_json.loads(text)
    return UnitRecord(record_name(unit, study), plain["settings"], plain["result"])


def _path(unit: Unit, study: Study) -> Path:
    return study.records_folder / f"{record_name(unit, study)}.json"


def _settings(unit: Unit, study: Study) -> dict[str, Any]:
    return {**study.settings(), "unit": strict_json.plain(unit.definition())}


def _hash(settings: Mapping[str, Any]) -> str:
    return hashlib.sha256(strict_json.dumps(dict(sorted(settings.items()))).encode()).hexdigest()


def _require_same(path: Path, found: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    if _hash(found) == _hash(wanted):
        return
    key = next(k for k in (*wanted, *found) if found.get(k) != wanted.get(k))
    raise InvalidValueError(
        f"the record {path}",
        got=f"one with {key} = {found.get(key)}",
        expected=f"{key} = {wanted.get(key)}",
        fix="give the settings that it was made by, another folder by --out or --records, "
        "or delete it.",
    )
