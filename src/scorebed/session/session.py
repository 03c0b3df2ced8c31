"""One live experiment: `propose` → measure → `observe` → `propose` → …, the same by Python,
terminal and web. `ask` and `tell` are other names of the two, for loops that know these.

What is entered is checked once (`validation`), compared with what is recorded (`conflicts`) and
stored (`journal`). The policy acts exactly as in `rollout`, on the measured steps alone: a trial
that failed uses up its step and leaves no trace in its memory. Nothing here prints."""

import contextlib
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, overload

import jax.random as jr
from jaxtyping import PRNGKeyArray

from scorebed.errors import ScorebedError
from scorebed.keys import named
from scorebed.runs.load import Run
from scorebed.session import (
    conflicts,
    io,
    messages,
    refine,
    remaining,
    side_by_side,
    validation,
    what_if,
)
from scorebed.session.ahead import InformationAhead, information_ahead
from scorebed.session.arviz_data import to_arviz
from scorebed.session.conflicts import require_open
from scorebed.session.events import (
    Change,
    Event,
    ExperimentState,
    Kind,
    ProposedDesign,
    Remaining,
    StepRecord,
    Vector,
    limits_data,
)
from scorebed.session.familiarity import Familiarity
from scorebed.session.journal import Choice, Journal, observed
from scorebed.session.opening import RunOrPath, StoreOrPath, import_experiment, open_experiment
from scorebed.session.policy_runner import PolicyRunners, encode_policy
from scorebed.session.posterior import PARTICLES, QUANTILES, Beliefs, MarginalSummary, Posterior
from scorebed.session.refine import RefineResult
from scorebed.session.side_by_side import imputed, predictive_draws
from scorebed.session.stopping import StoppingAdvice, StoppingRule, advise
from scorebed.session.store import Experiment, Store
from scorebed.session.what_if import Expectation, Foresight
from scorebed.tasks.nuisance import has_nuisance


