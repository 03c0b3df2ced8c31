"""What does not fit what an experiment has recorded already. Answered from its state alone, inside
the transaction that would store the entry.

An outcome is new, a repetition, or a mistake (`repeated`); the other functions refuse a step, an
undo, a correction or a request that comes too late, too early or for something else."""

from scorebed.errors import ConflictError, InvalidValueError
from scorebed.session.events import Change, ExperimentState, ProposedDesign, StepRecord
from scorebed.session.store import Experiment
from scorebed.session.validation import ExperimentRequest, Submission
from scorebed.tasks.base import Task


def repeated(state: ExperimentState, sent: Submission) -> StepRecord | None:
    """The record that a submission repeats, None if it is new; `ConflictError` if it is neither."""
    before = state.submissions.get(sent.token) if sent.token is not None else None
    if before is not None:
        record = next((r for r in state.records if r.sequence == before.sequence), None)
        if record is None:
            raise ConflictError(
                f"the outcome of step {before.step}",
                got="a submission that was undone since",
                expected="a new one",
                fix="enter it again.",
            )
        if not sent.matches(before.y, before.used) or sent.step not in (None, before.step):
            raise _second_outcome(record)
        return record
    step = _step_of(state, sent)
    if step is None or step == state.step:
        return None
    require_step(state, max(step, state.step))
    if step < 1:
        raise InvalidValueError(
            "the number of a step", got=step, expected="1 or more", fix="count from 1."
        )
    record = state.records[step - 1]
    if not sent.matches(record.y, record.used):
        raise _second_outcome(record)
    return record


def _step_of(state: ExperimentState, sent: Submission) -> int | None:
    """The step that is meant."""
    if sent.proposal is None or any(each.id == sent.proposal for each in state.pending):
        return sent.step
    record = next((r for r in state.records if r.proposal.id == sent.proposal), None)
    if record is None:
        raise _withdrawn()
    return record.step


def meant(state: ExperimentState, number: int | None) -> ProposedDesign:
    """The pending design that an entry is about; of several it has to say which."""
    if number is None and len(state.pending) > 1:
        listed = ", ".join(str(each.id) for each in state.pending)
        raise ConflictError(
            "the outcome of a design",
            got=f"{len(state.pending)} designs that wait for one",
            expected="which of them was measured",
            fix=f"name it by its id (proposal={listed}).",
        )
    found = next((each for each in state.pending if number in (None, each.id)), None)
    if found is None:
        raise _withdrawn()
    return found


def repeated_skip(
    state: ExperimentState, step: int | None, number: int | None = None
) -> StepRecord | None:
    """The record of a step that was skipped before, by its number or its proposal's; None if it is
    still to come; `ConflictError` if it was measured.
    """
    record = next((r for r in state.records if r.proposal.id == number), None)
    if record is None:
        if step is None or step > len(state.records):
            return None
        record = state.records[step - 1]
    if not record.skipped:
        raise _second_outcome(record)
    return record


def require_used(sent: Submission, step: int) -> None:
    """Refuse an outcome of a step without a proposal, unless it says where it was measured."""
    if sent.used is None:
        raise ConflictError(
            f"the outcome of step {step}",
            got="one before its design was proposed",
            expected="propose() first, or the design that was used",
            fix="propose, measure there, and then enter the outcome.",
        )


def require_step(state: ExperimentState, step: int | None) -> None:
    """Refuse any step but the next."""
    if step is not None and step != state.step:
        raise ConflictError(
            f"the outcome of step {step}",
            got="a step that is not next",
            expected=f"step {state.step}",
            fix="enter the steps one after another.",
        )


def require_skippable(task: Task) -> None:
    """Refuse to skip steps unless they are independent."""
    if not task.exchangeable_steps:
        raise InvalidValueError(
            f"skipping a step of {type(task).__name__}",
            got="a task whose next outcome depends on the last",
            expected="independent steps",
            fix="measure this step, or begin another experiment: without an outcome the state is "
            "unknown from here on.",
        )


