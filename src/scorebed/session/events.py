"""What the events of an experiment amount to: `after(state, event)` is the only rule book, for live
experiments and for imported ones.

    proposed → observed | skipped → proposed → … → finished,   with the other kinds anywhere between

Events are never changed or deleted, so a correction does not rewrite the designs that were proposed
after it: measured ones stay as they are, and the pending one is withdrawn, because the policy would
now propose another. Changed circumstances (limits of the designs, the number of steps, a refined
policy) work alike, except that the pending design stays if it would be proposed again. Steps and
changes are undone in reverse order.

Several designs may be pending at once, where they were asked for `together`: they are measured side
by side, so a step is numbered as its outcome arrives, an event says which proposal it answers, and
what is being measured stays pending when an earlier step is corrected or undone."""

import dataclasses
import enum
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, TypeAlias

from scorebed.errors import ConflictError


class Kind(enum.StrEnum):
    """The kinds of events, as they stand in files of experiments."""

    PROPOSED = "proposed"
    OBSERVED = "observed"
    SKIPPED = "skipped"
    UNDONE = "undone"
    CORRECTED = "corrected"
    NOTED = "noted"
    FINISHED = "finished"
    LIMITED = "limited"
    PLANNED = "planned"  # another number of steps
    REFINED = "refined"


class RefinedBy(enum.StrEnum):
    """What a policy was refined with, as it stands in the event."""

    SCORE = enum.auto()
    PCE = enum.auto()


CHANGES = (Kind.LIMITED, Kind.PLANNED, Kind.REFINED)
LONGEST_HORIZON = 10_000  # steps of one experiment

Vector: TypeAlias = tuple[float, ...]


@dataclasses.dataclass(frozen=True)
class Event:
    """One row of the history; `sequence` counts from 1 within the experiment, `data` is JSON."""

    sequence: int
    kind: str
    step: int
    at: str
    data: Mapping[str, Any]
    token: str | None = None


@dataclasses.dataclass(frozen=True)
class Limits:
    """Tighter limits of one experiment's designs, coordinate by coordinate; None where there is
    none.
    """

    low: tuple[float | None, ...]
    high: tuple[float | None, ...]

    def nearest(self, design: Vector) -> Vector:
        """The allowed design that is nearest, coordinate by coordinate."""
        above = [v if a is None else max(v, a) for v, a in zip(design, self.low, strict=True)]
        return tuple(v if b is None else min(v, b) for v, b in zip(above, self.high, strict=True))


@dataclasses.dataclass(frozen=True)
class ProposedDesign:
    """A design that was proposed for a step. `id` is the sequence number of its event.

    Of several at once, `step` is a number that no other pending one has: outcomes come back in any
    order, and the step of a record is its place among them. `wanted` is what the policy asked for,
    where the limits of the experiment do not allow it.
    """

    id: int
    step: int
    design: Vector
    at: str
    wanted: Vector | None = None


@dataclasses.dataclass(frozen=True)
class StepRecord:
    """A step that was taken: the design proposed, the one used, and the outcome; the last two are
    None if it was skipped.
    """

    step: int
    proposal: ProposedDesign
    used: Vector | None
    y: Vector | None
    at: str
    sequence: int
    corrected: bool = False
    outdated: bool = False
    """Whether an earlier step was corrected since: the policy would propose another design."""

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
    """Bounds on what the remaining steps are expected to give, in nats, with the standard error of
    the lower one. The upper one is None where it is too large for particles to tell.
    """

    lower: float
    upper: float | None
    se: float


@dataclasses.dataclass(frozen=True)
class Refinement:
    """A policy refined at a step, for `horizon` steps in all: its hash, how it was made, what it
    adds.

    `before` and `after` are estimates on the same draws; `before` is None where the former policy
    had no designs for the remaining steps. `information` is what was gained by then, in nats."""

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
    """Whether an earlier step was corrected since: it was made for other data."""


@dataclasses.dataclass(frozen=True)
class Change:
    """Changed circumstances, with what was in force before them, so that they can be undone."""

    kind: str
    step: int
    sequence: int
    at: str
    horizon: int
    limits: Limits | None
    refinement: Refinement | None


