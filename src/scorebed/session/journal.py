"""One experiment in its file: in which order things reach the disk.

A proposal is stored before it is returned and a measurement before it is acknowledged, so that
whoever opens the experiment after a crash is shown the same design, or the next one if the
measurement got through. Threads may share a journal, and processes may open one each on the same
experiment: every transaction takes in what others have stored before it stores something itself.
Designs are computed outside of transactions, so that no other writer waits for them."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import NamedTuple

from scorebed.errors import ScorebedError
from scorebed.session.conflicts import repeated, require_open, require_used
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
    design that follows a state; `turn` is held while this journal acts.
    """

    def __init__(
        self, store: Store, experiment: Experiment, choose: Callable[[ExperimentState], Choice]
    ):
        self.store, self.experiment = store, experiment
        self.turn = threading.RLock()
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
        """The pending proposal, or else a new one."""
        with self.turn:
            while True:
                state = self.state
                require_open(self.experiment.name, state)
                if state.proposal is not None:
                    self._shown = state.proposal
                    return state.proposal
                self._store_proposal(state)

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
                    if state.proposal is not None:
                        data = sent.data(state.proposal)
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
        state = self.state
        if state.proposal is None or state.step == state.horizon:
            return None
        with contextlib.suppress(ScorebedError):
            if repeated(state, sent) is None:
                return _Ahead(state, self._choose(observed(state, sent, state.proposal)))
        return None

    def _store_proposal(self, state: ExperimentState) -> None:
        """Store what the policy asks for at `state`, unless something happened while that was
        computed: then the caller looks again.
        """
        choice = self._choose(state)
        with self.transaction() as entry:
            if entry.state.awaits_same(state) and not entry.state.finished:
                entry.append(Kind.PROPOSED, choice.data())


def observed(state: ExperimentState, sent: Submission, proposal: ProposedDesign) -> ExperimentState:
    """The state that an outcome would lead to."""
    data = sent.data(proposal)
    return after(state, Event(state.sequence + 1, Kind.OBSERVED, state.step, "", data))
