"""The experiments of one run's file, each with one session that all of its visitors share."""

import tempfile
import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from scorebed.errors import ConflictError, ScorebedError
from scorebed.runs.load import Run
from scorebed.session.events import ExperimentState
from scorebed.session.opening import FILE
from scorebed.session.policy_runner import require_same
from scorebed.session.posterior import PARTICLES
from scorebed.session.session import Session
from scorebed.session.store import Experiment, Store
from scorebed.web.knowledge import Knowledge, know

REMEMBERED = 1000  # tokens of new experiments
# Visitors that may wait for a posterior at once: the framework has 40 threads, designs need some.
SEATS = 8


class ListedExperiment(NamedTuple):
    """One line of the list. `ours` if this run can go on with it: others may share the file."""

    experiment: Experiment
    state: ExperimentState
    ours: bool


class MissingError(ScorebedError):
    """An experiment that does not exist."""


class BusyError(ScorebedError):
    """Too many visitors wait for a posterior."""


class _Shared:
    """One experiment while the server runs, shared by its visitors."""

    def __init__(self, session: Session):
        self.session = session
        self.turn = threading.RLock()
        self.thinking = threading.Lock()
        self.refining = threading.Lock()
        self.known: Knowledge | None = None


class Hub:
    """Threads share a hub. Everything lasting is in the store, so that a terminal may take part in
    the same experiment.
    """

    def __init__(self, run: Run, *, db: Path | None = None, particles: int = PARTICLES):
        self.run, self.particles = run, particles
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

    def warm(self) -> None:
        """Compile in the background what the first visitor would wait for. Posteriors wait for it,
        so that nothing is compiled twice.
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
                self.run, db=self.store, experiment=name, seed=seed, particles=self.particles
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
                    shared.known = know(shared.session, state)
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
                    self.run, db=self.store, experiment=found.name, particles=self.particles
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
            with (
                tempfile.TemporaryDirectory() as folder,
                Session.create(
                    self.run, db=Path(folder) / FILE, particles=self.particles
                ) as scratch,
            ):
                scratch.warm()
        except ScorebedError:
            pass  # whoever asks for it gets the error
        finally:
            self._warm.set()