def require_open(name: str, state: ExperimentState) -> None:
    """Refuse further steps of an experiment that has none left."""
    if state.finished or state.complete:
        raise ConflictError(
            f"a further step of experiment '{name}'",
            got="one that is finished" if state.finished else f"all {state.horizon} steps taken",
            expected="steps that are left",
            fix="begin another experiment; undo takes back the last step, or the end.",
        )


def require_changeable(name: str, state: ExperimentState) -> None:
    """Refuse other circumstances once an experiment is finished."""
    if state.finished:
        raise ConflictError(
            f"other circumstances of experiment '{name}'",
            got="one that is finished",
            expected="one that goes on",
            fix="undo takes the end back.",
        )


def require_horizon(state: ExperimentState, horizon: int) -> None:
    """Refuse fewer steps than were taken."""
    taken = len(state.records)
    if horizon < taken:
        raise ConflictError(
            "the number of steps",
            got=horizon,
            expected=f"at least the {taken} that are taken",
            fix="undo steps first, or finish the experiment.",
        )


def undoable(state: ExperimentState, step: int | None) -> StepRecord | Change | None:
    """What an undo takes back, None for the end; `step` refuses anything but that step."""
    last = None if state.finished else state.last
    if not state.finished and last is None:
        raise ConflictError(
            "an undo",
            got="an experiment without a step",
            expected="one",
            fix="there is nothing to take back.",
        )
    if step is not None and (not isinstance(last, StepRecord) or step != last.step):
        got = "the end" if last is None else f"step {last.step} as the last"
        raise ConflictError(
            f"an undo of step {step}",
            got="changed circumstances as the last" if isinstance(last, Change) else got,
            expected="that step to be the last",
            fix="look at the history and try again.",
        )
    return last


def correctable(state: ExperimentState, step: int) -> StepRecord:
    """The record of a step that was measured, of an experiment that is not finished."""
    record = state.records[step - 1] if 1 <= step <= len(state.records) else None
    if record is None or record.used is None or state.finished:
        ended = state.finished
        raise ConflictError(
            f"a correction of step {step}",
            got="an experiment that is finished" if ended else "no measurement there",
            expected="a step that was measured, of an experiment that is not finished",
            fix="undo takes the end back." if ended else "look up the step in the history.",
        )
    return record


def require_as_trained_for(before: ExperimentState, now: ExperimentState) -> None:
    """Refuse a refined policy if something was entered while it was trained."""
    if not now.continues_as(before) or now.finished:
        raise ConflictError(
            "a refined policy",
            got="something that was entered while it was trained",
            expected="the steps and the circumstances that it was trained for",
            fix="refine again.",
        )


def require_request(
    experiment: Experiment, state: ExperimentState, asked: ExperimentRequest
) -> None:
    """Refuse an existing experiment that has another seed or other circumstances than those asked
    for.
    """
    if asked.seed is not None and experiment.seed != asked.seed:
        raise ConflictError(
            f"the seed of experiment '{experiment.name}'",
            got=asked.seed,
            expected=f"{experiment.seed}, with which it began",
            fix="leave it out, or begin another experiment.",
        )
    other_horizon = asked.horizon not in (None, state.horizon)
    if other_horizon or (asked.limits_given and state.limits != asked.limits):
        raise ConflictError(
            f"the circumstances of experiment '{experiment.name}'",
            got="another number of steps or other limits",
            expected="those that it has by now",
            fix="leave them out and change them in the experiment, or begin another one.",
        )


def _withdrawn() -> ConflictError:
    return ConflictError(
        "the outcome of a design",
        got="a design that was withdrawn, because an earlier step or the circumstances were "
        "changed",
        expected="the design that is proposed now",
        fix="look at it again; if you did measure at the old one, enter that as the design used.",
    )


def _second_outcome(record: StepRecord) -> ConflictError:
    return ConflictError(
        f"a second outcome of step {record.step}",
        got="one that differs from what is stored",
        expected="one outcome per step",
        fix="correct the step if the first was wrong, or undo it.",
    )
