"""The experiments of one run's file, each with one session that all of its visitors share.

Nobody's entry waits for a compilation or a long computation: an outcome is stored and answered
while the posterior is not in view yet, and judged afterwards; a design that takes longer than a
moment is found in the background."""

import contextlib
import dataclasses
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from scorebed.errors import ConflictError, ScorebedError
from scorebed.runs.load import Run
from scorebed.session.events import ExperimentState, ProposedDesign, StepRecord
from scorebed.session.opening import FILE
from scorebed.session.policy_runner import require_same
from scorebed.session.posterior import PARTICLES
from scorebed.session.session import Session
from scorebed.session.side_by_side import check_count
from scorebed.session.stopping import StoppingRule
from scorebed.session.store import Experiment, Store
from scorebed.web.knowledge import Knowledge, know

REMEMBERED = 1000  # tokens of new experiments
# Visitors that may wait for a posterior at once: the framework has 40 threads, designs need some.
SEATS = 8
MOMENT = 0.05  # seconds that the page waits for a design, most of which take less


class ListedExperiment(NamedTuple):
    """One line of the list. `ours` if this run can go on with it: others may share the file."""

    experiment: Experiment
    state: ExperimentState
    ours: bool


class MissingError(ScorebedError):
    """An experiment that does not exist."""


class BusyError(ScorebedError):
    """Too many visitors wait for a posterior."""


class NextDesigns(NamedTuple):
    """The designs that wait for outcomes. `finding` if more are on their way, `problem` is a
    sentence where there should be some and are none.
    """

    pending: tuple[ProposedDesign, ...] = ()
    finding: bool = False
    problem: str | None = None


class _Shared:
    """One experiment while the server runs, shared by its visitors."""

    def __init__(self, session: Session):
        self.session = session
        self.turn = threading.RLock()
        self.thinking = threading.Lock()
        self.refining = threading.Lock()
        self.known: Knowledge | None = None
        self.judged: tuple[StepRecord, ...] | None = None  # after these an outcome can be judged
        self.unasked: frozenset[int] = frozenset()  # stored before they could be judged
        self._search: Future[tuple[ProposedDesign, ...]] | None = None
        self._searching = threading.Lock()

    def search(self, count: int) -> Future[tuple[ProposedDesign, ...]]:
        """The search for so many designs, begun in the background unless one is under way."""
        with self._searching:
            if self._search is None or self._search.done():
                self._search = _in_background(lambda: self.session.ask(count))
            return self._search


