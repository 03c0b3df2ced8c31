"""What the events of an experiment amount to: `after(state, event)` is the only rule book, of a
live experiment and of an import.

    proposed → observed | skipped → proposed → … → finished,   with the other kinds anywhere between

Events are never changed or deleted, so a correction does not rewrite the designs that were proposed
between: those measured stay as they are, and the one that is pending is withdrawn, because the
policy would now propose another. So it is with changed circumstances (limits of the designs, the
number of steps, a refined policy): the pending design stays if it would be proposed again. Steps
and changes are undone in the reverse of the order in which they came."""

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, TypeAlias

from scorebed.errors import ConflictError

PROPOSED, OBSERVED, SKIPPED, UNDONE, CORRECTED, NOTED, FINISHED, LIMITED, PLANNED, REFINED = (
    KINDS
) = (
    "proposed",
    "observed",
    "skipped",
    "undone",
    "corrected",
    "noted",
    "finished",
    "limited",
    "planned",
    "refined",
)
CHANGES = (LIMITED, PLANNED, REFINED)
LONGEST_PLAN = 10_000  # steps of one experiment

Vector: TypeAlias = tuple[float, ...]


@dataclasses.dataclass(frozen=True)
class Event:
    """One row of the history. `sequence` counts from 1 within the experiment; `data` is a JSON
    object.
    """

    sequence: int
    kind: str
    step: int
    at: str
    data: Mapping[str, Any]
    token: str | None = None


@dataclasses.dataclass(frozen=True)
class Limits:
    """Tighter limits of the designs of one experiment, coordinate by coordinate; None where there
    is none.
    """

    low: tuple[float | None, ...]
    high: tuple[float | None, ...]

    def nearest(self, design: Vector) -> Vector:
        """The allowed design that is nearest, coordinate by coordinate."""
        each = zip(design, self.low, self.high, strict=True)
        return tuple(
            low
            if low is not None and value < low
            else high
            if high is not None and value > high
            else value
            for value, low, high in each
        )


@dataclasses.dataclass(frozen=True)
class Proposal:
    """A design that was proposed for a step. `id` is the sequence number of its event.

    `wanted` is what the policy asked for, where the limits of the experiment do not allow it.
    """

    id: int
    step: int
    design: Vector
    at: str
    wanted: Vector | None = None


@dataclasses.dataclass(frozen=True)
class Record:
    """A step that was taken: the design proposed, the one used, and the outcome; the last two are
    None if it was skipped.
    """

    step: int
    proposal: Proposal
    used: Vector | None
    y: Vector | None
    at: str
    sequence: int
    corrected: bool = False
    outdated: bool = False
    """Whether an earlier step was corrected since, so that the policy would propose another design
    here.
    """

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
class Remaining:
    """What the remaining steps are expected to give, in nats: bounds, with the standard error of
    the lower one. The upper one is None where it is so much that particles cannot tell.
    """

    lower: float
    upper: float | None
    se: float

    def plain(self) -> dict[str, Any]:
        """For an event."""
        return dataclasses.asdict(self)


@dataclasses.dataclass(frozen=True)
class Refinement:
    """A policy that was refined at a step, for `horizon` steps in all: its hash, how it came about,
    and what it adds.

    `before` and `after` are of the same draws; `before` is None where the policy before had no
    designs for the steps left. `information` is what was known by then, in nats."""

    step: int
    horizon: int
    policy: str
    by: str
    steps: int
    seconds: float
    before: Remaining | None
    after: Remaining
    information: float
    outdated: bool = False
    """Whether a step before it was corrected since, so that it was made for other data."""


@dataclasses.dataclass(frozen=True)
class Change:
    """Changed circumstances: what was in force before them, so that they can be taken back."""

    kind: str
    step: int
    sequence: int
    at: str
    horizon: int
    limits: Limits | None
    refinement: Refinement | None


@dataclasses.dataclass(frozen=True)
class State:
    """Where an experiment stands after its first `sequence` events."""

    horizon: int
    sequence: int = 0
    records: tuple[Record, ...] = ()
    proposal: Proposal | None = None
    finished: bool = False
    notes: tuple[Note, ...] = ()
    submissions: Mapping[str, Received] = dataclasses.field(
        default_factory=lambda: MappingProxyType({})
    )
    limits: Limits | None = None
    refinement: Refinement | None = None
    changes: tuple[Change, ...] = ()

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
        """The records that have an outcome, in order: what the policy remembers and the posterior
        knows.
        """
        return tuple(record for record in self.records if not record.skipped)

    @property
    def last(self) -> Record | Change | None:
        """What an undo takes back, unless the experiment is finished: the last step or change,
        whichever came later.
        """
        both: tuple[Record | Change, ...] = (*self.records[-1:], *self.changes[-1:])
        return max(both, key=lambda act: act.sequence) if both else None

    def allowed(self, wanted: Vector) -> Vector:
        """A design that the policy asks for, within the limits of the experiment."""
        return wanted if self.limits is None else self.limits.nearest(wanted)


def limits_data(limits: Limits | None) -> dict[str, Any]:
    """What the event that sets limits says; no limits lift those before."""
    return (
        {"low": None, "high": None} if limits is None else {"low": limits.low, "high": limits.high}
    )


