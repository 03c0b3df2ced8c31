"""What the events of an experiment amount to: `after(state, event)` is the only rule book, of a live experiment and of an import.

    proposed → observed | skipped → proposed → … → finished,   with undone, corrected and noted anywhere

Events are never changed or deleted, so a correction does not rewrite the designs that were proposed between: those measured stay
as they are, and the one that is pending is withdrawn, because the policy would now propose another.
"""

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, TypeAlias

from scorebed.errors import ConflictError

PROPOSED, OBSERVED, SKIPPED, UNDONE, CORRECTED, NOTED, FINISHED = KINDS = (
    "proposed", "observed", "skipped", "undone", "corrected", "noted", "finished",
)  # fmt: skip

Vector: TypeAlias = tuple[float, ...]


@dataclasses.dataclass(frozen=True)
class Event:
    """One row of the history. `sequence` counts from 1 within the experiment; `data` is a JSON object."""

    sequence: int
    kind: str
    step: int
    at: str
    data: Mapping[str, Any]
    token: str | None = None


@dataclasses.dataclass(frozen=True)
class Proposal:
    """A design that the policy proposed for a step. `id` is the sequence number of its event."""

    id: int
    step: int
    design: Vector
    at: str


@dataclasses.dataclass(frozen=True)
class Record:
    """A step that was taken: the design proposed, the one used, and the outcome; the last two are None if it was skipped."""

    step: int
    proposal: Proposal
    used: Vector | None
    y: Vector | None
    at: str
    sequence: int
    corrected: bool = False
    outdated: bool = False
    """Whether an earlier step was corrected since, so that the policy would propose another design here."""

    @property
    def skipped(self) -> bool:
        """Whether the trial failed and has no outcome."""
        return self.y is None


@dataclasses.dataclass(frozen=True)
class Note:
    """A remark, at the step that was next when it was made."""

    step: int
    text: str
    at: str


@dataclasses.dataclass(frozen=True)
class Received:
    """What came with a client's token."""

    step: int
    used: Vector
    y: Vector
    sequence: int


@dataclasses.dataclass(frozen=True)
class State:
    """Where an experiment stands after its first `sequence` events."""

    horizon: int
    sequence: int = 0
    records: tuple[Record, ...] = ()
    proposal: Proposal | None = None
    finished: bool = False
    notes: tuple[Note, ...] = ()
    submissions: Mapping[str, Received] = dataclasses.field(default_factory=lambda: MappingProxyType({}))

    @property
    def step(self) -> int:
        """Number of the next step, from 1; horizon + 1 when all are taken."""
        return len(self.records) + 1

    @property
    def complete(self) -> bool:
        """Whether all steps are taken."""
        return self.step > self.horizon

    @property
    def measured(self) -> tuple[Record, ...]:
        """The records that have an outcome, in order: what the policy remembers and the posterior knows."""
        return tuple(record for record in self.records if not record.skipped)


def after(state: State, event: Event) -> State:
    """The state after one more event; `ConflictError` if it cannot follow."""
    _require(event.sequence == state.sequence + 1, f"event {event.sequence}", f"number {state.sequence + 1}")
    state = dataclasses.replace(state, sequence=event.sequence)
    if event.kind == NOTED:
        return dataclasses.replace(state, notes=(*state.notes, Note(event.step, event.data["text"], event.at)))
    if event.kind == UNDONE:
        return _undo(state, event)
    _require(not state.finished, f"'{event.kind}' after the end", "'undone', which takes the end back, or 'noted'")
    if event.kind == FINISHED:
        return dataclasses.replace(state, finished=True)
    if event.kind == CORRECTED:
        return _correct(state, event)
    _require(event.step == state.step <= state.horizon, f"'{event.kind}' of step {event.step}",
             f"one of step {state.step} of {state.horizon}")  # fmt: skip
    if event.kind == PROPOSED:
        _require(state.proposal is None, "a second proposal", "an outcome of the first")
        return dataclasses.replace(
            state, proposal=Proposal(event.sequence, event.step, tuple(event.data["design"]), event.at)
        )
    return _take(state, event)


def _require(condition: bool, got: str, expected: str) -> None:
    """Refuse an event that does not fit those before it."""
    if not condition:
        raise _conflict(got, expected)


def _conflict(got: str, expected: str) -> ConflictError:
    return ConflictError(
        "the next event of an experiment", got=got, expected=expected, fix="look at its history and try again."
    )


def _take(state: State, event: Event) -> State:
    """An outcome, or none because the trial failed."""
    proposal = state.proposal
    if proposal is None:
        raise _conflict(f"'{event.kind}' of step {event.step}", "a proposal before it")
    used, y = None, None
    submissions = state.submissions
    if event.kind == OBSERVED:
        used, y = tuple(event.data["used"]), tuple(event.data["y"])
        if event.token is not None:
            _require(event.token not in submissions, "a token that was used before", "a new one")
            known = Received(event.step, used, y, event.sequence)
            submissions = MappingProxyType({**submissions, event.token: known})
    record = Record(event.step, proposal, used, y, event.at, event.sequence)
    return dataclasses.replace(state, records=(*state.records, record), proposal=None, submissions=submissions)


def _undo(state: State, event: Event) -> State:
    """Take back the end, or else the last step. Its proposal is shown again, unless a correction has made it out of date."""
    if state.finished:
        return dataclasses.replace(state, finished=False)
    _require(bool(state.records) and event.step == len(state.records), f"'undone' of step {event.step}",
             f"that of the last step taken, {len(state.records)}")  # fmt: skip
    last = state.records[-1]
    return dataclasses.replace(state, records=state.records[:-1], proposal=None if last.outdated else last.proposal)


def _correct(state: State, event: Event) -> State:
    _require(1 <= event.step <= len(state.records) and not state.records[event.step - 1].skipped,
             f"'corrected' of step {event.step}", "a step that was measured")  # fmt: skip
    used, y = tuple(event.data["used"]), tuple(event.data["y"])
    index = event.step - 1
    changed = dataclasses.replace(state.records[index], used=used, y=y, corrected=True)
    later = tuple(dataclasses.replace(record, outdated=True) for record in state.records[index + 1 :])
    return dataclasses.replace(state, records=(*state.records[:index], changed, *later), proposal=None)