@dataclasses.dataclass(frozen=True)
class ExperimentState:
    """Where an experiment stands after its first `sequence` events."""

    horizon: int
    sequence: int = 0
    records: tuple[StepRecord, ...] = ()
    pending: tuple[ProposedDesign, ...] = ()
    held: frozenset[int] = frozenset()
    """Proposals, by id, that were asked for together: on their way to instruments."""
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
    def proposal(self) -> ProposedDesign | None:
        """The pending design, the oldest of several."""
        return self.pending[0] if self.pending else None

    @property
    def sent_out(self) -> tuple[ProposedDesign, ...]:
        """The pending proposals that are on their way to instruments."""
        return tuple(proposal for proposal in self.pending if proposal.id in self.held)

    @property
    def left(self) -> int:
        """Steps that have no record yet."""
        return self.horizon - len(self.records)

    @property
    def next_number(self) -> int:
        """The number of the design that would be proposed now, beside those that are pending."""
        taken = len(self.records) + len(self.pending)
        return max([taken, *(proposal.step for proposal in self.pending)]) + 1

    @property
    def complete(self) -> bool:
        """Whether all steps are taken."""
        return self.step > self.horizon

    @property
    def measured(self) -> tuple[StepRecord, ...]:
        """The records with an outcome, in order: what policy and posterior are given."""
        return tuple(record for record in self.records if not record.skipped)

    @property
    def last(self) -> StepRecord | Change | None:
        """What an undo takes back, unless the experiment is finished: the later one of the last
        step and the last change.
        """
        both: tuple[StepRecord | Change, ...] = (*self.records[-1:], *self.changes[-1:])
        return max(both, key=lambda act: act.sequence) if both else None

    @property
    def measurements(self) -> int:
        """How many measurements there will be in all if no further step is skipped."""
        return len(self.measured) + self.left

    def allowed(self, wanted: Vector) -> Vector:
        """A design that the policy asks for, moved within the limits of the experiment."""
        return wanted if self.limits is None else self.limits.nearest(wanted)

    def continues_as(self, other: "ExperimentState") -> bool:
        """Whether steps and circumstances are the same, so that the same design would follow."""
        names = ("records", "horizon", "limits", "refinement")
        return all(getattr(self, name) == getattr(other, name) for name in names)

    def awaits_same(self, other: "ExperimentState") -> bool:
        """`continues_as`, with the same pending proposals or none."""
        return self.continues_as(other) and self.pending == other.pending


def limits_data(limits: Limits | None) -> dict[str, Any]:
    """What the event that sets limits says; None for both sides lifts them."""
    low, high = (None, None) if limits is None else (limits.low, limits.high)
    return {"low": low, "high": high}


def after(state: ExperimentState, event: Event) -> ExperimentState:
    """The state after one more event; `ConflictError` if it cannot follow."""
    following = state.sequence + 1
    _require(event.sequence == following, f"event {event.sequence}", f"number {following}")
    state = dataclasses.replace(state, sequence=event.sequence)
    if event.kind == Kind.NOTED:
        note = Note(event.step, event.data["text"], event.at)
        return dataclasses.replace(state, notes=(*state.notes, note))
    if event.kind == Kind.UNDONE:
        return _undo(state, event)
    _require(not state.finished, f"'{event.kind}' after the end", "'undone' or 'noted'")
    if event.kind == Kind.FINISHED:
        return dataclasses.replace(state, finished=True)
    if event.kind == Kind.CORRECTED:
        return _correct(state, event)
    if event.kind in CHANGES:
        return _change(state, event)
    return _propose(state, event) if event.kind == Kind.PROPOSED else _take(state, event)


def _require(condition: bool, got: str, expected: str) -> None:
    """Refuse an event that does not fit those before it."""
    if not condition:
        raise _conflict(got, expected)


def _require_step(state: ExperimentState, event: Event, due: int) -> None:
    _require(
        event.step == due and not state.complete,
        f"'{event.kind}' of step {event.step}",
        f"one of step {due} of {state.horizon}",
    )


def _conflict(got: str, expected: str) -> ConflictError:
    return ConflictError(
        "the next event of an experiment",
        got=got,
        expected=expected,
        fix="look at its history and try again.",
    )