class Session:
    """One live experiment of a run. Made by `open`, `create` or `import_json`; a `with` block or
    `close` lets go of its file.

    Steps count from 1. Designs and outcomes are tuples of floats in the units of the task.

    Attributes:
        run: the run.
        task: its task.
        experiment: the name, seed and hashes of the experiment.
        beliefs: the posteriors along the experiment.
        name: the name of the experiment.
        path: the file of experiments.
        state: steps, pending proposal and notes.
        expected: the information to expect by the end, or None.

    Methods:
        open: the experiment of a name, begun if it does not exist.
        create: a new experiment.
        import_json: an experiment from what `export_json` gave.
        close: let go of the file.
        history: all events, in order.
        propose: the design of the next step.
        ask: the same by another name, or several designs at once.
        observe: store the outcome of the next step.
        tell: the same by another name.
        exchange: the same, and choose the following design at once.
        skip: use up a step whose trial failed.
        undo: take back the last step or change.
        correct: replace the outcome of an earlier step.
        note: keep a remark with the next step.
        finish: end the experiment.
        limit: tighter limits for the designs from now on.
        set_horizon: another number of steps.
        refine: train the policy for the remaining steps.
        posterior: what the data say about the parameters.
        information: nats gained after every measurement.
        scope: a sentence if the information includes nuisance parameters.
        ahead: bounds on what the next k steps tell, for every k.
        stopping: whether it is time to stop, by a price or a threshold.
        stopping_sentence: the same in words.
        forecast: the information that the remaining steps are expected to add.
        circumstances: what differs from the experiments of training.
        warnings: designs unlike those of training.
        predictive: the distribution of the next outcome.
        surprise: the tail probability of an outcome.
        foresee: the design that would follow an outcome.
        outlook: the designs that would follow typical outcomes.
        warm: compile everything in advance.
        warm_policy: compile what designs need, and no more.
        to_arviz: the posterior and the data in ArviZ's format.
        export_csv: the steps as a table.
        export_json: the whole experiment.
        summary: where the experiment stands, in plain values.

    Example:
        >>> with sb.Session.open("runs/linear-gaussian-score-1", experiment="tuesday") as session:
        ...     design = session.propose().design
        ...     record = session.observe(0.7)
        >>> len(design), record.step
        (1, 1)
    """

    def __init__(
        self,
        run: Run,
        store: Store,
        experiment: Experiment,
        owned: bool,
        *,
        particles: int,
        rule: StoppingRule | None = None,
    ):
        if rule is not None:
            rule.require_cost(run.task)
        self.run, self.task, self.experiment, self.rule = run, run.task, experiment, rule
        self.beliefs = Beliefs(run.task, seed=experiment.seed, particles=particles)
        self._store, self._owned = store, owned
        self._journal = Journal(store, experiment, lambda state: self._chosen(state))
        self._familiarity = Familiarity(run)
        self._runners = PolicyRunners(run, store, experiment.seed)
        self._ahead: tuple[ExperimentState, InformationAhead] | None = None
        self._looking = threading.Lock()

    # ---- which experiment

    @classmethod
    def open(
        cls,
        run: RunOrPath,
        *,
        db: StoreOrPath = None,
        experiment: str | None = None,
        seed: int | None = None,
        steps: int | None = None,
        limits: Any = None,
        price_per_nat: float | None = None,
        stop_below: float | None = None,
        particles: int = PARTICLES,
    ) -> "Session":
        """The experiment of that name, begun if it does not exist; without a name, the newest that
        is not finished, or a new one.

        `db` is the file of experiments, RUN/live.sqlite if left out, or a store that several
        sessions share. `seed`, `steps` and `limits` (low, high) are for a new experiment: random,
        as trained and none if left out; `set_horizon` and `limit` change the latter two later.
        `price_per_nat` and `stop_below` are what `stopping` goes by; they are not stored."""
        rule = StoppingRule.of(price_per_nat, stop_below)
        opened = open_experiment(run, db, experiment, seed, steps, limits)
        return cls(*opened, particles=particles, rule=rule)

    @classmethod
    def create(
        cls,
        run: RunOrPath,
        *,
        db: StoreOrPath = None,
        experiment: str | None = None,
        seed: int | None = None,
        steps: int | None = None,
        limits: Any = None,
        price_per_nat: float | None = None,
        stop_below: float | None = None,
        particles: int = PARTICLES,
    ) -> "Session":
        """A new experiment; `ConflictError` if the name exists. Everything else as in `open`."""
        rule = StoppingRule.of(price_per_nat, stop_below)
        created = open_experiment(run, db, experiment, seed, steps, limits, new=True)
        return cls(*created, particles=particles, rule=rule)

    @classmethod
    def import_json(
        cls,
        run: RunOrPath,
        text: str | bytes | Path,
        *,
        db: StoreOrPath = None,
        experiment: str | None = None,
        particles: int = PARTICLES,
    ) -> "Session":
        """An experiment with all of its events, from what `export_json` gave or a file of it. One
        that is wrong anywhere stores nothing.
        """
        return cls(*import_experiment(run, db, text, name=experiment), particles=particles)

    def close(self) -> None:
        """Let go of the file, unless the store was passed in. Everything is stored already."""
        if self._owned:
            self._store.close()

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def name(self) -> str:
        """Name of the experiment."""
        return self.experiment.name

    @property
    def path(self) -> Path:
        """The file of experiments."""
        return self._store.path

    @property
    def state(self) -> ExperimentState:
        """Steps, pending proposal and notes, with what others have stored until now."""
        return self._journal.state

    def history(self) -> list[Event]:
        """Everything that ever happened, in order, undone and corrected things included."""
        return self._store.events(self.experiment.id)

    # ---- steps

    def propose(self) -> ProposedDesign:
        """The design of the next step: the same until it is measured or skipped, or an earlier step
        or the circumstances change. `wanted` is what the policy asked for if limits forbid it.
        """
        return self._journal.propose()

    @overload
    def ask(self) -> ProposedDesign: ...

    @overload
    def ask(self, count: int) -> tuple[ProposedDesign, ...]: ...

    def ask(self, count: int | None = None) -> ProposedDesign | tuple[ProposedDesign, ...]:
        """`propose` by the name that other libraries have for it; or, with a number, so many
        designs that are measured side by side (fewer if fewer steps are left).

        Outcomes come back in any order, each with `proposal=design.id`; asked again, the designs
        that still wait for theirs are returned with new ones beside them. Only where steps are
        independent (`side_by_side`)."""
        if count is None:
            return self.propose()
        return self._journal.ask(side_by_side.check_count(self.task, count))

    def observe(
        self,
        y: Any,
        xi: Any = None,
        *,
        step: int | None = None,
        proposal: int | None = None,
        token: str | None = None,
    ) -> StepRecord:
        """Store the outcome of the next step, measured at ξ if that was not the design proposed.

        `step` or `proposal` (its id) say which step is meant, so that a repetition is recognised:
        with the same values it is answered with what is stored, with others it is refused, as is
        an outcome for a design that was withdrawn. A client's own `token` does the same for
        retries. Without any of them the proposal that this session returned last is meant; clients
        that share a session should say which. The design used may lie outside of the experiment's
        limits: it is what happened. A `validation.ParsedEntry` as `y` holds both."""
        sent = validation.check_submission(self.task, y, xi, step, proposal, token)
        return self._journal.enter(sent, with_next=False)

    tell = observe

    def exchange(
        self,
        y: Any,
        xi: Any = None,
        *,
        step: int | None = None,
        proposal: int | None = None,
        token: str | None = None,
    ) -> StepRecord:
        """`observe`, with the proposal that follows stored by the same write to the disk. Where
        there is none, or others have entered something meanwhile, the outcome is stored alone.
        """
        sent = validation.check_submission(self.task, y, xi, step, proposal, token)
        return self._journal.enter(sent, with_next=True)

    def skip(self, *, step: int | None = None, proposal: int | None = None) -> StepRecord:
        """Give up the next step because the trial failed. Only where steps are independent. `step`
        and `proposal` as in `observe`.
        """
        conflicts.require_skippable(self.task)
        while True:
            with self._journal.transaction() as entry:
                before = conflicts.repeated_skip(entry.state, step, proposal)
                if before is not None:
                    return before
                require_open(self.name, entry.state)
                conflicts.require_step(entry.state, step)
                if entry.state.pending:
                    meant = conflicts.meant(entry.state, proposal)
                    first = meant == entry.state.proposal
                    named = {} if first else {"proposal": meant.id}
                    return entry.append(Kind.SKIPPED, named).records[-1]
            self.propose()

    def undo(self, *, step: int | None = None) -> StepRecord | Change | None:
        """Take back what came last: a step, a change of the circumstances, or `finish` (then None
        is returned). `step` refuses to undo anything but that step.
        """
        with self._journal.transaction() as entry:
            last = conflicts.undoable(entry.state, step)
            entry.append(Kind.UNDONE, {}, step=len(entry.state.records))
            return last

    def correct(self, step: int, y: Any, xi: Any = None) -> StepRecord:
        """Replace the outcome of a measured step, and the design used if ξ is given."""
        given = validation.check_entry(self.task, y, xi)
        with self._journal.transaction() as entry:
            record = conflicts.correctable(entry.state, step)
            used = given.xi or record.used
            if (record.used, record.y) == (used, given.y):
                return record
            data = {"used": used, "y": given.y}
            return entry.append(Kind.CORRECTED, data, step=step).records[step - 1]

    def note(self, text: str) -> None:
        """Keep a remark with the next step."""
        validation.check_note(text)
        with self._journal.transaction() as entry:
            entry.append(Kind.NOTED, {"text": text})

    def finish(self) -> None:
        """End the experiment, early or after its last step. Only an undo lets it go on."""
        with self._journal.transaction() as entry:
            if not entry.state.finished:
                entry.append(Kind.FINISHED, {})

    # ---- changed circumstances

    def limit(self, low: Any = None, high: Any = None) -> ExperimentState:
        """Tighter limits for the designs from now on; without numbers, earlier ones are lifted.

        One number per design coordinate, None where there is no limit. What the policy wants
        outside is moved to the nearest allowed design, and the proposal says so. A measurement
        elsewhere is stored all the same. Where the task ties designs together both hold, and limits
        that leave no design for some step are refused."""
        limits = validation.check_limits(self.task, low, high)
        remaining.require_feasible(self.task, self.state, limits)
        return self._change(Kind.LIMITED, limits_data(limits), lambda now: now.limits == limits)

    def set_horizon(self, steps: Any) -> ExperimentState:
        """Another number of steps in all than the policy was trained for; `circumstances` says what
        that means.
        """
        horizon = validation.check_horizon(steps, self.run.policy)
        conflicts.require_horizon(self.state, horizon)
        return self._change(Kind.PLANNED, {"horizon": horizon}, lambda now: now.horizon == horizon)

    def refine(self, seconds: Any = 30.0, *, by: str | None = None) -> RefineResult:
        """Train the policy on what is known, for the remaining steps, within about so many seconds,
        compiling included.

        By the trained score where the experiment will have as many measurements as it was trained
        for, otherwise by PCE on the particles of the posterior; `by` ("score" or "pce") insists.
        The policy is kept if it is better by two standard errors, on draws that its training has
        not seen; the next design is then chosen again. If others enter something meanwhile, nothing
        is kept."""
        begun, allowed, state = time.monotonic(), validation.check_seconds(seconds), self.state
        require_open(self.name, state)
        refine.require_refinable(self.task, self.run.policy)
        result, policy = refine.refine_remaining(
            self._remaining(state),
            self.run.score,
            by=by,
            rate=refine.usual_rate(self.run),
            seconds=allowed,
            begun=begun,
            key=self._key("refine", state),
        )
        if result.kept:
            data = encode_policy(policy, self.experiment.fingerprint)
            information = self.beliefs.posterior(state.records).information
            with self._journal.transaction() as entry:
                conflicts.require_as_trained_for(state, entry.state)
                event = result.event(self._store.keep(data), state.horizon, information)
                entry.append(Kind.REFINED, event)
        return result

    # ---- what it says

    def posterior(self) -> Posterior:
        """What is known about the parameters; `ScorebedError` where that cannot be said."""
        return self.beliefs.posterior(self.state.records)

    def information(self) -> list[float]:
        """Nats gained before the first measurement (0), after it, and so on."""
        return self.beliefs.information(self.state.records)

    @property
    def expected(self) -> Expectation | None:
        """The information to expect by the end: before anything is measured the bounds of the run's
        record, or those found when the policy was refined; then the information so far plus bounds
        of what the steps left will add (`ahead`), two standard errors included. None where none
        apply, or not to all parameters (`scope`).
        """
        state = self.state
        if has_nuisance(self.task):
            return None
        if state.measured and not state.complete and not state.finished:
            with contextlib.suppress(ScorebedError):
                gained = self.beliefs.posterior(state.records).information
                found = what_if.plus(gained, self.ahead().remaining, errors=2.0)
                if found is not None:
                    return found
        return what_if.expectation(self.run.record.bounds, state, self.task.horizon)

    def scope(self) -> str | None:
        """A sentence if the information is about more than the run's bounds: about nuisances."""
        return messages.scope_sentence(self.task, self.run.record.bounds, self.state)

    def forecast(self) -> Remaining:
        """What the remaining steps are expected to add, in nats, with the policy and circumstances
        as they are. Compiles at every step, for seconds.
        """
        state = self.state
        require_open(self.name, state)
        rest = self._remaining(state)
        rest.require_designs()
        return refine.estimate_remaining(rest.task, rest.policy, key=self._key("forecast", state))

    def ahead(self) -> InformationAhead:
        """Bounds on what the next k steps tell under this policy and these circumstances, for every
        k up to the steps left. Compiled once; then some 10⁷ likelihoods a step.
        """
        with self._looking:
            state = self.state
            if self._ahead is not None:
                seen, known = self._ahead
                if seen.continues_as(state) and seen.sent_out == state.sent_out:
                    return known
            require_open(self.name, state)
            with self._journal.choosing:
                runner = self._runners.at(state)
                chance = runner.noise(max(state.horizon, self.task.horizon))
            policy = runner.policy
            remaining.require_designs(policy.lacks_designs(state.measurements))
            theta = self.beliefs.posterior(state.records).theta
            key = named(jr.key(self.experiment.seed), "ahead", len(state.measured))
            found = information_ahead(self.task, policy, chance, state, theta, key=key)
            self._ahead = state, found
            return found

    def stopping(
        self, *, price_per_nat: float | None = None, stop_below: float | None = None
    ) -> StoppingAdvice | None:
        """Whether it is time to stop, in a sentence; None if no step is left, or nobody said what a
        nat is worth: here, or when the session was opened.

        Stop if for no k up to the steps left the upper bound (plus two errors) of what the next k
        steps tell, times `price_per_nat`, exceeds their cost; or if neither the next step nor all
        of the rest tell `stop_below` nats. Nothing is done about it. `ScorebedError` where the
        posterior is missing, or too rough to say."""
        rule, state = StoppingRule.of(price_per_nat, stop_below) or self.rule, self.state
        if rule is None or state.finished or state.complete:
            return None
        rule.require_cost(self.task)
        if rough := self.beliefs.posterior(state.records).warning:
            raise ScorebedError(f"Nothing is said about stopping. {rough}")
        return advise(rule, self.ahead(), self.task.cost)

    def stopping_sentence(self) -> str | None:
        """`stopping` in words, or why nothing is said."""
        try:
            advice = self.stopping()
        except ScorebedError as error:
            return str(error)
        return None if advice is None else advice.sentence

    def circumstances(self) -> tuple[str, ...]:
        """What differs from the experiments that the policy was trained on; a sentence each."""
        bounds = self.run.record.bounds
        return messages.circumstances(bounds, self.state, self.run.policy, self.task)

    def warnings(self) -> tuple[str, ...]:
        """Sentences about designs that the policy or its score have not met in training."""
        return self._familiarity.warnings(self.state)

    def predictive(self, xi: Any = None) -> tuple[MarginalSummary, ...]:
        """The next outcome at ξ, or at the design that is proposed."""
        used = self.propose().design if xi is None else validation.check_design(self.task, xi)
        return self.beliefs.predict(self.state.records, used)

    def surprise(self, y: Any, xi: Any = None, *, step: int | None = None) -> float:
        """The tail probability of an outcome given what was measured before it
        (`Beliefs.surprise`), for the next step or one that is to be corrected. Below
        `posterior.IMPROBABLE` a person should be asked; nothing is ever discarded for it.
        """
        given, records = validation.check_entry(self.task, y, xi), self.state.records
        used = given.xi
        if step is not None and 1 <= step <= len(records):
            used, records = used or records[step - 1].used, records[: step - 1]
        return self.beliefs.surprise(records, used or self.propose().design, given.y)

    def foresee(self, y: Any, xi: Any = None) -> Vector:
        """The design that would follow if the next step gave `y`. Nothing is stored."""
        given = validation.check_entry(self.task, y, xi)
        proposal = self.propose()
        sent = validation.Submission(*given, proposal=proposal.id)
        with self._journal.choosing:
            then = observed(self.state, sent)
            require_open(self.name, then)
            return self._chosen(then).design

    def outlook(self) -> tuple[Foresight, ...]:
        """Which design would follow which outcome, for outcomes at `QUANTILES` from low to high."""
        outcomes = self.beliefs.outcomes(self.state.records, self.propose().design)
        at = what_if.typical_outcomes(outcomes, QUANTILES, discrete=self.task.discrete_outcomes)
        typical = zip(QUANTILES, at, strict=True)
        return tuple(Foresight(level, y, self.foresee(y)) for level, y in typical)

    def warm(self, on_part: Callable[[str], None] = lambda _: None) -> None:
        """Compile everything before somebody waits for it; designs then take milliseconds.
        `on_part` hears what is about to be compiled.
        """
        on_part("designs")
        design = self.warm_policy()
        on_part("what the policy knows")
        self._familiarity.warm()
        for part in self.beliefs.warming(design):
            on_part(part)
        on_part("what is still to come")
        with contextlib.suppress(ScorebedError):  # whoever asks for it gets the error
            self.ahead()

    def warm_policy(self) -> Vector:
        """Compile what designs need, and no more; gives the first one."""
        with self._journal.choosing:
            return self._runners.at(self.state).warm(self.task.outcome_dim)

    def to_arviz(self) -> Any:
        """Posterior, prior, outcomes and designs in ArviZ's format: `InferenceData`, or `DataTree`
        from its version 1 on. Needs `pip install 'scorebed[arviz]'`.
        """
        state = self.state
        prior, posterior = self.beliefs.posterior(()), self.beliefs.posterior(state.records)
        return to_arviz(self.task, state, prior, posterior)

    def export_csv(self, path: Path | str | None = None) -> str:
        """The steps as a table with designs, outcomes, times and notes. Also written to `path`."""
        return io.written(io.to_csv(self.task, self.state), path)

    def export_json(self, path: Path | str | None = None) -> str:
        """The whole experiment with all events, for `import_json`. Also written to `path`."""
        return io.written(io.to_json(self.experiment, self.history(), self._store.kept), path)

    def summary(self) -> dict[str, Any]:
        """Where the experiment stands and what it says, in plain values for JSON."""
        said = (
            self.expected,
            self.circumstances(),
            self.warnings(),
            self.scope(),
            self.stopping_sentence(),
        )
        return io.summarise(self.experiment, self.path, self.state, self.beliefs, *said)

    # ---- inside

    def _change(
        self, kind: Kind, data: Mapping[str, Any], in_force: Callable[[ExperimentState], bool]
    ) -> ExperimentState:
        """Store other circumstances, unless they are in force already."""
        with self._journal.transaction() as entry:
            conflicts.require_changeable(self.name, entry.state)
            return entry.state if in_force(entry.state) else entry.append(kind, data)

    def _chosen(self, state: ExperimentState) -> Choice:
        """The next design, within the limits; beside others, given what they might give."""
        if state.pending:
            posterior = self.beliefs.posterior(state.records)
            draws = predictive_draws(self.task, posterior, seed=self.experiment.seed)
            state = imputed(state, draws)
        wanted = self._runners.at(state).design(state)
        return Choice(remaining.nearest_feasible(self.task, state, wanted), wanted)

    def _remaining(self, state: ExperimentState) -> remaining.RemainingExperiment:
        with self._journal.choosing:
            policy = self._runners.at(state).policy
        theta = self.beliefs.posterior(state.records).theta
        return remaining.remaining_experiment(self.task, policy, state, theta)

    def _key(self, purpose: str, state: ExperimentState) -> PRNGKeyArray:
        return named(jr.key(self.experiment.seed), purpose, state.sequence)
