"""Experiments as text: a table of the steps for a spreadsheet, and JSON with every event, which can
be read back.

What is read back is a stranger's file: strict JSON, every field checked, and every event put
through the rules of `state.after` before anything is stored."""

import base64
import csv
import dataclasses
import datetime
import functools
import hashlib
import io
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Never

from scorebed.errors import InvalidValueError, NewerFormatError, ScorebedError
from scorebed.runs import strict_json
from scorebed.runs.durable import replace_file
from scorebed.session.entry import check_design, check_limits, check_outcome, check_plan, check_text
from scorebed.session.state import (
    CORRECTED,
    KINDS,
    LIMITED,
    LONGEST_PLAN,
    NOTED,
    OBSERVED,
    PLANNED,
    PROPOSED,
    REFINED,
    Event,
    State,
    after,
    limits_data,
)
from scorebed.session.store import FIELDS, Experiment
from scorebed.tasks.base import Task

FORMAT, VERSION = "scorebed-experiment", 2  # 1 knew no changed circumstances and had no policies
LARGEST = 2**31
OPTIONAL = {"wanted"}  # of a proposal: only where it is not what is proposed
_HEX = re.compile("[0-9a-f]{16,64}")


def written(text: str, path: Path | str | None) -> str:
    """A text, also written to a file at once if one is named."""
    if path is not None:
        replace_file(Path(path), text.encode())
    return text


def to_csv(task: Task, state: State) -> str:
    """One row per step; empty cells where a trial was skipped. Notes are in the row of the step
    that was next.
    """
    out = io.StringIO()
    table = csv.writer(out, lineterminator="\n")
    designs, outcomes = task.designs.quantities, task.outcomes
    table.writerow(
        [
            "step",
            "status",
            *(f"proposed {q}" for q in designs),
            *map(str, designs),
            *map(str, outcomes),
            "time",
            "notes",
        ]
    )
    for record in state.records:
        status = "skipped" if record.skipped else "corrected" if record.corrected else "measured"
        used, y = record.used or ("",) * len(designs), record.y or ("",) * len(outcomes)
        notes = "; ".join(note.text for note in state.notes if note.step == record.step)
        # A spreadsheet would take a text that starts like this for a formula.
        safe = " " + notes if notes.startswith(("=", "+", "-", "@", "\t")) else notes
        table.writerow([record.step, status, *record.proposal.design, *used, *y, record.at, safe])
    return out.getvalue()


class Imported(NamedTuple):
    """What a file of an exported experiment holds: its fields, its events, and refined policies by
    their hash.
    """

    values: dict[str, Any]
    events: list[Event]
    policies: dict[str, bytes]


def to_json(experiment: Experiment, events: Sequence[Event], kept: Callable[[str], bytes]) -> str:
    """The experiment, all of its events, and the policies that were refined in it (`kept` finds
    them by their hash).
    """
    described = {name: getattr(experiment, name) for name in FIELDS if name != "id"}
    rows = [dataclasses.asdict(event) for event in events]
    refined = dict.fromkeys(event.data["policy"] for event in events if event.kind == REFINED)
    policies = {sha256: base64.b64encode(kept(sha256)).decode() for sha256 in refined}
    document = {
        "format": FORMAT,
        "version": VERSION,
        "experiment": described,
        "events": rows,
        "policies": policies,
    }
    return strict_json.dumps(document, indent=2) + "\n"


def read_json(task: Task, text: str | bytes) -> Imported:
    """An experiment of `task`, checked; raises `InvalidValueError` for anything else."""
    try:
        document = strict_json.loads(text)
    except ValueError as error:
        _refuse(f"'{error}'")
    if (
        not isinstance(document, dict)
        or document.get("format") != FORMAT
        or type(document.get("version")) is not int
    ):
        _refuse("something else")
    if document["version"] > VERSION:
        raise NewerFormatError(
            "an exported experiment",
            got=f"version {document['version']}",
            expected=f"at most {VERSION}",
            fix="update scorebed.",
        )
    values, rows = document.get("experiment"), document.get("events")
    if (
        not isinstance(values, dict)
        or not isinstance(rows, list)
        or set(values) != set(FIELDS) - {"id"}
    ):
        _refuse("missing or unknown fields")
    for name, value in values.items():
        whole = name in ("seed", "horizon")
        if not (
            type(value) is int and 0 <= value < LARGEST
            if whole
            else isinstance(value, str) and value.isprintable()
        ):
            _refuse(f"{name} = {value!r:.40}")
    _require_time(values["created"])
    if not _HEX.fullmatch(values["fingerprint"]) or not _HEX.fullmatch(values["policy_sha256"]):
        _refuse("hashes that are none")
    if values["horizon"] != task.horizon:
        _refuse(f"a horizon of {values['horizon']} where the task has {task.horizon}")
    events, state = [], State(values["horizon"])
    for number, row in enumerate(rows, start=1):
        try:
            event = _event(task, row)
            state = after(state, event)
        except ScorebedError as error:
            _refuse(f"event {number}: {error}")
        events.append(event)
    return Imported(values, events, _policies(document.get("policies", {}), events))


