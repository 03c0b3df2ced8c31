"""Experiments in and out: a table of the steps for a spreadsheet, JSON with every event that can be
read back, and a summary in plain values for `--json` and the page.

A file that is read back may be a stranger's: strict JSON, every field checked, and every event put
through the rules of `events.after` before anything is stored."""

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
from scorebed.runs import seal, strict_json
from scorebed.runs.durable import explained, replace_file
from scorebed.session.events import (
    LONGEST_HORIZON,
    Event,
    ExperimentState,
    Kind,
    RefinedBy,
    after,
    limits_data,
)
from scorebed.session.posterior import QUANTILES, Beliefs, MarginalSummary
from scorebed.session.store import FIELDS, Experiment
from scorebed.session.validation import (
    LONGEST_TOKEN,
    SEEDS,
    check_design,
    check_horizon,
    check_limits,
    check_note,
    check_outcome,
    check_text,
)
from scorebed.session.what_if import Expectation
from scorebed.tasks.base import Task

# 1 had no changed circumstances and no policies, 2 had one pending design; a file has the oldest
# version that can read it.
FORMAT, VERSION, ONE_AT_A_TIME = "scorebed-experiment", 3, 2
# Of a proposal: what the policy wanted, if that is not what is proposed, and how many designs were
# asked for together; of an outcome: which proposal it answers, if not the oldest.
OPTIONAL = {"wanted", "together", "proposal"}
_HEX = re.compile("[0-9a-f]{16,64}")


def written(text: str, path: Path | str | None) -> str:
    """A text, also written to a file if one is named, whole or not at all."""
    if path is not None:
        replace_file(Path(path), text.encode())
    return text


def to_csv(task: Task, state: ExperimentState) -> str:
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
    """What an exported experiment holds: its fields, its events, and refined policies by hash."""

    values: dict[str, Any]
    events: list[Event]
    policies: dict[str, bytes]


def to_json(experiment: Experiment, events: Sequence[Event], kept: Callable[[str], bytes]) -> str:
    """The experiment, all of its events, and the policies refined in it (`kept` finds them by
    hash).
    """
    described = {name: getattr(experiment, name) for name in FIELDS if name != "id"}
    rows = [dataclasses.asdict(event) for event in events]
    refined = dict.fromkeys(event.data["policy"] for event in events if event.kind == Kind.REFINED)
    policies = {sha256: base64.b64encode(kept(sha256)).decode() for sha256 in refined}
    document = {
        "format": FORMAT,
        "version": VERSION if any("together" in e.data for e in events) else ONE_AT_A_TIME,
        "experiment": described,
        "events": rows,
        "policies": policies,
    }
    return strict_json.dumps(seal.sealed(document), indent=2) + "\n"


def read_json(task: Task, text: str | bytes | Path) -> Imported:
    """An experiment of `task` from a text or a file, checked; `InvalidValueError` for anything
    else.
    """
    if isinstance(text, Path):
        with explained("reading", text):
            text = text.read_bytes()
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
    try:
        document = seal.unsealed(document)
    except ValueError as error:
        _refuse(f"'{error}'")
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
            type(value) is int and 0 <= value < SEEDS
            if whole
            else isinstance(value, str) and value.isprintable()
        ):
            _refuse(f"{name} = {value!r:.40}")
    _require_time(values["created"])
    if not _HEX.fullmatch(values["fingerprint"]) or not _HEX.fullmatch(values["policy_sha256"]):
        _refuse("something that is not a hash")
    if values["horizon"] != task.horizon:
        _refuse(f"a horizon of {values['horizon']} where the task has {task.horizon}")
    events, state = [], ExperimentState(values["horizon"])
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
        _refuse("something that is not policies")
    found = {}
    for sha256 in dict.fromkeys(
        event.data["policy"] for event in events if event.kind == Kind.REFINED
    ):
        try:
            found[sha256] = base64.b64decode(_text(given.get(sha256)), validate=True)
        except ValueError:
            _refuse(f"the policy {sha256[:16]}")
        if hashlib.sha256(found[sha256]).hexdigest() != sha256:
            _refuse(f"another policy than {sha256[:16]}")
    return found


def _event(task: Task, row: Any) -> Event:
    names = {field.name for field in dataclasses.fields(Event)}
    if (
        not isinstance(row, dict)
        or set(row) != names
        or row["kind"] not in list(Kind)
        or not isinstance(row["data"], dict)
    ):
        _refuse("missing or unknown fields")
    if (
        type(row["sequence"]) is not int
        or type(row["step"]) is not int
        or not 0 <= row["step"] <= LONGEST_HORIZON + 1
    ):
        _refuse("something that is not a step")
    _require_time(row["at"])
    if row["token"] is not None:
        check_text("a token", _text(row["token"]), longest=LONGEST_TOKEN)
    kind, data = row["kind"], row["data"]
    checks = _checks(task).get(kind, {})
    if not set(checks) - OPTIONAL <= set(data) <= set(checks):
        _refuse(f"the data of '{kind}'")
    read = {name: check(data[name]) for name, check in checks.items() if name in data}
    if kind == Kind.LIMITED and (read["low"], read["high"]) != (None, None):
        read = limits_data(check_limits(task, read["low"], read["high"]))
    return Event(**{**row, "data": read})


