"""One live experiment: `propose` → measure → `observe` → `propose` → …, the same by Python, terminal and web.

A proposal is stored before it is returned and a measurement before it is acknowledged, so that whoever opens the experiment
after a crash is shown the same design, or the next one if the measurement got through. The policy acts by `init`, `design` and
`update`, exactly as in `rollout`; its noise follows from the seed that the experiment stores, and its memory from the measured
steps alone, recomputed from where an undo or a correction changed them. A trial that failed uses up its step and leaves no trace
in the memory.

Threads may share a session, and processes may open sessions on one experiment. Nothing here prints.
"""

import contextlib
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from scorebed.errors import ConflictError, InvalidValueError, ScorebedError
from scorebed.runs.durable import explained, replace_file
from scorebed.runs.load import Run, load
from scorebed.session import export
from scorebed.session import state as states
from scorebed.session.actor import Actor
from scorebed.session.entry import check_design, check_outcome, check_text
from scorebed.session.opening import (
    Opening,
    check_wishes,
    new_values,
    newest_open,
    require_same,
    require_seed,
)
from scorebed.session.posterior import PARTICLES, Beliefs, Marginal, Posterior
from scorebed.session.state import Event, Proposal, Record, State, Vector, after
from scorebed.session.store import Experiment, Store
from scorebed.session.submission import Submission, repeated, require_open, require_step, taken
from scorebed.session.summary import Expectation, summarise
from scorebed.tasks.base import IID, Task

LONGEST_TOKEN, LONGEST_NOTE = 200, 2000


