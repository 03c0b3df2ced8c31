"""What may be entered in an experiment, and in which order it reaches the disk: the verbs of a
session that store an event.

A proposal is stored before it is returned and a measurement before it is acknowledged, so that
whoever opens the experiment after a crash is shown the same design, or the next one if the
measurement got through. Threads may share a ledger, and processes may open one each on the same
experiment: every verb takes in what others have stored before it stores something itself."""

import abc
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from scorebed.errors import ConflictError, InvalidValueError, ScorebedError
from scorebed.session import state as states
from scorebed.session.entry import check_design, check_outcome, check_text
from scorebed.session.state import Change, Event, Proposal, Record, State, Vector, after
from scorebed.session.store import Experiment, Store
from scorebed.session.submission import Submission, repeated, require_open, require_step, taken
from scorebed.tasks.base import IID, Task

LONGEST_TOKEN, LONGEST_NOTE = 200, 2000


class Choice(NamedTuple):
    """A design to propose, and what the policy asked for, which limits may not allow."""

    design: Vector
    wanted: Vector

    def plain(self) -> dict[str, Any]:
        """For an event."""
        return {"design": self.design} if self.design == self.wanted else self._asdict()


class _Ahead(NamedTuple):
    """What is to be proposed after one more outcome, and the state before it."""

    known: State
    choice: Choice