class Hub:
    """Threads share a hub. Everything lasting is in the store, so that a terminal may take part in
    the same experiment.
    """

    def __init__(
        self,
        run: Run,
        *,
        db: Path | None = None,
        particles: int = PARTICLES,
        at_once: int = 1,
        rule: StoppingRule | None = None,
    ):
        self.run, self.particles = run, particles
        self.at_once = check_count(run.task, at_once)
        if rule is not None:
            rule.require_cost(run.task)
        self._worth = {} if rule is None else dataclasses.asdict(rule)
        self.store = Store(db if db is not None else run.path / FILE)
        self._turn = threading.RLock()
        self._shared: dict[int, _Shared] = {}
        self._states: dict[int, ExperimentState] = {}
        self._fits: dict[tuple[str, str], bool] = {}
        self._begun: OrderedDict[str, int] = OrderedDict()
        self.seats = threading.BoundedSemaphore(SEATS)
        self._warm = threading.Event()
        self._warm.set()

    def close(self) -> None:
        """Let go of the file."""
        self.store.close()

    def warm_policy(self) -> None:
        """Compile what designs need, and read where the experiments of the file stand: every
        visitor would wait for both.
        """
        self._on_scratch(lambda session: session.warm_policy())
        self.listed()

    def warm(self) -> None:
        """Compile in the background what else the first visitor would wait for. Posteriors wait for
        it, so that nothing is compiled twice.
        """
        self._warm.clear()
        threading.Thread(target=self._compile, name="warm", daemon=True).start()

    def wait_until_warm(self) -> None:
        """Return when `warm` is done, at once if nobody called it."""
        self._warm.wait()

    # ---- which experiments

    def listed(self) -> list[ListedExperiment]:
        """All experiments of the file, the newest first."""
        with self._turn:
            return [
                ListedExperiment(experiment, self._state(experiment), self._ours(experiment))
                for experiment in reversed(self.store.experiments())
            ]

    def version(self) -> str:
        """Changes with every event of every experiment."""
        with self._turn:
            states = [self._state(experiment) for experiment in self.store.experiments()]
        return f"{len(states)}.{sum(state.sequence for state in states)}"

    def begin(self, name: str | None, *, seed: int | None, token: str | None) -> Session:
        """A new experiment; a token that came before gives the experiment that it began."""
        with self._turn:
            if token is not None and token in self._begun:
                return self.session(self._begun[token])
            session = Session.create(
                self.run,
                db=self.store,
                experiment=name,
                seed=seed,
                particles=self.particles,
                **self._worth,
            )
            number = session.experiment.id
            self._shared[number] = _Shared(session)
            if token is not None:
                self._begun[token] = number
                if len(self._begun) > REMEMBERED:
                    self._begun.popitem(last=False)
            return session

    def session(self, number: int) -> Session:
        """The experiment with this id; `ConflictError` if it belongs to another run, `MissingError`
        if there is none.
        """
        return self._experiment(number).session

    # ---- what comes next

    def next_designs(self, number: int, *, patience: float | None = None) -> NextDesigns:
        """Where to measure next, stored before it is shown. Whoever has no patience hears after so
        many seconds that designs are being found.
        """
        shared = self._experiment(number)
        state = shared.session.state
        if state.finished or state.complete:
            return NextDesigns()
        if len(state.pending) >= min(self.at_once, state.left):
            return NextDesigns(state.pending)
        try:
            if patience is None:
                return NextDesigns(shared.session.ask(self.at_once))
            return NextDesigns(shared.search(self.at_once).result(patience))
        except TimeoutError:
            return NextDesigns(shared.session.state.pending, finding=True)
        except ConflictError:  # somebody has just ended it; the page will hear of that
            return NextDesigns()
        except ScorebedError as error:
            return NextDesigns(state.pending, problem=str(error))

    def can_judge(self, number: int) -> bool:
        """Whether what is improbable can be asked back without a wait: the posterior is in view."""
        shared = self._experiment(number)
        return self._warm.is_set() and shared.judged == shared.session.state.records

    def judge_later(self, number: int, record: StepRecord) -> None:
        """Say so, once the posterior before it is in view, if this outcome was improbable."""
        shared = self._experiment(number)
        with shared.turn:
            shared.unasked |= {record.sequence}

    # ---- one at a time

    @contextmanager
    def acting(self, number: int, sequence: int | None) -> Iterator[Session]:
        """Visitors act one after another. `sequence` refuses one who has not seen the latest events
        yet.
        """
        shared = self._experiment(number)
        with shared.turn:
            if sequence is not None and shared.session.state.sequence != sequence:
                raise ConflictError(
                    f"an entry for experiment '{shared.session.name}'",
                    got="one made before something else was entered",
                    expected="one that knows the latest step",
                    fix="look at the page again, which shows it now.",
                )
            yield shared.session

    @contextmanager
    def refining(self, number: int) -> Iterator[Session]:
        """One policy is refined at a time; others may enter outcomes meanwhile."""
        shared = self._experiment(number)
        if not shared.refining.acquire(blocking=False):
            raise BusyError(
                "a refined policy, got one that is being trained, expected none. Fix: wait until "
                "it is done."
            )
        try:
            self.wait_until_warm()
            yield shared.session
        finally:
            shared.refining.release()

    def knowledge(self, number: int) -> Knowledge:
        """What is known by now, computed once for all who watch."""
        shared = self._experiment(number)
        if not self.seats.acquire(blocking=False):
            raise BusyError(
                f"the posterior, got {SEATS} who wait for one, expected fewer. "
                "Fix: ask again in a second."
            )
        try:
            self.wait_until_warm()
            with shared.thinking:
                state = shared.session.state
                if shared.known is None or shared.known.sequence != state.sequence:
                    shared.known = know(shared.session, state, shared.unasked)
                    shared.judged = state.records
                return shared.known
        finally:
            self.seats.release()

    # ---- inside

    def _experiment(self, number: int) -> _Shared:
        with self._turn:
            if number not in self._shared:
                found = next((e for e in self.store.experiments() if e.id == number), None)
                if found is None:
                    raise MissingError(
                        f"the experiment, got number {number}, expected one of the list. "
                        "Fix: look at the list."
                    )
                session = Session.open(
                    self.run,
                    db=self.store,
                    experiment=found.name,
                    particles=self.particles,
                    **self._worth,
                )
                self._shared[number] = _Shared(session)
            return self._shared[number]

    def _state(self, experiment: Experiment) -> ExperimentState:
        state = self.store.state(experiment, self._states.get(experiment.id))
        self._states[experiment.id] = state
        return state

    def _ours(self, experiment: Experiment) -> bool:
        """Looked up by its hashes: those of the run are computed from its files."""
        hashes = experiment.fingerprint, experiment.policy_sha256
        if hashes not in self._fits:
            try:
                require_same(self.run, experiment)
            except ConflictError:
                self._fits[hashes] = False
            else:
                self._fits[hashes] = True
        return self._fits[hashes]

    def _compile(self) -> None:
        try:
            self._on_scratch(lambda session: session.warm())
        finally:
            self._warm.set()

    def _on_scratch(self, act: Callable[[Session], object]) -> None:
        """Act on an experiment that is thrown away. Whoever needs what fails gets the error."""
        with (
            contextlib.suppress(ScorebedError),
            tempfile.TemporaryDirectory() as folder,
            Session.create(self.run, db=Path(folder) / FILE, particles=self.particles) as scratch,
        ):
            act(scratch)


def _in_background(
    work: Callable[[], tuple[ProposedDesign, ...]],
) -> Future[tuple[ProposedDesign, ...]]:
    """Not by an executor, which would not let the server stop while something compiles."""
    promise: Future[tuple[ProposedDesign, ...]] = Future()

    def run() -> None:
        try:
            promise.set_result(work())
        except BaseException as error:
            promise.set_exception(error)

    threading.Thread(target=run, name="next designs", daemon=True).start()
    return promise
