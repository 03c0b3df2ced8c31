"""Which experiment, in which file, and whether it is one of this run."""

import hashlib
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from scorebed.errors import ConflictError, InvalidValueError
from scorebed.runs.artifacts import fingerprint
from scorebed.runs.durable import explained
from scorebed.runs.load import Run
from scorebed.runs.methods import UNTRAINED
from scorebed.session.circumstances import require_plannable
from scorebed.session.entry import check_limits, check_plan, check_text
from scorebed.session.room import require_room
from scorebed.session.state import LIMITED, PLANNED, State, after, limits_data
from scorebed.session.store import Experiment, Store

FILE = "live.sqlite"  # the file of experiments in a run's folder, unless another is named
LONGEST_NAME = 80
SEEDS = 2**31


class Wishes(NamedTuple):
    """What is asked of an experiment; None where anything will do."""

    name: str | None
    seed: int | None
    steps: int | None
    limits: tuple[Any, Any] | None


class Opening:
    """A store for the length of a `with` block; closed at its end if it is ours and no session has
    taken it over.
    """

    def __init__(self, run: Run, db: Store | Path | str | None):
        self.given = isinstance(db, Store)
        self.store = (
            db if isinstance(db, Store) else Store(Path(db) if db is not None else run.path / FILE)
        )
        self.kept = False

    def __enter__(self) -> "Opening":
        return self

    def __exit__(self, *_: object) -> None:
        if not (self.given or self.kept):
            self.store.close()


def check_wishes(name: str | None, seed: int | None) -> None:
    """Refuse a bad name or seed, before any file is made."""
    if name is not None:
        check_text("the name of an experiment", name, longest=LONGEST_NAME)
    if seed is not None and not 0 <= seed < SEEDS:
        raise InvalidValueError(
            "the seed of an experiment",
            got=seed,
            expected=f"0 to {SEEDS - 1}",
            fix="for example 0.",
        )


def policy_sha256(run: Run) -> str:
    """The hash of the policy's file; of the configuration, where nothing was trained."""
    path = run.path / ("config.toml" if run.config.method in UNTRAINED else "policy-0.safetensors")
    with explained("reading", path):
        return hashlib.sha256(path.read_bytes()).hexdigest()


def first_events(run: Run, asked: Wishes) -> list[tuple[str, dict[str, Any]]]:
    """The events with which an experiment begins that is not as trained."""
    found = []
    if asked.steps is not None and check_plan(asked.steps) != run.task.horizon:
        require_plannable(run.policy, asked.steps, run.task.horizon)
        found.append((PLANNED, {"horizon": asked.steps}))
    allowed = None if asked.limits is None else check_limits(run.task, *asked.limits)
    if allowed is not None:
        require_room(run.task, State(asked.steps or run.task.horizon), allowed)
        found.append((LIMITED, limits_data(allowed)))
    return found


def begin(
    store: Store, values: dict[str, Any], events: Sequence[tuple[str, dict[str, Any]]]
) -> Experiment:
    """A new experiment and its first events, inside of `writing`."""
    begun = store.begin(values)
    for kind, data in events:
        store.append(begun.id, kind, 1, data)
    return begun


def new_values(run: Run, store: Store, asked: Wishes) -> dict[str, Any]:
    """The row of a new experiment."""
    return {
        "name": store.free_name() if asked.name is None else asked.name,
        "run": run.path.resolve().name,
        "task": run.config.task,
        "fingerprint": fingerprint(run.task),
        "policy_sha256": policy_sha256(run),
        "seed": secrets.randbelow(SEEDS) if asked.seed is None else asked.seed,
        "horizon": run.task.horizon,
    }


def find(store: Store, run: Run, name: str | None) -> Experiment | None:
    """The experiment of that name; without one, the newest of this policy that is not finished."""
    if name is not None:
        return store.find(name)
    mine = (fingerprint(run.task), policy_sha256(run))
    for experiment in reversed(store.experiments()):
        if (experiment.fingerprint, experiment.policy_sha256) == mine and not state_of(
            store, experiment
        ).finished:
            return experiment
    return None


def state_of(store: Store, experiment: Experiment) -> State:
    """Where an experiment stands."""
    state = State(experiment.horizon)
    for event in store.events(experiment.id):
        state = after(state, event)
    return state


def require_same(run: Run, experiment: Experiment) -> None:
    """Refuse to go on with another task or policy than the experiment began with."""
    for what, began, now in (
        ("task", experiment.fingerprint, fingerprint(run.task)),
        ("policy", experiment.policy_sha256, policy_sha256(run)),
    ):
        if began != now:
            raise ConflictError(
                f"the run {run.path} for experiment '{experiment.name}'",
                got=f"another {what} ({now[:16]})",
                expected=f"the {what} that it began with, of run {experiment.run} ({began[:16]})",
                fix="open it with that run, or begin another experiment.",
            )


def require_seed(experiment: Experiment, seed: int | None) -> None:
    """Refuse another seed than the experiment began with."""
    if seed is not None and experiment.seed != seed:
        raise ConflictError(
            f"the seed of experiment '{experiment.name}'",
            got=seed,
            expected=f"{experiment.seed}, with which it began",
            fix="leave it out, or begin another experiment.",
        )


def require_circumstances(run: Run, name: str, known: State, asked: Wishes) -> None:
    """Refuse an experiment that is there already under other circumstances than those asked for."""
    wanted = known.limits if asked.limits is None else check_limits(run.task, *asked.limits)
    if (asked.steps is not None and known.horizon != asked.steps) or known.limits != wanted:
        raise ConflictError(
            f"the circumstances of experiment '{name}'",
            got="another number of steps or other limits",
            expected="those that it has by now",
            fix="leave them out and change them in the experiment, or begin another one.",
        )