class Session:
    """One experiment of a run. Made by `open` or `create`; a `with` block or `close` lets go of its file.

    Steps count from 1. Designs and outcomes are tuples of floats in the units of the task.
    """

    def __init__(self, run: Run, opening: Opening, experiment: Experiment, *, particles: int = PARTICLES):
        require_same(run, experiment)
        self.run, self.experiment = run, experiment
        self.task: Task = run.task
        self.beliefs = Beliefs(run.task, seed=experiment.seed, particles=particles)
        self._actor = Actor(run.policy, horizon=experiment.horizon, seed=experiment.seed)
        self._store, self._owns_store = opening.store, not opening.given
        opening.kept = True
        self._turn = threading.RLock()
        self._state = State(experiment.horizon)
        self._shown: Proposal | None = None

    # ---- which experiment

    @classmethod
    def open(
        cls,
        run: Run | Path | str,
        *,
        db: Store | Path | str | None = None,
        experiment: str | None = None,
        seed: int | None = None,
        particles: int = PARTICLES,
    ) -> "Session":
        """The experiment of that name, begun if it is not there; without a name, the newest that is not finished, or a new one.

        `db` is the file of experiments, RUN/live.sqlite if left out, or a store that several sessions share. `seed` is for a
        new experiment; it is random if left out.
        """
        loaded = run if isinstance(run, Run) else load(run)
        check_wishes(experiment, seed)
        with Opening(loaded, db) as opening:
            with opening.store.writing():
                found = opening.store.find(experiment) if experiment is not None else newest_open(opening.store, loaded)
                begun = found or opening.store.begin(new_values(loaded, opening.store, experiment, seed))
            require_seed(begun, seed)
            return cls(loaded, opening, begun, particles=particles)

    @classmethod
    def create(
        cls,
        run: Run | Path | str,
        *,
        db: Store | Path | str | None = None,
        experiment: str | None = None,
        seed: int | None = None,
        particles: int = PARTICLES,
    ) -> "Session":
        """A new experiment; `ConflictError` if there is one of that name."""
        loaded = run if isinstance(run, Run) else load(run)
        check_wishes(experiment, seed)
        with Opening(loaded, db) as opening:
            with opening.store.writing():
                begun = opening.store.begin(new_values(loaded, opening.store, experiment, seed))
            return cls(loaded, opening, begun, particles=particles)

    @classmethod
    def import_json(
        cls,
        run: Run | Path | str,
        text: str | bytes | Path,
        *,
        db: Store | Path | str | None = None,
        experiment: str | None = None,
        particles: int = PARTICLES,
    ) -> "Session":
        """An experiment with all of its events, from what `export_json` gave or a file of it. One that is wrong stores none."""
        loaded = run if isinstance(run, Run) else load(run)
        if isinstance(text, Path):
            with explained("reading", text):
                text = text.read_bytes()
        values, events = export.read_json(loaded.task, text)
        if experiment is not None:
            values["name"] = experiment
        check_wishes(values["name"], values["seed"])
        require_same(loaded, Experiment(id=0, **values))
        with Opening(loaded, db) as opening:
            with opening.store.writing():
                begun = opening.store.begin(values)
                for event in events:
                    opening.store.append(begun.id, event.kind, event.step, event.data, token=event.token, at=event.at)
            return cls(loaded, opening, begun, particles=particles)

    def close(self) -> None:
        """Let go of the file, unless the store was handed over. There is nothing to save: all is stored."""
        if self._owns_store:
            self._store.close()

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- where it stands

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
        """Steps taken, pending proposal, notes, with what others have stored. `state.sequence` grows with every event."""
        with self._turn:
            return self._refreshed()

    def history(self) -> list[Event]:
        """Everything that ever happened, in order: undone and corrected things stay."""
        return self._store.events(self.experiment.id)

    # ---- the verbs

    def propose(self) -> Proposal:
        """The design of the next step: the same until it is measured, skipped, or an earlier step is corrected."""
        with self._turn:
            while True:
                known = self._refreshed()
                require_open(self.name, known)
                if known.proposal is None:
                    self._store_proposal(known, self._actor.design(known))
                else:
                    self._shown = known.proposal
                    return known.proposal

    def observe(
        self, y: Any, xi: Any = None, *, step: int | None = None, proposal: int | None = None, token: str | None = None
    ) -> Record:
        """Store the outcome of the next step, measured at ξ if that was not the design proposed.

        `step` or `proposal` (its id) say which step is meant, so that one that came before is recognised: with the same
        values it is answered with what is stored, with others it is refused. They also refuse an outcome of a design that
        was withdrawn, because somebody corrected an earlier step meanwhile. A `token` of the client's own does the same
        for retries. Without any of them the proposal that this session has returned last is meant; clients that share a
        session should say which.
        """
        outcome = check_outcome(self.task, y)
        used = None if xi is None else check_design(self.task, xi)
        if token is not None:
            check_text("the token of a submission", token, longest=LONGEST_TOKEN)
        with self._turn:
            if step is None and proposal is None and self._shown is not None:
                proposal = self._shown.id
            sent = Submission(outcome, used, step, proposal, token)
            while True:
                with self._store.writing():
                    known = self._refreshed()
                    same = repeated(known, sent)
                    if same is not None:
                        return same
                    require_open(self.name, known)
                    if known.proposal is not None:
                        data = {"used": used or known.proposal.design, "y": outcome}
                        after_ = self._append(known, states.OBSERVED, known.step, data, token=token)
                        break
                if used is None:
                    raise ConflictError(
                        f"the outcome of step {known.step}",
                        got="one before its design was proposed",
                        expected="propose() first, or the design that was used",
                        fix="propose, measure there, and then enter the outcome.",
                    )
                self._store_proposal(known, self._actor.design(known))
            return self._settle(after_).records[-1]

    def skip(self, *, step: int | None = None) -> Record:
        """Give up the next step, because the trial failed. Only where steps are independent. `step` as in `observe`."""
        if not isinstance(self.task, IID):
            raise InvalidValueError(
                f"skipping a step of {type(self.task).__name__}",
                got="a task whose next outcome depends on the last",
                expected="independent steps",
                fix="measure this step, or begin another experiment: without an outcome the state is unknown from here on.",
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

    def undo(self, *, step: int | None = None) -> Record | None:
        """Take back the last step, or `finish` if that came last (then None is returned). `step` refuses to undo any other."""
        with self._turn:
            with self._store.writing():
                known = self._refreshed()
                if not known.finished and not known.records:
                    raise ConflictError(
                        "an undo",
                        got="an experiment without a step",
                        expected="one",
                        fix="there is nothing to take back.",
                    )
                if step is not None and (known.finished or step != len(known.records)):
                    raise ConflictError(
                        f"an undo of step {step}",
                        got="the end" if known.finished else f"step {len(known.records)} as the last",
                        expected="that step to be the last",
                        fix="look at the history and try again.",
                    )
                after_ = self._append(known, states.UNDONE, len(known.records), {})
            self._settle(after_)
            return None if known.finished else known.records[-1]

    def correct(self, step: int, y: Any, xi: Any = None) -> Record:
        """Replace the outcome of a step that was measured, and the design used if ξ is given. The next design follows anew."""
        outcome = check_outcome(self.task, y)
        used = None if xi is None else check_design(self.task, xi)
        with self._turn:
            with self._store.writing():
                known = self._refreshed()
                record = known.records[step - 1] if 1 <= step <= len(known.records) else None
                if record is None or record.used is None or known.finished:
                    what = "an experiment that is finished" if known.finished else "no measurement there"
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
        """End the experiment, early or after its last step. Nothing more can be entered unless it is undone."""
        with self._turn:
            with self._store.writing():
                known = self._refreshed()
                if known.finished:
                    return
                after_ = self._append(known, states.FINISHED, known.step, {})
            self._settle(after_)

    # ---- what it says

    def posterior(self) -> Posterior:
        """What is known about the parameters now; `ScorebedError` with the reason where that cannot be said."""
        return self.beliefs.posterior(self.state.records)

    def information(self) -> list[float]:
        """Nats gained before the first measurement (0), after it, and so on."""
        return self.beliefs.information(self.state.records)

    @property
    def expected(self) -> Expectation | None:
        """What the run's record expects by the end; None where it has no bounds."""
        lower, upper = self.run.record.get("lower"), self.run.record.get("upper")
        return None if lower is None or upper is None else Expectation(lower, upper)

    def predictive(self, xi: Any = None) -> tuple[Marginal, ...]:
        """The next outcome at ξ, or at the design that is proposed."""
        used = self.propose().design if xi is None else check_design(self.task, xi)
        return self.beliefs.predict(self.state.records, used)

    def surprise(self, y: Any, xi: Any = None, *, step: int | None = None) -> float:
        """The tail probability of an outcome given what was measured before it (`Beliefs.surprise`), for the next step or one
        that is to be corrected. Below `posterior.IMPROBABLE` a person should be asked; nothing is ever discarded for it."""
        outcome = check_outcome(self.task, y)
        known = self.state
        record = known.records[step - 1] if step is not None and 1 <= step <= len(known.records) else None
        if xi is not None:
            used = check_design(self.task, xi)
        else:
            used = record.used if record is not None and record.used is not None else self.propose().design
        return self.beliefs.surprise(
            known.records if record is None else known.records[: record.step - 1], used, outcome
        )

    def foresee(self, y: Any, xi: Any = None) -> Vector:
        """The design that would follow if the next step gave `y`. Nothing is stored."""
        outcome = check_outcome(self.task, y)
        with self._turn:
            proposal, known = self.propose(), self._refreshed()
            used = proposal.design if xi is None else check_design(self.task, xi)
            event = Event(known.sequence + 1, states.OBSERVED, known.step, "", {"used": used, "y": outcome})
            then = after(known, event)
            require_open(self.name, then)
            return self._actor.design(then)

    def warm(self) -> None:
        """Compile everything before somebody waits for it: designs within milliseconds from here on."""
        with self._turn:
            design = self._actor.warm(self.task.outcome_dim)
        zeros = (0.0,) * self.task.outcome_dim
        first = Record(1, Proposal(0, 1, design, ""), design, zeros, "", 0)
        scratch = Beliefs(self.task, seed=0, particles=self.beliefs.particles)
        with contextlib.suppress(ScorebedError):  # of outcomes that are all zero, which may be impossible
            scratch.posterior([first])
            scratch.surprise([], design, zeros)
            scratch.predict([], design)

    # ---- out of it

    def export_csv(self, path: Path | str | None = None) -> str:
        """The steps as a table: proposed and used designs, outcomes, times, notes. Also written to `path`, at once."""
        return _written(export.to_csv(self.task, self.state), path)

    def export_json(self, path: Path | str | None = None) -> str:
        """The whole experiment with all events, for `import_json`. Also written to `path`, at once."""
        return _written(export.to_json(self.experiment, self.history()), path)

    def summary(self) -> dict[str, Any]:
        """Where the experiment stands and what it says, in plain values for JSON."""
        return summarise(self.experiment, self.path, self.state, self.beliefs, self.expected)

    # ---- inside

    def _refreshed(self) -> State:
        """Take in what other sessions have stored."""
        for event in self._store.events(self.experiment.id, after=self._state.sequence):
            self._state = after(self._state, event)
        return self._state

    def _append(
        self, known: State, kind: str, step: int, data: Mapping[str, Any], *, token: str | None = None
    ) -> State:
        """Store an event inside of a transaction; the state becomes ours once that is over (`_settle`)."""
        return after(known, self._store.append(self.experiment.id, kind, step, data, token=token))

    def _settle(self, state: State) -> State:
        self._state = state
        if state.proposal != self._shown:
            self._shown = None
        return state

    def _store_proposal(self, known: State, design: Vector) -> None:
        """Unless something happened while the design was computed: then it is for the caller to look again."""
        with self._store.writing():
            current = self._refreshed()
            if current.records != known.records or current.proposal is not None or current.finished:
                return
            after_ = self._append(current, states.PROPOSED, current.step, {"design": design})
        self._state = after_


def _written(text: str, path: Path | str | None) -> str:
    if path is not None:
        replace_file(Path(path), text.encode())
    return text