def after(state: State, event: Event) -> State:
    """The state after one more event; `ConflictError` if it cannot follow."""
    _require(
        event.sequence == state.sequence + 1,
        f"event {event.sequence}",
        f"number {state.sequence + 1}",
    )
    state = dataclasses.replace(state, sequence=event.sequence)
    if event.kind == NOTED:
        return dataclasses.replace(
            state, notes=(*state.notes, Note(event.step, event.data["text"], event.at))
        )
    if event.kind == UNDONE:
        return _undo(state, event)
    _require(
        not state.finished,
        f"'{event.kind}' after the end",
        "'undone', which takes the end back, or 'noted'",
    )
    if event.kind == FINISHED:
        return dataclasses.replace(state, finished=True)
    if event.kind == CORRECTED:
        return _correct(state, event)
    if event.kind in CHANGES:
        return _change(state, event)
    _require(
        event.step == state.step <= state.horizon,
        f"'{event.kind}' of step {event.step}",
        f"one of step {state.step} of {state.horizon}",
    )
    if event.kind == PROPOSED:
        _require(state.proposal is None, "a second proposal", "an outcome of the first")
        wanted = event.data.get("wanted")
        design = tuple(event.data["design"])
        proposal = Proposal(
            event.sequence, event.step, design, event.at, None if wanted is None else tuple(wanted)
        )
        return dataclasses.replace(state, proposal=proposal)
    return _take(state, event)


def _require(condition: bool, got: str, expected: str) -> None:
    """Refuse an event that does not fit those before it."""
    if not condition:
        raise _conflict(got, expected)


def _conflict(got: str, expected: str) -> ConflictError:
    return ConflictError(
        "the next event of an experiment",
        got=got,
        expected=expected,
        fix="look at its history and try again.",
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
    return dataclasses.replace(
        state, records=(*state.records, record), proposal=None, submissions=submissions
    )


def _undo(state: State, event: Event) -> State:
    """Take back the end, or else the last step or change. The proposal of a step is shown again,
    unless a correction has made it out of date.
    """
    if state.finished:
        return dataclasses.replace(state, finished=False)
    last = state.last
    _require(
        last is not None and event.step == len(state.records),
        f"'undone' of step {event.step}",
        f"that of the last step taken, {len(state.records)}",
    )
    if isinstance(last, Change):
        before = dataclasses.replace(
            state,
            changes=state.changes[:-1],
            horizon=last.horizon,
            limits=last.limits,
            refinement=last.refinement,
            proposal=None if last.kind == REFINED else state.proposal,
        )
        return _fitting(before)
    proposal = None if last is None or last.outdated else last.proposal
    return dataclasses.replace(state, records=state.records[:-1], proposal=proposal)


def _change(state: State, event: Event) -> State:
    """Other circumstances from here on."""
    _require(
        event.step == state.step,
        f"'{event.kind}' at step {event.step}",
        f"one at step {state.step}",
    )
    data = event.data
    change = Change(
        event.kind,
        event.step,
        event.sequence,
        event.at,
        state.horizon,
        state.limits,
        state.refinement,
    )
    state = dataclasses.replace(state, changes=(*state.changes, change))
    if event.kind == LIMITED:
        limits = None if data["low"] is None else Limits(tuple(data["low"]), tuple(data["high"]))
        return _fitting(dataclasses.replace(state, limits=limits))
    if event.kind == PLANNED:
        _require(
            max(1, len(state.records)) <= data["horizon"] <= LONGEST_PLAN,
            f"a plan of {data['horizon']} steps",
            f"{max(1, len(state.records))} to {LONGEST_PLAN}",
        )
        return _fitting(dataclasses.replace(state, horizon=data["horizon"]))
    _require(
        not state.complete and data["horizon"] == state.horizon,
        f"a policy refined for {data['horizon']} steps",
        f"one for the steps left of {state.horizon}",
    )
    values = dict(data)
    before = None if values.pop("before") is None else Remaining(**data["before"])
    refinement = Refinement(
        **{**values, "step": event.step, "before": before, "after": Remaining(**data["after"])}
    )
    return dataclasses.replace(state, refinement=refinement, proposal=None)


def _fitting(state: State) -> State:
    """Without the pending proposal, if it is not what would be proposed now."""
    proposal = state.proposal
    if proposal is None:
        return state
    fits = (
        state.allowed(proposal.wanted or proposal.design) == proposal.design and not state.complete
    )
    return state if fits else dataclasses.replace(state, proposal=None)


def _correct(state: State, event: Event) -> State:
    _require(
        1 <= event.step <= len(state.records) and not state.records[event.step - 1].skipped,
        f"'corrected' of step {event.step}",
        "a step that was measured",
    )
    used, y = tuple(event.data["used"]), tuple(event.data["y"])
    index = event.step - 1
    changed = dataclasses.replace(state.records[index], used=used, y=y, corrected=True)
    later = tuple(
        dataclasses.replace(record, outdated=True) for record in state.records[index + 1 :]
    )
    refinement = state.refinement
    if refinement is not None and event.step < refinement.step:
        refinement = dataclasses.replace(refinement, outdated=True)
    records = (*state.records[:index], changed, *later)
    return dataclasses.replace(state, records=records, proposal=None, refinement=refinement)
