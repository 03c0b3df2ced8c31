"""Is a submission new, a repetition, or a mistake? Answered from the state alone, inside the
transaction that would store it.
"""

from typing import NamedTuple

from scorebed.errors import ConflictError, InvalidValueError
from scorebed.session.state import Record, State, Vector


class Submission(NamedTuple):
    """An outcome as it came in: where it was measured if not as proposed, and whatever says which
    step is meant.
    """

    y: Vector
    used: Vector | None = None
    step: int | None = None
    proposal: int | None = None
    token: str | None = None

    def is_that(self, y: Vector | None, used: Vector | None) -> bool:
        """Whether these are the same values."""
        return self.y == y and self.used in (None, used)


def repeated(known: State, sent: Submission) -> Record | None:
    """The record that a submission repeats, None if it is new; `ConflictError` if it fits
    neither.
    """
    before = known.submissions.get(sent.token) if sent.token is not None else None
    if before is not None:
        record = next((r for r in known.records if r.sequence == before.sequence), None)
        if record is None:
            raise ConflictError(
                f"the outcome of step {before.step}",
                got="a submission that was undone since",
                expected="a new one",
                fix="enter it again.",
            )
        if not sent.is_that(before.y, before.used) or sent.step not in (None, before.step):
            raise taken(record)
        return record
    step = _step_of(known, sent)
    if step is None or step == known.step:
        return None
    require_step(known, max(step, known.step))
    if step < 1:
        raise InvalidValueError(
            "the number of a step", got=step, expected="1 or more", fix="count from 1."
        )
    record = known.records[step - 1]
    if not sent.is_that(record.y, record.used):
        raise taken(record)
    return record


def _step_of(known: State, sent: Submission) -> int | None:
    """The step that is meant."""
    if sent.proposal is None or (known.proposal is not None and known.proposal.id == sent.proposal):
        return sent.step
    record = next((r for r in known.records if r.proposal.id == sent.proposal), None)
    if record is None:
        raise ConflictError(
            "the outcome of a design",
            got="a design that was withdrawn, because an earlier step or the circumstances were "
            "changed",
            expected="the design that is proposed now",
            fix="look at it again; if you did measure at the old one, enter that as the design "
            "used.",
        )
    return record.step


def require_step(known: State, step: int | None) -> None:
    """Refuse any step but the next."""
    if step is not None and step != known.step:
        raise ConflictError(
            f"the outcome of step {step}",
            got="a step that is not next",
            expected=f"step {known.step}",
            fix="enter the steps one after another.",
        )


def require_open(name: str, known: State) -> None:
    """Refuse further steps of an experiment that has none left."""
    if known.finished or known.complete:
        raise ConflictError(
            f"a further step of experiment '{name}'",
            got="one that is finished" if known.finished else f"all {known.horizon} steps taken",
            expected="steps that are left",
            fix="begin another experiment; undo takes back the last step, or the end.",
        )


def taken(record: Record) -> ConflictError:
    """A step that has another outcome already."""
    return ConflictError(
        f"a second outcome of step {record.step}",
        got="one that differs from what is stored",
        expected="one outcome per step",
        fix="correct the step if the first was wrong, or undo it.",
    )
