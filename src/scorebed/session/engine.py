"""One live experiment: `propose` → measure → `observe` → `propose` → …, the same by Python,
terminal and web.

What is entered, and in which order it is stored, is in `ledger`. The policy acts by `init`,
`design` and `update`, exactly as in `rollout`; its noise follows from the seed that the experiment
stores, and its memory from the measured steps alone, recomputed from where an undo or a correction
changed them. A trial that failed uses up its step and leaves no trace in the memory.

Circumstances may change: `limit`, `plan` and `refine` are events too, and can be undone. Nothing
here prints."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax.random as jr

from scorebed.errors import ConflictError
from scorebed.keys import named
from scorebed.policies.base import Policy
from scorebed.runs.durable import explained
from scorebed.runs.load import Run, load
from scorebed.session import export
from scorebed.session import state as states
from scorebed.session.actor import Actor
from scorebed.session.circumstances import (
    Expectation,
    Refined,
    expectation,
    require_plannable,
    require_refinable,
    scope_sentence,
    sentences,
)
from scorebed.session.entry import (
    check_design,
    check_limits,
    check_outcome,
    check_plan,
    check_seconds,
)
from scorebed.session.foresight import Foresight, typical_outcomes
from scorebed.session.ledger import LONGEST_NOTE as LONGEST_NOTE
from scorebed.session.ledger import Choice, Ledger, moved
from scorebed.session.opening import (
    Opening,
    Wishes,
    begin,
    check_wishes,
    find,
    first_events,
    new_values,
    require_circumstances,
    require_same,
    require_seed,
    state_of,
)
from scorebed.session.posterior import PARTICLES, QUANTILES, Beliefs, Marginal, Posterior
from scorebed.session.refine import Outcome, estimate_remaining, refine_policy
from scorebed.session.refined_policy import decode_policy, encode_policy
from scorebed.session.remainder import Remainder, remainder_of, require_designs
from scorebed.session.room import freed, nearest, require_room
from scorebed.session.state import Event, Remaining, State, Vector, after, limits_data
from scorebed.session.store import Experiment, Store
from scorebed.session.submission import require_open
from scorebed.session.summary import summarise
from scorebed.session.trust import Familiarity
from scorebed.tasks.nuisance import has_nuisance

LEAST_RATE = (
    1e-3  # of refining: presets that train for hours are slower than can be seen within seconds
)


class Session(Ledger):
    """One experiment of a run. Made by `open` or `create`; a `with` block or `close` lets go of its
    file.

    Steps count from 1. Designs and outcomes are tuples of floats in the units of the task.
    """

    def __init__(
        self, run: Run, opening: Opening, experiment: Experiment, *, particles: int = PARTICLES
    ):
        require_same(run, experiment)
        Ledger.__init__(self, run.task, opening.store, experiment)
        self.run = run
        self.beliefs = Beliefs(run.task, seed=experiment.seed, particles=particles)
        self._familiar = Familiarity(run)
        self._actors: dict[str | None, Actor] = {}
        self._owns_store = not opening.given
        opening.kept = True

    # ---- which experiment

    @classmethod
    def open(
        cls,
        run: Run | Path | str,
        *,
        db: Store | Path | str | None = None,
        experiment: str | None = None,
        seed: int | None = None,
        steps: int | None = None,
        limits: tuple[Any, Any] | None = None,
        particles: int = PARTICLES,
    ) -> "Session":
        """The experiment of that name, begun if it is not there; without a name, the newest that is
        not finished, or a new one.

        `db` is the file of experiments, RUN/live.sqlite if left out, or a store that several
        sessions share. `seed`, `steps` and `limits` (low, high) are for a new experiment: random,
        as trained and none if left out; `plan` and `limit` change the latter two in the middle."""
        asked = Wishes(experiment, seed, steps, limits)
        return cls._found_or_begun(
            run, db, asked, lambda store, run: find(store, run, experiment), particles
        )

    @classmethod
    def create(
        cls,
        run: Run | Path | str,
        *,
        db: Store | Path | str | None = None,
        experiment: str | None = None,
        seed: int | None = None,
        steps: int | None = None,
        limits: tuple[Any, Any] | None = None,
        particles: int = PARTICLES,
    ) -> "Session":
        """A new experiment; `ConflictError` if there is one of that name. Everything else as in
        `open`.
        """
        asked = Wishes(experiment, seed, steps, limits)
        return cls._found_or_begun(run, db, asked, lambda *_: None, particles)

    @classmethod
    def _found_or_begun(
        cls,
        run: Run | Path | str,
        db: Store | Path | str | None,
        asked: Wishes,
        look: Callable[[Store, Run], Experiment | None],
        particles: int,
    ) -> "Session":
        """What `look` finds, under the circumstances that are asked for, or a new experiment under
        them.
        """
        loaded = run if isinstance(run, Run) else load(run)
        check_wishes(asked.name, asked.seed)
        first = first_events(loaded, asked)
        with Opening(loaded, db) as opening:
            store = opening.store
            with store.writing():
                found = look(store, loaded)
                begun = found or begin(store, new_values(loaded, store, asked), first)
            if found is not None:
                require_seed(found, asked.seed)
                require_circumstances(loaded, found.name, state_of(store, found), asked)
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
        """An experiment with all of its events, from what `export_json` gave or a file of it. One
        that is wrong stores none.
        """
        loaded = run if isinstance(run, Run) else load(run)
        if isinstance(text, Path):
            with explained("reading", text):
                text = text.read_bytes()
        values, events, policies = export.read_json(loaded.task, text)
        if experiment is not None:
            values["name"] = experiment
        check_wishes(values["name"], values["seed"])
        require_same(loaded, Experiment(id=0, **values))
        for event in events:
            if event.kind == states.REFINED:
                _decoded(loaded, policies[event.data["policy"]], event.data["horizon"])
        with Opening(loaded, db) as opening:
            with opening.store.writing():
                begun = opening.store.begin(values)
                for data in policies.values():
                    opening.store.keep(data)
                for event in events:
                    opening.store.append(
                        begun.id, event.kind, event.step, event.data, token=event.token, at=event.at
                    )
            return cls(loaded, opening, begun, particles=particles)

    def close(self) -> None:
        """Let go of the file, unless the store was handed over. There is nothing to save: all is
        stored.
        """
        if self._owns_store:
            self._store.close()

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- changed circumstances

    def limit(self, low: Any = None, high: Any = None) -> State:
        """Tighter limits for the designs of this experiment from now on; without numbers those
        before are lifted.

        One number per design coordinate, None where there is no limit. What the policy wants
        outside is moved to the nearest allowed design, and the proposal says so. A measurement
        elsewhere is stored all the same. Where the task ties designs together both hold, and limits
        that leave no room for the steps to come are refused."""
        limits = check_limits(self.task, low, high)
        require_room(self.task, self.state, limits)
        return self._change(
            states.LIMITED, limits_data(limits), same=lambda known: known.limits == limits
        )

    def plan(self, steps: Any) -> State:
        """Another number of steps in all than the policy was trained for; `circumstances` says what
        that means.
        """
        horizon = check_plan(steps)
        require_plannable(self.run.policy, horizon, self.task.horizon)
        taken = len(self.state.records)
        if horizon < taken:
            raise ConflictError(
                "the number of steps",
                got=horizon,
                expected=f"at least the {taken} that are taken",
                fix="undo steps first, or finish the experiment.",
            )
        return self._change(
            states.PLANNED, {"horizon": horizon}, same=lambda known: known.horizon == horizon
        )

    def refine(self, seconds: Any = 30.0, *, by: str | None = None) -> Refined:
        """Train the policy on what is known now, for the steps that remain, within about so many
        seconds, compiling included.

        By the trained score where the experiment will have as many measurements as it was trained
        for, otherwise by PCE on the particles of the posterior; `by` ("score" or "pce") insists.
        The policy is kept only if it is better on draws that its training has not seen, by two
        standard errors; it is stored with the event, and the next design is proposed anew. Others
        may go on meanwhile; if they enter something, nothing is kept."""
        begun = time.monotonic()
        allowed = check_seconds(seconds)
        known = self.state
        require_open(self.name, known)
        require_refinable(self.task, self.run.policy)
        rest = self._remainder(known)
        score = rest.score_for(self.run.score, by)
        outcome = refine_policy(
            rest.task,
            rest.policy,
            score,
            rate=max(self.run.config.policy_training.learning_rate, LEAST_RATE),
            seconds=allowed - (time.monotonic() - begun),
            key=named(jr.key(self.experiment.seed), "refine", known.sequence),
        )
        spent = time.monotonic() - begun
        kept = outcome.better or (rest.lacking and outcome.steps > 0)
        before = None if rest.lacking else outcome.before
        if kept:
            self._store_refined(known, outcome, before, spent)
        return Refined(
            kept,
            outcome.by,
            outcome.steps,
            spent,
            before,
            outcome.after,
            outcome.gain,
            outcome.gain_se,
        )

    # ---- what it says

    def posterior(self) -> Posterior:
        """What is known about the parameters now; `ScorebedError` with the reason where that cannot
        be said.
        """
        return self.beliefs.posterior(self.state.records)

    def information(self) -> list[float]:
        """Nats gained before the first measurement (0), after it, and so on."""
        return self.beliefs.information(self.state.records)

    @property
    def expected(self) -> Expectation | None:
        """The information to expect by the end: the bounds of the run's record, or those found when
        the policy was refined; None where there are none, or none that apply under the
        circumstances, or to all parameters (`scope`).
        """
        return (
            None
            if has_nuisance(self.task)
            else expectation(self.run.record, self.state, self.task.horizon)
        )

    def scope(self) -> str | None:
        """A sentence where the information is about more than the run's bounds are: in a task with
        nuisance parameters.
        """
        return scope_sentence(self.task, self.run.record, self.state)

    def forecast(self) -> Remaining:
        """What the remaining steps are expected to add, in nats, with the policy and the
        circumstances as they are.

        Added to the information so far it gives what to expect by the end. Compiles anew at every
        step, for seconds."""
        known = self.state
        require_open(self.name, known)
        with self._turn:
            require_designs(self._actor(known).policy, known)
        rest = self._remainder(known)
        key = named(jr.key(self.experiment.seed), "forecast", known.sequence)
        return estimate_remaining(rest.task, rest.policy, key=key)

    def circumstances(self) -> tuple[str, ...]:
        """What is different from the experiments for which the policy was trained, and what that
        means; one sentence each.
        """
        known, task = self.state, self.task
        return sentences(
            self.run.record, known, self.run.policy, task.designs.quantities, task.horizon
        )

    def warnings(self) -> tuple[str, ...]:
        """Sentences about designs, used or proposed, that the policy or its score have not met in
        training.
        """
        return self._familiar.warnings(self.state)

    def predictive(self, xi: Any = None) -> tuple[Marginal, ...]:
        """The next outcome at ξ, or at the design that is proposed."""
        used = self.propose().design if xi is None else check_design(self.task, xi)
        return self.beliefs.predict(self.state.records, used)

    def surprise(self, y: Any, xi: Any = None, *, step: int | None = None) -> float:
        """The tail probability of an outcome given what was measured before it
        (`Beliefs.surprise`), for the next step or one that is to be corrected. Below
        `posterior.IMPROBABLE` a person should be asked; nothing is ever discarded for it.
        """
        outcome = check_outcome(self.task, y)
        known = self.state
        record = (
            known.records[step - 1]
            if step is not None and 1 <= step <= len(known.records)
            else None
        )
        if xi is not None:
            used = check_design(self.task, xi)
        else:
            used = (
                record.used
                if record is not None and record.used is not None
                else self.propose().design
            )
        return self.beliefs.surprise(
            known.records if record is None else known.records[: record.step - 1], used, outcome
        )

    def foresee(self, y: Any, xi: Any = None) -> Vector:
        """The design that would follow if the next step gave `y`. Nothing is stored."""
        outcome = check_outcome(self.task, y)
        with self._turn:
            proposal, known = self.propose(), self._refreshed()
            used = proposal.design if xi is None else check_design(self.task, xi)
            event = Event(
                known.sequence + 1, states.OBSERVED, known.step, "", {"used": used, "y": outcome}
            )
            then = after(known, event)
            require_open(self.name, then)
            return self._chosen(then).design

    def outlook(self) -> tuple[Foresight, ...]:
        """Which design would follow which outcome: a few outcomes from low to high, at `QUANTILES`
        of what to expect.
        """
        outcomes = self.beliefs.outcomes(self.state.records, self.propose().design)
        typical = typical_outcomes(outcomes, QUANTILES)
        return tuple(
            Foresight(level, y, self.foresee(y))
            for level, y in zip(QUANTILES, typical, strict=True)
        )

    def warm(self) -> None:
        """Compile everything before somebody waits for it: designs within milliseconds from here
        on.
        """
        with self._turn:
            design = self._actor(self._refreshed()).warm(self.task.outcome_dim)
        self._familiar.warm()
        self.beliefs.warm(design)

    # ---- out of it

    def export_csv(self, path: Path | str | None = None) -> str:
        """The steps as a table: proposed and used designs, outcomes, times, notes. Also written to
        `path`, at once.
        """
        return export.written(export.to_csv(self.task, self.state), path)

    def export_json(self, path: Path | str | None = None) -> str:
        """The whole experiment with all events, for `import_json`. Also written to `path`, at
        once.
        """
        return export.written(
            export.to_json(self.experiment, self.history(), self._store.kept), path
        )

    def summary(self) -> dict[str, Any]:
        """Where the experiment stands and what it says, in plain values for JSON."""
        told = self.circumstances(), self.warnings(), self.scope()
        return summarise(self.experiment, self.path, self.state, self.beliefs, self.expected, *told)

    # ---- inside

    def _chosen(self, known: State) -> Choice:
        wanted = self._actor(known).design(known)
        return Choice(nearest(self.task, known, wanted), wanted)

    def _actor(self, known: State) -> Actor:
        """The policy of now; those before are kept, for an undo."""
        name = None if known.refinement is None else known.refinement.policy
        if name not in self._actors:
            policy = self._policy(known)
            self._actors[name] = Actor(policy, horizon=self.task.horizon, seed=self.experiment.seed)
        return self._actors[name]

    def _policy(self, known: State) -> Policy:
        if known.refinement is None:
            return self.run.policy
        return _decoded(
            self.run, self._store.kept(known.refinement.policy), known.refinement.horizon
        )

    def _remainder(self, known: State) -> Remainder:
        with self._turn:
            policy = self._actor(known).policy
        return remainder_of(self.task, policy, known, self.beliefs.posterior(known.records).theta)

    def _store_refined(
        self, known: State, outcome: Outcome, before: Remaining | None, spent: float
    ) -> None:
        """The policy and its event, at once."""
        data = encode_policy(freed(outcome.policy), self.experiment.fingerprint)
        information = self.beliefs.posterior(known.records).information
        with self._turn:
            with self._store.writing():
                current = self._refreshed()
                if moved(known, current) or current.finished:
                    raise ConflictError(
                        "a refined policy",
                        got="something that was entered while it was trained",
                        expected="the steps and the circumstances that it was trained for",
                        fix="refine again.",
                    )
                event = {
                    "policy": self._store.keep(data),
                    "horizon": known.horizon,
                    "by": outcome.by,
                    "steps": outcome.steps,
                    "seconds": spent,
                    "before": None if before is None else before.plain(),
                    "after": outcome.after.plain(),
                    "information": information,
                }
                after_ = self._append(current, states.REFINED, current.step, event)
            self._settle(after_)


def _decoded(run: Run, data: bytes, horizon: int) -> Policy:
    return decode_policy(
        data, run.policy, horizon=horizon, trained=run.task.horizon, where="the refined policy"
    )