class Ledger(abc.ABC):
    """One experiment as its events have it. Steps count from 1."""

    def __init__(self, task: Task, store: Store, experiment: Experiment):
        self.task, self.experiment = task, experiment
        self._store = store
        self._turn = threading.RLock()
        self._state = State(experiment.horizon)
        self._shown: Proposal | None = None

    @abc.abstractmethod
    def _chosen(self, known: State) -> Choice:
        """The next design, within the limits."""

    @property
    def name(self) -> str:
        """Name of the experiment."""
        return self.experiment.name

    @property
    def path(self) -> Path:
        """The file of experiments."""
        return self._store.path

    @property
    def state(self) -> State:
        """Steps taken, pending proposal, notes, with what others have stored. `state.sequence`
        grows with every event.
        """
        with self._turn:
            return self._refreshed()

    def history(self) -> list[Event]:
        """Everything that ever happened, in order: undone and corrected things stay."""
        return self._store.events(self.experiment.id)

    # ---- the verbs

    def propose(self) -> Proposal:
        """The design of the next step: the same until it is measured or skipped, or an earlier step
        or the circumstances change. Where the limits of the experiment do not allow what the policy
        wants, `Proposal.wanted` has that.
        """
        with self._turn:
            while True:
                known = self._refreshed()
                require_open(self.name, known)
                if known.proposal is None:
                    self._store_proposal(known, self._chosen(known))
                else:
                    self._shown = known.proposal
                    return known.proposal

    def observe(
        self,
        y: Any,
        xi: Any = None,
        *,
        step: int | None = None,
        proposal: int | None = None,
        token: str | None = None,
    ) -> Record:
        """Store the outcome of the next step, measured at ξ if that was not the design proposed.

        `step` or `proposal` (its id) say which step is meant, so that one that came before is
        recognised: with the same values it is answered with what is stored, with others it is
        refused. They also refuse an outcome of a design that was withdrawn, because somebody
        corrected an earlier step meanwhile. A `token` of the client's own does the same for
        retries. Without any of them the proposal that this session has returned last is meant;
        clients that share a session should say which. The design used may lie outside of the
        experiment's limits: it is what happened."""
        with self._turn:
            return self._enter(self._submission(y, xi, step, proposal, token), None)

    def exchange(
        self,
        y: Any,
        xi: Any = None,
        *,
        step: int | None = None,
        proposal: int | None = None,
        token: str | None = None,
    ) -> Record:
        """`observe`, and the proposal that follows stored with it: one write to the disk in place
        of two.

        The design is worked out before anything is stored, for the state that the outcome leads to,
        and nobody else's write waits for it. Where none can be had, or somebody has entered
        something meanwhile, the outcome is stored alone."""
        with self._turn:
            sent = self._submission(y, xi, step, proposal, token)
            return self._enter(sent, self._ahead(sent))

    def skip(self, *, step: int | None = None) -> Record:
        """Give up the next step, because the trial failed. Only where steps are independent. `step`
        as in `observe`.
        """
        if not isinstance(self.task, IID):
            raise InvalidValueError(
                f"skipping a step of {type(self.task).__name__}",
                got="a task whose next outcome depends on the last",
                expected="independent steps",
                fix="measure this step, or begin another experiment: without an outcome the "
                "state is unknown from here on.",
            )
        with self._turn:
            known = self._refreshed()
            if step is None or step > len(known.records):
                self.propose()
            with self._store.writing():
                known = self._refreshed()
                if step is not None and step <= len(known.records):
                    record = known.records[step - 1]
                    if not record.skipped:
                        raise taken(record)
                    return record
                require_open(self.name, known)
                require_step(known, step)
                after_ = self._append(known, states.SKIPPED, known.step, {})
            return self._settle(after_).records[-1]

    def undo(self, *, step: int | None = None) -> Record | Change | None:
        """Take back what came last: a step, a change of the circumstances, or `finish` (then None
        is returned).

        `step` refuses to undo anything but that step.
        """
        with self._turn:
            with self._store.writing():
                known = self._refreshed()
                last = None if known.finished else known.last
                if not known.finished and last is None:
                    raise ConflictError(
                        "an undo",
                        got="an experiment without a step",
                        expected="one",
                        fix="there is nothing to take back.",
                    )
                if step is not None and (not isinstance(last, Record) or step != last.step):
                    what = "the end" if last is None else f"step {last.step} as the last"
                    raise ConflictError(
                        f"an undo of step {step}",
                        got="changed circumstances as the last"
                        if isinstance(last, Change)
                        else what,
                        expected="that step to be the last",
                        fix="look at the history and try again.",
                    )
                after_ = self._append(known, states.UNDONE, len(known.records), {})
            self._settle(after_)
            return last

    def correct(self, step: int, y: Any, xi: Any = None) -> Record:
        """Replace the outcome of a step that was measured, and the design used if ξ is given. The
        next design follows anew.
        """
        outcome = check_outcome(self.task, y)
        used = None if xi is None else check_design(self.task, xi)
        with self._turn:
            with self._store.writing():
                known = self._refreshed()
                record = known.records[step - 1] if 1 <= step <= len(known.records) else None
                if record is None or record.used is None or known.finished:
                    what = (
                        "an experiment that is finished"
                        if known.finished
                        else "no measurement there"
                    )
                    raise ConflictError(
                        f"a correction of step {step}",
                        got=what,
                        expected="a step that was measured, of an experiment that is not finished",
                        fix="undo takes the end back."
                        if known.finished
                        else "look at the history for the step's number.",
                    )
                data = {"used": used or record.used, "y": outcome}
                if (record.used, record.y) == (data["used"], outcome):
                    return record
                after_ = self._append(known, states.CORRECTED, step, data)
            return self._settle(after_).records[step - 1]

    def note(self, text: str) -> None:
        """Keep a remark with the next step."""
        check_text("a note", text, longest=LONGEST_NOTE, lines=True)
        with self._turn:
            with self._store.writing():
                known = self._refreshed()
                after_ = self._append(known, states.NOTED, known.step, {"text": text})
            self._settle(after_)

    def finish(self) -> None:
        """End the experiment, early or after its last step. Nothing more can be entered unless it
        is undone.
        """
        with self._turn:
            with self._store.writing():
                known = self._refreshed()
                if known.finished:
                    return
                after_ = self._append(known, states.FINISHED, known.step, {})
            self._settle(after_)

    # ---- inside

    def _refreshed(self) -> State:
        """Take in what other sessions have stored."""
        for event in self._store.events(self.experiment.id, after=self._state.sequence):
            self._state = after(self._state, event)
        return self._state

    def _append(
        self,
        known: State,
        kind: str,
        step: int,
        data: Mapping[str, Any],
        *,
        token: str | None = None,
    ) -> State:
        """Store an event inside of a transaction; the state becomes ours once that is over
        (`_settle`).
        """
        return after(known, self._store.append(self.experiment.id, kind, step, data, token=token))

    def _change(
        self, kind: str, data: Mapping[str, Any], *, same: Callable[[State], bool]
    ) -> State:
        """Store other circumstances, unless they are those in force."""
        with self._turn:
            with self._store.writing():
                known = self._refreshed()
                if known.finished:
                    raise ConflictError(
                        f"other circumstances of experiment '{self.name}'",
                        got="one that is finished",
                        expected="one that goes on",
                        fix="undo takes the end back.",
                    )
                if same(known):
                    return known
                after_ = self._append(known, kind, known.step, data)
            return self._settle(after_)

    def _settle(self, state: State) -> State:
        self._state = state
        if state.proposal != self._shown:
            self._shown = None
        return state

    def _submission(
        self, y: Any, xi: Any, step: int | None, proposal: int | None, token: str | None
    ) -> Submission:
        outcome = check_outcome(self.task, y)
        used = None if xi is None else check_design(self.task, xi)
        if token is not None:
            check_text("the token of a submission", token, longest=LONGEST_TOKEN)
        if step is None and proposal is None and self._shown is not None:
            proposal = self._shown.id
        return Submission(outcome, used, step, proposal, token)

    def _enter(self, sent: Submission, ahead: _Ahead | None) -> Record:
        """Store an outcome, unless it is there already, and the next proposal if it is known and
        still right.
        """
        while True:
            with self._store.writing():
                known = self._refreshed()
                same = repeated(known, sent)
                if same is not None:
                    return same
                require_open(self.name, known)
                if known.proposal is not None:
                    data = _observed(sent, known.proposal)
                    after_ = self._append(
                        known, states.OBSERVED, known.step, data, token=sent.token
                    )
                    if (
                        ahead is not None
                        and not moved(ahead.known, known)
                        and ahead.known.proposal == known.proposal
                    ):
                        after_ = self._append(
                            after_, states.PROPOSED, after_.step, ahead.choice.plain()
                        )
                    break
            if sent.used is None:
                raise ConflictError(
                    f"the outcome of step {known.step}",
                    got="one before its design was proposed",
                    expected="propose() first, or the design that was used",
                    fix="propose, measure there, and then enter the outcome.",
                )
            self._store_proposal(known, self._chosen(known))
        return self._settle(after_).records[-1]

    def _ahead(self, sent: Submission) -> _Ahead | None:
        """What the policy asks for once `sent` is stored; None where nothing follows, whose reason
        others will tell.
        """
        known = self._refreshed()
        try:
            if (
                known.proposal is None
                or known.step == known.horizon
                or repeated(known, sent) is not None
            ):
                return None
            event = Event(
                known.sequence + 1, states.OBSERVED, known.step, "", _observed(sent, known.proposal)
            )
            return _Ahead(known, self._chosen(after(known, event)))
        except ScorebedError:
            return None

    def _store_proposal(self, known: State, choice: Choice) -> None:
        """Unless something happened while the design was computed: then it is for the caller to
        look again.
        """
        with self._store.writing():
            current = self._refreshed()
            if moved(known, current) or current.proposal is not None or current.finished:
                return
            after_ = self._append(current, states.PROPOSED, current.step, choice.plain())
        self._state = after_


def _observed(sent: Submission, proposal: Proposal) -> dict[str, Any]:
    return {"used": sent.used or proposal.design, "y": sent.y}


def moved(before: State, now: State) -> bool:
    """Whether another design would be proposed now: steps or circumstances are not what they
    were.
    """
    return any(
        getattr(before, name) != getattr(now, name)
        for name in ("records", "horizon", "limits", "refinement")
    )
