"""What instruments and the page may send, and what they get back: the schema of `openapi.json`.

Numbers are checked by `session.validation`, as in a terminal, and refused with the same sentences;
the session takes what is read here as it is."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt, StrictStr, WithJsonSchema

from scorebed.errors import InvalidValueError
from scorebed.session.events import ExperimentState, ProposedDesign, StepRecord, Vector
from scorebed.session.validation import (
    ParsedEntry,
    check_vector,
    parse_numbers,
    require_in_space,
)
from scorebed.tasks.base import Task
from scorebed.tasks.spaces import Quantity

_ONE = [{"type": "number"}, {"type": "string", "description": "a number as typed: 0.52, -1.5e-3"}]
Values = Annotated[
    Any, WithJsonSchema({"anyOf": [*_ONE, {"type": "array", "items": {"anyOf": _ONE}}]})
]
Number = Annotated[StrictInt, Field(ge=1, le=10**9)]
Seen = Annotated[StrictInt, Field(ge=0)]
LONGEST_REFINING = 600  # seconds that a request may take


class BadFieldError(InvalidValueError):
    """A number that was refused, with the field of the form that it came from."""

    def __init__(self, error: InvalidValueError, field: str):
        Exception.__init__(self, str(error))
        self.field = field


class Message(BaseModel):
    """Any request; unknown keys are errors."""

    model_config = ConfigDict(extra="forbid")


class Begin(Message):
    """A new experiment."""

    name: StrictStr | None = Field(
        None, description="At most 80 characters; experiment-N if left out."
    )
    seed: Annotated[StrictInt, Field(ge=0, lt=2**31)] | None = Field(
        None, description="Seed of the policy's noise; random if left out."
    )
    token: StrictStr | None = Field(
        None, max_length=200, description="Yours; sent again, it begins nothing new."
    )


class Observe(Message):
    """The outcome of the next step."""

    y: Values = Field(
        description="The outcome: a number, or one per coordinate in the task's order and units."
    )
    xi: Values = Field(
        None, description="The design that was used, if it was not the one proposed."
    )
    proposal: Number | None = Field(
        None, description="Id of the proposal that was measured. Recommended."
    )
    step: Number | None = Field(
        None, description="Number of the step, from 1. Refused if it is not the next one."
    )
    token: StrictStr | None = Field(
        None, description="Yours, for retries: the same token stores one row only."
    )
    ask: StrictBool = Field(
        False,
        description="Answer an improbable outcome with 409 and `improbable` instead of storing it.",
    )


class Correct(Message):
    """Another outcome for a measured step."""

    step: Number
    y: Values = Field(description="As in `observe`.")
    xi: Values = Field(None, description="The design that was used; what is stored if left out.")
    ask: StrictBool = Field(False, description="As in `observe`.")


class Which(Message):
    """The next step (skip) or the last one (undo), by number; `sequence` refuses a request that
    missed the latest event.
    """

    step: Number | None = None
    sequence: Seen | None = None


class Skip(Which):
    """The step whose trial failed; of several designs, the one that was tried."""

    proposal: Number | None = None


class WhatIf(Message):
    """An outcome that has not been measured."""

    y: Values = Field(description="The outcome, as in `observe`.")
    xi: Values = Field(
        None, description="The design that it would be measured at, if not the one proposed."
    )


class SetLimits(Message):
    """Tighter limits of the designs, one per coordinate, null or empty for none; without any they
    are lifted.
    """

    low: Values = Field(None, description="The smallest values allowed.")
    high: Values = Field(None, description="The largest values allowed.")
    sequence: Seen | None = None


class SetHorizon(Message):
    """Another number of steps in all."""

    steps: Number
    sequence: Seen | None = None


class Refine(Message):
    """Train the policy on what is known, for the steps that remain."""

    seconds: Annotated[StrictInt, Field(ge=1, le=LONGEST_REFINING)] = Field(
        30, description="About how long, compiling included."
    )


class Remark(Message):
    """A note, kept with the next step."""

    text: StrictStr = Field(description="At most 2000 characters.")


class Design(BaseModel):
    """A design that the policy proposed."""

    id: int
    step: int
    design: list[float]


class Step(BaseModel):
    """A step that was taken; `used` and `y` are null if it was skipped."""

    step: int
    proposed: list[float]
    used: list[float] | None
    y: list[float] | None
    at: str
    corrected: bool


class Answer(BaseModel):
    """What was stored, where the experiment stands, and the next design."""

    experiment: int
    name: str
    sequence: int = Field(
        description="Grows with every event; equal numbers mean that nothing happened between."
    )
    step: int = Field(description="Number of the next step.")
    horizon: int
    finished: bool
    stored: Step | None = Field(None, description="The step that this request was about.")
    next: Design | None = Field(
        None, description="Where to measure next; null when no step is left."
    )
    pending: list[Design] = Field(
        [], description="All designs that wait for an outcome, of a server with --parallel."
    )
    finding: bool = Field(
        False, description="Whether a design is still being found; ask again in a moment."
    )
    problem: str | None = Field(
        None, description="Why there is no next design, where there should be one."
    )


class Following(BaseModel):
    """The design that would follow an outcome; `level` is where the outcome lies among those to
    expect, from 0 to 1.
    """

    level: float | None = None
    y: list[float]
    design: list[float]


class RefineAnswer(Answer):
    """What came of refining: whether the policy is another one now, and the sentence that says what
    it adds.
    """

    kept: bool
    sentence: str


class Version(BaseModel):
    """A number that grows with every event."""

    sequence: int


class Item(BaseModel):
    """One experiment of the list."""

    id: int
    name: str
    task: str
    created: str
    taken: int
    horizon: int
    finished: bool
    ours: bool = Field(description="Whether this server's run can go on with it.")


class Problem(BaseModel):
    """Why something was refused."""

    detail: str
    field: str | None = None
    improbable: bool = False
    tail: float | None = None


def read_entry(task: Task, y: Any, xi: Any) -> ParsedEntry:
    """The outcome and the design used of a request, checked."""
    outcome = read_values("the outcome", y, task.outcomes, "y")
    if xi is None:
        return ParsedEntry(outcome, None)
    used = read_values("the design used", xi, task.designs.quantities, "xi")
    return ParsedEntry(outcome, _at_field("xi-0", lambda: require_in_space(task, used)))


def read_values(what: str, given: Any, quantities: tuple[Quantity, ...], field: str) -> Vector:
    """Finite numbers, one per quantity, from numbers or typed texts."""
    rows = given if isinstance(given, list) else [given]
    if any(isinstance(row, str) for row in rows) and len(rows) == len(quantities):
        return tuple(
            _one(what, row, quantity, f"{field}-{i}")
            for i, (row, quantity) in enumerate(zip(rows, quantities, strict=True))
        )
    flat = [row if isinstance(row, int | float) else repr(row)[:40] for row in rows]
    return _at_field(f"{field}-0", lambda: check_vector(what, flat, quantities))


def read_limits(
    given: Any, quantities: tuple[Quantity, ...], field: str
) -> list[float | None] | None:
    """Limits of one side: numbers, typed texts, or nothing, one per quantity; None if all are
    empty.
    """
    if given is None:
        return None
    rows = given if isinstance(given, list) else [given]
    if len(rows) != len(quantities):
        raise BadFieldError(
            InvalidValueError(
                "the limits of the designs",
                got=f"{len(rows)} of them",
                expected=f"{len(quantities)}",
                fix="one per design coordinate, empty where there is none.",
            ),
            f"{field}-0",
        )
    empty = [row is None or (isinstance(row, str) and not row.strip()) for row in rows]
    found = [
        None if nothing else _one("a limit of the designs", row, quantity, f"{field}-{i}")
        for i, (row, quantity, nothing) in enumerate(zip(rows, quantities, empty, strict=True))
    ]
    return None if all(empty) else found


def _one(what: str, row: Any, quantity: Quantity, field: str) -> float:
    if isinstance(row, str):
        return _at_field(field, lambda: parse_numbers(what, row, (quantity,)))[0]
    flat = row if isinstance(row, int | float) else repr(row)[:40]
    return _at_field(field, lambda: check_vector(what, [flat], (quantity,)))[0]


def _at_field(field: str, read: Any) -> Vector:
    try:
        return read()
    except InvalidValueError as error:
        raise BadFieldError(error, field) from None


def design_of(proposal: ProposedDesign) -> Design:
    """A proposal as JSON."""
    return Design(id=proposal.id, step=proposal.step, design=list(proposal.design))


def step_of(record: StepRecord) -> Step:
    """A record as JSON."""
    return Step(
        step=record.step,
        proposed=list(record.proposal.design),
        used=None if record.used is None else list(record.used),
        y=None if record.y is None else list(record.y),
        at=record.at,
        corrected=record.corrected,
    )


def record_of(state: ExperimentState, step: int) -> StepRecord | None:
    """The record of a step, if it was taken."""
    return state.records[step - 1] if 1 <= step <= len(state.records) else None