def _propose(state: ExperimentState, event: Event) -> ExperimentState:
    """A design, beside others if they were asked for together."""
    together = event.data.get("together", 1)
    most = max(1, min(together, state.left))
    _require(len(state.pending) < most, "a second proposal", "an outcome of the first")
    _require_step(state, event, state.next_number)
    design, wanted = tuple(event.data["design"]), event.data.get("wanted")
    asked = None if wanted is None else tuple(wanted)
    proposal = ProposedDesign(event.sequence, event.step, design, event.at, asked)
    pending = (*state.pending, proposal)
    held = state.held | {each.id for each in pending} if together > 1 else state.held
    return dataclasses.replace(state, pending=pending, held=held)


def _take(state: ExperimentState, event: Event) -> ExperimentState:
    """An outcome, or none because the trial failed, of the oldest proposal or the one named."""
    _require_step(state, event, state.step)
    named = event.data.get("proposal")
    proposal = next((p for p in state.pending if named in (None, p.id)), None)
    if proposal is None:
        raise _conflict(f"'{event.kind}' of step {event.step}", "a proposal before it")
    used, y, submissions = None, None, state.submissions
    if event.kind == Kind.OBSERVED:
        used, y = tuple(event.data["used"]), tuple(event.data["y"])
        if event.token is not None:
            _require(event.token not in submissions, "a token that was used before", "a new one")
            received = Received(event.step, used, y, event.sequence)
            submissions = MappingProxyType({**submissions, event.token: received})
    record = StepRecord(event.step, proposal, used, y, event.at, event.sequence)
    others = tuple(p for p in state.pending if p is not proposal)
    return dataclasses.replace(
        state, records=(*state.records, record), pending=others, submissions=submissions
    )


def _undo(state: ExperimentState, event: Event) -> ExperimentState:
    """Take back the end, or else the last step or change. The proposal of a step becomes pending
    again, unless a correction has outdated it.
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
            pending=state.sent_out if last.kind == Kind.REFINED else state.pending,
        )
        return _fitting(before)
    assert last is not None, "required above"
    # What was proposed after the step rested on its outcome.
    kept = [p for p in state.pending if p.id < last.sequence or p.id in state.held]
    again = [] if last.outdated else [last.proposal]
    pending = tuple(sorted([*again, *kept], key=lambda proposal: proposal.id))
    return dataclasses.replace(state, records=state.records[:-1], pending=pending)


def _change(state: ExperimentState, event: Event) -> ExperimentState:
    """Other circumstances from here on."""
    step, data = state.step, event.data
    _require(event.step == step, f"'{event.kind}' at step {event.step}", f"one at step {step}")
    before = (state.horizon, state.limits, state.refinement)
    change = Change(event.kind, event.step, event.sequence, event.at, *before)
    state = dataclasses.replace(state, changes=(*state.changes, change))
    if event.kind == Kind.LIMITED:
        limits = None if data["low"] is None else Limits(tuple(data["low"]), tuple(data["high"]))
        return _fitting(dataclasses.replace(state, limits=limits))
    if event.kind == Kind.PLANNED:
        least = max(1, len(state.records))
        _require(
            least <= data["horizon"] <= LONGEST_HORIZON,
            f"a horizon of {data['horizon']} steps",
            f"{least} to {LONGEST_HORIZON}",
        )
        return _fitting(dataclasses.replace(state, horizon=data["horizon"]))
    _require(
        not state.complete and data["horizon"] == state.horizon,
        f"a policy refined for {data['horizon']} steps",
        f"one for the steps left of {state.horizon}",
    )
    estimates = {
        name: None if data[name] is None else Remaining(**data[name])
        for name in ("before", "after")
    }
    refinement = Refinement(**{**data, "step": event.step, **estimates})
    return dataclasses.replace(state, refinement=refinement, pending=state.sent_out)


def _fitting(state: ExperimentState) -> ExperimentState:
    """Without pending proposals that would not be made now; of those on their way, without those
    that are not allowed.
    """

    def stays(proposal: ProposedDesign) -> bool:
        asked = None if proposal.id in state.held else proposal.wanted
        return state.allowed(asked or proposal.design) == proposal.design

    kept = tuple(proposal for proposal in state.pending if stays(proposal))
    return dataclasses.replace(state, pending=kept[: state.left])


def _correct(state: ExperimentState, event: Event) -> ExperimentState:
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
    return dataclasses.replace(
        state, records=records, pending=state.sent_out, refinement=refinement
    )
