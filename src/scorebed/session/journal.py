"""One experiment in its file: in which order things reach the disk.

A proposal is stored before it is returned and a measurement before it is acknowledged, so that
whoever opens the experiment after a crash is shown the same design, or the next one if the
measurement got through. Threads may share a journal, and processes may open one each on the same
experiment: every transaction takes in what others have stored before it stores something itself.
Designs are computed outside of transactions, so that no other writer waits for them, and under a
lock of their own: an outcome is stored at once even while a policy compiles."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from scorebed.errors import ScorebedError
from scorebed.session.conflicts import meant, repeated, require_open, require_used
from scorebed.session.events import (
    Event,
    ExperimentState,
    Kind,
    ProposedDesign,
    StepRecord,
    Vector,
    after,
)
from scorebed.session.store import Experiment, Store, Transaction
from scorebed.session.validation import Submission


class Choice(NamedTuple):
    """A design to propose, and what the policy asked for, which limits may not allow."""

    design: Vector
    wanted: Vector

    def data(self) -> dict[str, Vector]:
        """What the event says."""
        return {"design": self.design} if self.design == self.wanted else self._asdict()


class _Ahead(NamedTuple):
    """The state before an outcome, and what is to be proposed after it."""

    state: ExperimentState
    choice: Choice


class Journal:
    """The state of an experiment, kept up to date, and what is written to it. `choose` computes the
    design that follows a state, one thread at a time (`choosing`); `turn` is held while this
    journal reads or writes, never while a design is computed.
    """

    def __init__(
        self, store: Store, experiment: Experiment, choose: Callable[[ExperimentState], Choice]
    ):
        self.store, self.experiment = store, experiment
        self.turn, self.choosing = threading.RLock(), threading.RLock()
        self._choose = choose
        self._state = ExperimentState(experiment.horizon)
        self._shown: ProposedDesign | None = None  # what `propose` returned last

    @property
    def state(self) -> ExperimentState:
        """Where the experiment stands, with what others have stored."""
        with self.turn:
            self._state = self.store.state(self.experiment, self._state)
            return self._state

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """One write to the disk, on top of what others have stored; its state becomes ours once it
        is durable.
        """
        with self.turn:
            with self.store.writing():
                entry = Transaction(self.store, self.experiment, self.state)
                yield entry
            self._state = entry.state
            # A proposal stored by itself was shown to nobody: callers still mean the last shown.
            if entry.kinds - {Kind.PROPOSED} and entry.state.proposal != self._shown:
                self._shown = None

    def propose(self) -> ProposedDesign:
        """The pending proposal, the oldest of several, or else a new one."""
        return self.ask(1)[0]

    def ask(self, count: int) -> tuple[ProposedDesign, ...]:
        """So many pending proposals, or as many as there are steps left; new ones where fewer are
        pending, each on the disk before the next is computed.
        """
        while True:
            with self.turn:
                state = self.state
                require_open(self.experiment.name, state)
                wanted = min(count, state.left)
                if len(state.pending) >= wanted:
                    self._shown = state.pending[0] if count == 1 else None
                    return state.pending[:wanted]
            self._store_proposal(state, together=count)

    def enter(self, sent: Submission, *, with_next: bool) -> StepRecord:
        """Store an outcome, unless it is stored already; `with_next` the design that follows, by
        the same write. Without a step or proposal the one shown last is meant.

        That design is computed first, for the state that the outcome leads to, and stored if the
        state is still the same."""
        with self.turn:
            if sent.step is None and sent.proposal is None and self._shown is not None:
                sent = sent._replace(proposal=self._shown.id)
        ahead = self._ahead(sent) if with_next else None
        while True:
            with self.transaction() as entry:
                state = entry.state
                same = repeated(state, sent)
                if same is not None:
                    return same
                require_open(self.experiment.name, state)
                if state.pending:
                    data = answer(state, sent)
                    record = entry.append(Kind.OBSERVED, data, token=sent.token).records[-1]
                    if ahead is not None and state.awaits_same(ahead.state):
                        entry.append(Kind.PROPOSED, ahead.choice.data())
                    return record
            require_used(sent, state.step)
            self._store_proposal(state)

    def _ahead(self, sent: Submission) -> _Ahead | None:
        """What the policy asks for once `sent` is stored; None where no design follows: `propose`
        will say why.
        """
        with self.choosing:
            state = self.state
            if len(state.pending) != 1 or state.left == 1:
                return None
            with contextlib.suppress(ScorebedError):
                if repeated(state, sent) is None:
                    return _Ahead(state, self._choose(observed(state, sent)))
            return None

    def _store_proposal(self, state: ExperimentState, *, together: int = 1) -> None:
        """Store what the policy asks for at `state`, unless something happened while that was
        computed: then the caller looks again.
        """
        with self.choosing:
            if not self.state.awaits_same(state):
                return
            data: dict[str, Any] = dict(self._choose(state).data())
            if together > 1:
                data["together"] = together
            with self.transaction() as entry:
                if entry.state.awaits_same(state) and not entry.state.finished:
                    entry.append(Kind.PROPOSED, data, step=state.next_number)


def answer(state: ExperimentState, sent: Submission) -> dict[str, Any]:
    """What the event of an outcome says: which proposal it answers only if that is not the oldest
    one.
    """
    proposal = meant(state, sent.proposal)
    named = {} if proposal == state.proposal else {"proposal": proposal.id}
    return {**sent.data(proposal), **named}


def observed(state: ExperimentState, sent: Submission) -> ExperimentState:
    """The state that an outcome would lead to."""
    data = answer(state, sent)
    return after(state, Event(state.sequence + 1, Kind.OBSERVED, state.step, "", data))