def _policies(given: Any, events: Sequence[Event]) -> dict[str, bytes]:
    """The files of refined policies, each with the hash that its event names."""
    if not isinstance(given, dict):
        _refuse("policies that are none")
    found = {}
    for sha256 in dict.fromkeys(event.data["policy"] for event in events if event.kind == REFINED):
        try:
            found[sha256] = base64.b64decode(_text(given.get(sha256)), validate=True)
        except ValueError:
            _refuse(f"the policy {sha256[:16]}")
        if hashlib.sha256(found[sha256]).hexdigest() != sha256:
            _refuse(f"the policy {sha256[:16]}, which is another")
    return found


def _event(task: Task, row: Any) -> Event:
    names = {field.name for field in dataclasses.fields(Event)}
    if (
        not isinstance(row, dict)
        or set(row) != names
        or row["kind"] not in KINDS
        or not isinstance(row["data"], dict)
    ):
        _refuse("missing or unknown fields")
    if (
        type(row["sequence"]) is not int
        or type(row["step"]) is not int
        or not 0 <= row["step"] <= LONGEST_PLAN + 1
    ):
        _refuse("numbers that are none")
    _require_time(row["at"])
    if row["token"] is not None:
        check_text("a token", _text(row["token"]), longest=200)
    kind, data = row["kind"], row["data"]
    checks = _checks(task).get(kind, {})
    if not set(checks) - OPTIONAL <= set(data) <= set(checks):
        _refuse(f"the data of '{kind}'")
    read = {name: check(data[name]) for name, check in checks.items() if name in data}
    if kind == LIMITED and (read["low"], read["high"]) != (None, None):
        read = limits_data(check_limits(task, read["low"], read["high"]))
    return Event(**{**row, "data": read})


def _checks(task: Task) -> dict[str, dict[str, Callable[[Any], Any]]]:
    """What the data of each kind of event must be; kinds that are not here have none."""
    measured: dict[str, Callable[[Any], Any]] = {
        "used": functools.partial(check_design, task),
        "y": functools.partial(check_outcome, task),
    }
    return {
        PROPOSED: {name: functools.partial(check_design, task) for name in ("design", "wanted")},
        OBSERVED: measured,
        CORRECTED: measured,
        NOTED: {"text": lambda value: check_text("a note", _text(value), longest=2000, lines=True)},
        LIMITED: {"low": _row, "high": _row},
        PLANNED: {"horizon": check_plan},
        REFINED: {
            "policy": _hash,
            "horizon": check_plan,
            "by": lambda value: (
                value if value in ("score", "pce") else _refuse("an unknown way to refine")
            ),
            "steps": lambda value: (
                value if type(value) is int and value >= 0 else _refuse("a number of steps")
            ),
            "seconds": _number,
            "before": lambda value: None if value is None else _remaining(value),
            "after": _remaining,
            "information": _number,
        },
    }


def _row(value: Any) -> Any:
    return value if value is None or isinstance(value, list) else _refuse("limits that are none")


def _number(value: Any) -> float:
    return float(value) if type(value) in (int, float) else _refuse("a number that is none")


def _hash(value: Any) -> str:
    return (
        value
        if _HEX.fullmatch(_text(value)) and len(value) == 64
        else _refuse("a hash that is none")
    )


def _remaining(value: Any) -> dict[str, float | None]:
    if not isinstance(value, dict) or set(value) != {"lower", "upper", "se"}:
        _refuse("bounds that are none")
    return {
        name: None if name == "upper" and each is None else _number(each)
        for name, each in value.items()
    }


def _text(value: Any) -> str:
    return value if isinstance(value, str) else _refuse("a text that is none")


def _require_time(value: Any) -> None:
    try:
        datetime.datetime.fromisoformat(_text(value))
    except ValueError:
        _refuse(f"the time {value!r:.40}")


def _refuse(got: str) -> Never:
    raise InvalidValueError(
        "an exported experiment",
        got=got,
        expected="JSON that scorebed has exported",
        fix="export the experiment again.",
    )