def _checks(task: Task) -> dict[str, dict[str, Callable[[Any], Any]]]:
    """What the data of each kind of event must be; kinds that are not here have none."""
    measured: dict[str, Callable[[Any], Any]] = {
        "used": functools.partial(check_design, task),
        "y": functools.partial(check_outcome, task),
    }
    return {
        Kind.PROPOSED: {
            **dict.fromkeys(("design", "wanted"), functools.partial(check_design, task)),
            "together": _whole,
        },
        Kind.OBSERVED: {**measured, "proposal": _whole},
        Kind.SKIPPED: {"proposal": _whole},
        Kind.CORRECTED: measured,
        Kind.NOTED: {"text": lambda value: check_note(_text(value))},
        Kind.LIMITED: {"low": _row, "high": _row},
        Kind.PLANNED: {"horizon": check_horizon},
        Kind.REFINED: {
            "policy": _hash,
            "horizon": check_horizon,
            "by": lambda by: by if by in list(RefinedBy) else _refuse("an unknown way to refine"),
            "steps": _count,
            "seconds": _number,
            "before": lambda value: None if value is None else _remaining(value),
            "after": _remaining,
            "information": _number,
        },
    }


def _count(value: Any) -> int:
    return value if type(value) is int and value >= 0 else _refuse("a number of steps")


def _whole(value: Any) -> int:
    return value if type(value) is int and value >= 1 else _refuse("something that is not a number")


def _row(value: Any) -> Any:
    return (
        value
        if value is None or isinstance(value, list)
        else _refuse("something that is not limits")
    )


def _number(value: Any) -> float:
    return (
        float(value) if type(value) in (int, float) else _refuse("something that is not a number")
    )


def _hash(value: Any) -> str:
    return (
        value
        if _HEX.fullmatch(_text(value)) and len(value) == 64
        else _refuse("something that is not a hash")
    )


def _remaining(value: Any) -> dict[str, float | None]:
    if not isinstance(value, dict) or set(value) != {"lower", "upper", "se"}:
        _refuse("something that is not bounds")
    return {
        name: None if name == "upper" and each is None else _number(each)
        for name, each in value.items()
    }


def _text(value: Any) -> str:
    return value if isinstance(value, str) else _refuse("something that is not text")


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


# ---- a summary


class _Inferred(NamedTuple):
    """What a summary says of the posterior; None where there is none."""

    posterior: list[Any] | None = None
    information: float | None = None
    ess: float | None = None
    particles: int | None = None
    problem: str | None = None


def summarise(
    experiment: Experiment,
    path: Path,
    state: ExperimentState,
    beliefs: Beliefs,
    expected: Expectation | None,
    circumstances: Sequence[str] = (),
    warnings: Sequence[str] = (),
    scope: str | None = None,
    stopping: str | None = None,
) -> dict[str, Any]:
    """Where an experiment stands and what it says, without the particles. `problem` is a sentence
    where there is no posterior, or one not to be trusted.
    """
    try:
        posterior = beliefs.posterior(state.records)
    except ScorebedError as error:
        found = _Inferred(problem=str(error))
    else:
        found = _Inferred(
            posterior=[plain(m) for m in posterior.marginals],
            information=posterior.information,
            ess=posterior.ess,
            particles=len(posterior.theta),
            problem=posterior.warning,
        )
    return {
        **{name: getattr(experiment, name) for name in ("name", "run", "task", "seed", "created")},
        "db": str(path),
        "sequence": state.sequence,
        "step": state.step,
        "horizon": state.horizon,
        "trained_horizon": experiment.horizon,
        "finished": state.finished,
        "proposal": _values(state.proposal),
        "records": [_values(record) for record in state.records],
        "notes": [_values(note) for note in state.notes],
        "limits": _values(state.limits),
        "refinement": _values(state.refinement),
        "circumstances": list(circumstances),
        "warnings": list(warnings),
        **found._asdict(),
        "scope": scope,
        "stopping": stopping,
        "expected": _values(expected),
    }


def _values(part: Any) -> dict[str, Any] | None:
    return None if part is None else dataclasses.asdict(part)


def plain(marginal: MarginalSummary) -> dict[str, Any]:
    """A marginal with its name and unit."""
    quantity = marginal.quantity
    quantiles = {
        f"{level:g}": value for level, value in zip(QUANTILES, marginal.quantiles, strict=True)
    }
    return {
        "name": quantity.name,
        "unit": quantity.unit,
        "nuisance": marginal.nuisance,
        "mean": marginal.mean,
        "sd": marginal.sd,
        "quantiles": quantiles,
    }
