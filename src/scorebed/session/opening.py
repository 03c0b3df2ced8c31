"""Which experiment, in which file: found, begun or imported, and whether it fits the run."""

import contextlib
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from scorebed.runs.artifacts import fingerprint
from scorebed.runs.load import Run, load
from scorebed.session.conflicts import require_request
from scorebed.session.events import Kind
from scorebed.session.io import read_json
from scorebed.session.policy_runner import decode_policy, policy_sha256, require_same
from scorebed.session.store import Experiment, Store
from scorebed.session.validation import SEEDS, ExperimentRequest, check_request

FILE = "live.sqlite"  # the file of experiments in a run's folder, unless another is named

RunOrPath: TypeAlias = Run | Path | str
StoreOrPath: TypeAlias = Store | Path | str | None


class Opened(NamedTuple):
    """An experiment of a run in its store; `owned` if the store was made for it."""

    run: Run
    store: Store
    experiment: Experiment
    owned: bool


def open_experiment(
    run: RunOrPath,
    db: StoreOrPath,
    name: str | None,
    seed: int | None,
    steps: Any,
    limits: Any,
    *,
    new: bool = False,
) -> Opened:
    """The experiment of that name, begun if it does not exist; without a name, the newest that is
    not finished, or a new one. `new` finds none.
    """
    loaded = run if isinstance(run, Run) else load(run)
    asked = check_request(loaded.task, loaded.policy, name, seed, steps, limits)

    def choose(store: Store) -> Experiment:
        with store.writing():
            found = None if new else _find(store, loaded, name)
            if found is None:
                return _begin(store, loaded, asked)
        require_request(found, store.state(found), asked)
        return found

    return _in_store(loaded, db, choose)


def import_experiment(
    run: RunOrPath, db: StoreOrPath, text: str | bytes | Path, *, name: str | None
) -> Opened:
    """An experiment with all of its events from exported JSON. One that is wrong anywhere stores
    nothing.
    """
    loaded = run if isinstance(run, Run) else load(run)
    values, events, policies = read_json(loaded.task, text)
    if name is not None:
        values["name"] = name
    check_request(loaded.task, loaded.policy, values["name"], values["seed"])
    require_same(loaded, Experiment(id=0, **values))
    for event in events:
        if event.kind == Kind.REFINED:
            decode_policy(policies[event.data["policy"]], loaded, event.data["horizon"])

    def choose(store: Store) -> Experiment:
        with store.writing():
            for data in policies.values():
                store.keep(data)
            return store.begin(values, events)

    return _in_store(loaded, db, choose)


def _in_store(run: Run, db: StoreOrPath, choose: Callable[[Store], Experiment]) -> Opened:
    """What `choose` gives, if it is of this task and policy; a store that was made for it is closed
    otherwise.
    """
    with contextlib.ExitStack() as made:
        if isinstance(db, Store):
            store = db
        else:
            path = run.path / FILE if db is None else Path(db)
            store = made.enter_context(contextlib.closing(Store(path)))
        experiment = choose(store)
        require_same(run, experiment)
        made.pop_all()
    return Opened(run, store, experiment, owned=store is not db)


def _find(store: Store, run: Run, name: str | None) -> Experiment | None:
    if name is None:
        return store.newest_open(fingerprint(run.task), policy_sha256(run))
    return store.find(name)


def _begin(store: Store, run: Run, asked: ExperimentRequest) -> Experiment:
    """A new experiment under the circumstances asked for."""
    values = {
        "name": store.free_name() if asked.name is None else asked.name,
        "run": run.path.resolve().name,
        "task": run.config.task,
        "fingerprint": fingerprint(run.task),
        "policy_sha256": policy_sha256(run),
        "seed": secrets.randbelow(SEEDS) if asked.seed is None else asked.seed,
        "horizon": run.task.horizon,
    }
    return store.begin(values, asked.first_events(run.task.horizon))
