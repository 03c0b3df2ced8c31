"""Experiments, their events and the policies refined in them, in one SQLite file, append only.

Once `writing` is left, everything is on disk: write-ahead log, `synchronous = FULL`. Triggers
refuse to change or delete events. Writers take turns by `BEGIN IMMEDIATE`, threads of one process
by a lock before it, so that what a writer has read still holds when it writes."""

import contextlib
import dataclasses
import datetime
import hashlib
import sqlite3
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from scorebed._platform import sync_folder
from scorebed.errors import (
    CheckpointError,
    ConflictError,
    DiskFullError,
    InvalidValueError,
    NewerFormatError,
    RunFolderError,
)
from scorebed.runs import seal, strict_json
from scorebed.session.damage import check_log, check_pages, damaged
from scorebed.session.events import Event, ExperimentState, Kind, after

# 1 had fewer kinds of events and no refined policies; in a file of 3 several designs were pending
# at once, which earlier versions cannot follow.
SCHEMA, ONE_AT_A_TIME = 3, 2
APPLICATION = 0x53624564  # marks the file as ours
PATIENCE = 30.0  # seconds that a writer waits for its turn

_EXPERIMENTS = """
CREATE TABLE experiments (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    created TEXT NOT NULL,
    run TEXT NOT NULL,
    task TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    policy_sha256 TEXT NOT NULL,
    seed INTEGER NOT NULL,
    horizon INTEGER NOT NULL
) STRICT;
"""
_EVENTS = f"""
CREATE TABLE events (
    experiment INTEGER NOT NULL REFERENCES experiments (id),
    sequence INTEGER NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ({", ".join(f"'{kind}'" for kind in Kind)})),
    step INTEGER NOT NULL,
    at TEXT NOT NULL,
    data TEXT NOT NULL,
    token TEXT,
    PRIMARY KEY (experiment, sequence)
) STRICT, WITHOUT ROWID;
"""
_RULES = f"""
CREATE UNIQUE INDEX one_row_per_token ON events (experiment, token) WHERE token IS NOT NULL;
CREATE TRIGGER events_stay BEFORE UPDATE ON events
    BEGIN SELECT RAISE(ABORT, 'events are never changed'); END;
CREATE TRIGGER events_remain BEFORE DELETE ON events
    BEGIN SELECT RAISE(ABORT, 'events are never deleted'); END;
CREATE TABLE policies (sha256 TEXT PRIMARY KEY, data BLOB NOT NULL) STRICT, WITHOUT ROWID;
CREATE TRIGGER policies_stay BEFORE UPDATE ON policies
    BEGIN SELECT RAISE(ABORT, 'policies are never changed'); END;
CREATE TRIGGER policies_remain BEFORE DELETE ON policies
    BEGIN SELECT RAISE(ABORT, 'policies are never deleted'); END;
PRAGMA application_id = {APPLICATION};
PRAGMA user_version = {ONE_AT_A_TIME};
"""
# SQLite cannot change which kinds a table allows: the events move, as they are, into a new one.
_FROM_1 = f"""
DROP TRIGGER events_stay;
DROP TRIGGER events_remain;
DROP INDEX one_row_per_token;
ALTER TABLE events RENAME TO events_1;
{_EVENTS}
INSERT INTO events SELECT * FROM events_1;
DROP TABLE events_1;
{_RULES}
"""


@dataclasses.dataclass(frozen=True)
class Experiment:
    """What was fixed when an experiment began: the run by name, its task and policy by hash, the
    seed of the policy's noise.
    """

    id: int
    name: str
    created: str
    run: str
    task: str
    fingerprint: str
    policy_sha256: str
    seed: int
    horizon: int


FIELDS = tuple(field.name for field in dataclasses.fields(Experiment))


class Transaction:
    """One experiment while nobody else writes: its state, and events that are appended to it."""

    def __init__(self, store: "Store", experiment: Experiment, state: ExperimentState):
        self.state, self.kinds = state, set[str]()
        self._store, self._experiment = store, experiment

    def append(
        self,
        kind: str,
        data: Mapping[str, Any],
        *,
        step: int | None = None,
        token: str | None = None,
    ) -> ExperimentState:
        """One more event, of the next step unless another is named; gives the state after it."""
        step = self.state.step if step is None else step
        event = self._store.append(self._experiment.id, kind, step, data, token=token)
        self.state = after(self.state, event)
        self.kinds.add(kind)
        return self.state


class Store:
    """The file of experiments at `path`, made if it is not there. Threads may share a store;
    processes open one each.
    """

    def __init__(self, path: Path):
        self.path = path
        self._turn = threading.RLock()
        with _explained(path):
            # Transactions are written out below, so the module's own are off.
            self._connection = sqlite3.connect(
                path, timeout=PATIENCE, isolation_level=None, check_same_thread=False
            )
            try:
                self._open()
            except BaseException:
                self._connection.close()
                raise

    def close(self) -> None:
        """Let go of the file. Everything is on the disk already."""
        with self._turn:
            self._connection.close()

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """One transaction: nobody else writes meanwhile, and what is appended becomes durable at
        its end, or not at all.
        """
        with self._turn, _explained(self.path):
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:  # SQLite itself may have given up already
                    self._connection.execute("ROLLBACK")
                raise

    def append(
        self,
        experiment: int,
        kind: str,
        step: int,
        data: Mapping[str, Any],
        *,
        token: str | None = None,
        at: str = "",
    ) -> Event:
        """One more event of an experiment, inside `writing`."""
        (last,) = self._connection.execute(
            "SELECT coalesce(max(sequence), 0) FROM events WHERE experiment = ?", (experiment,)
        ).fetchone()
        event = Event(last + 1, kind, step, at or now(), data, token)
        beside = (*self._fixed(experiment), event.sequence, kind, step, event.at, token)
        text = strict_json.dumps(seal.sealed(data, beside=beside))
        row = (experiment, event.sequence, kind, step, event.at, text, token)
        self._connection.execute("INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?)", row)
        if "together" in data:
            self._connection.execute(f"PRAGMA user_version = {SCHEMA}")
        return event

    def events(self, experiment: int, *, after: int = 0) -> list[Event]:
        """The events of an experiment past sequence number `after`, in order."""
        with self._turn, _explained(self.path):
            rows = self._connection.execute(
                "SELECT sequence, kind, step, at, data, token FROM events WHERE experiment = ? "
                "AND sequence > ?"
                " ORDER BY sequence",
                (experiment, after),
            ).fetchall()
            fixed = self._fixed(experiment) if rows else ()
        return [self._event(fixed, *row) for row in rows]

    def _event(
        self,
        fixed: Sequence[Any],
        sequence: int,
        kind: str,
        step: int,
        at: str,
        data: str,
        token: Any,
    ) -> Event:
        """An event as it is read, refused if it is not as it was stored."""
        try:
            beside = (*fixed, sequence, kind, step, at, token)
            values = seal.unsealed(strict_json.loads(data), beside=beside)
        except ValueError as error:
            what = f"event {sequence} of experiment '{fixed[0]}': {error}"
            raise damaged(self.path, what) from error
        return Event(sequence, kind, step, at, values, token)

    def _fixed(self, experiment: int) -> tuple[Any, ...]:
        """What was fixed when an experiment began, which the checksums of its events hold."""
        names = ", ".join(name for name in FIELDS if name != "id")
        row = self._connection.execute(
            f"SELECT {names} FROM experiments WHERE id = ?", (experiment,)
        ).fetchone()
        if row is None:
            raise damaged(self.path, f"no experiment {experiment}")
        return tuple(row)

    def state(self, experiment: Experiment, seen: ExperimentState | None = None) -> ExperimentState:
        """Where an experiment stands, from a state that was read before if there is one."""
        state = seen or ExperimentState(experiment.horizon)
        for event in self.events(experiment.id, after=state.sequence):
            state = after(state, event)
        return state

    def keep(self, data: bytes) -> str:
        """Keep a policy's file, inside `writing`; gives the sha256 to find it by."""
        sha256 = hashlib.sha256(data).hexdigest()
        self._connection.execute("INSERT OR IGNORE INTO policies VALUES (?, ?)", (sha256, data))
        return sha256

    def kept(self, sha256: str) -> bytes:
        """The file that was kept under a hash; `CheckpointError` if it is not there as it was."""
        with self._turn, _explained(self.path):
            row = self._connection.execute(
                "SELECT data FROM policies WHERE sha256 = ?", (sha256,)
            ).fetchone()
        if row is None or hashlib.sha256(row[0]).hexdigest() != sha256:
            raise CheckpointError(
                f"the refined policy {sha256[:16]} in {self.path}",
                got="none" if row is None else "other bytes than were stored",
                expected="the one that was stored",
                fix="use another copy of the file; undo goes back to the former policy.",
            )
        return bytes(row[0])

    def experiments(self) -> list[Experiment]:
        """All experiments, oldest first."""
        return self._select("ORDER BY id")

    def find(self, name: str) -> Experiment | None:
        """The experiment of that name."""
        return next(iter(self._select("WHERE name = ?", name)), None)

    def newest_open(self, fingerprint: str, policy_sha256: str) -> Experiment | None:
        """The newest unfinished experiment of a task and policy."""
        for experiment in reversed(self.experiments()):
            same = (experiment.fingerprint, experiment.policy_sha256) == (
                fingerprint,
                policy_sha256,
            )
            if same and not self.state(experiment).finished:
                return experiment
        return None

    def begin(self, values: Mapping[str, Any], events: Sequence[Event] = ()) -> Experiment:
        """A new experiment with its first events, inside `writing`. `values` are all fields except
        `id`; `created` may be left out.
        """
        if self.find(values["name"]) is not None:
            raise ConflictError(
                "the name of a new experiment",
                got=f"'{values['name']}', which exists in {self.path}",
                expected="a new name, because nothing is ever overwritten",
                fix="choose another name, or open that experiment.",
            )
        full = {"created": now(), **values}
        names = [name for name in FIELDS if name != "id"]
        self._connection.execute(
            f"INSERT INTO experiments ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})",
            [full[name] for name in names],
        )
        found = self.find(values["name"])
        assert found is not None, "it was inserted in this transaction"
        for event in events:
            self.append(
                found.id, event.kind, event.step, event.data, token=event.token, at=event.at
            )
        return found

    def free_name(self) -> str:
        """experiment-N for the first N that is free."""
        taken = {experiment.name for experiment in self.experiments()}
        return next(
            name for n in range(1, len(taken) + 2) if (name := f"experiment-{n}") not in taken
        )

    def _select(self, which: str, *values: str) -> list[Experiment]:
        with self._turn, _explained(self.path):
            rows = self._connection.execute(
                f"SELECT {', '.join(FIELDS)} FROM experiments {which}", values
            ).fetchall()
        return [Experiment(*row) for row in rows]

    def _open(self) -> None:
        execute = self._connection.execute
        execute("PRAGMA synchronous = FULL")
        execute("PRAGMA foreign_keys = ON")
        check_log(self.path, self._connection)
        check_pages(self.path, self._connection)
        if self._mark() == (0, 0):
            with self.writing():
                # Another process may have been first.
                if self._mark() == (0, 0):
                    (tables,) = execute("SELECT count(*) FROM sqlite_master").fetchone()
                    if tables:
                        raise self._foreign()
                    self._execute_all(_EXPERIMENTS + _EVENTS + _RULES)
            sync_folder(self.path.absolute().parent)
        if self._mark() == (APPLICATION, 1):
            with self.writing():
                if self._mark() == (APPLICATION, 1):
                    self._execute_all(_FROM_1)
        application, version = self._mark()
        if application != APPLICATION:
            raise self._foreign()
        if version > SCHEMA:
            raise NewerFormatError(
                f"the file of experiments {self.path}",
                got=f"version {version}",
                expected=f"at most {SCHEMA}",
                fix="update scorebed.",
            )
        self._log_ahead()

    def _execute_all(self, script: str) -> None:
        """Not by `executescript`, which would end the transaction."""
        for statement in _statements(script):
            self._connection.execute(statement)

    def _log_ahead(self) -> None:
        """Switch to the write-ahead log. If several processes do so at once, SQLite refuses some of
        them without waiting.
        """
        for attempt in range(100):
            try:
                self._connection.execute("PRAGMA journal_mode = WAL")
                return
            except sqlite3.OperationalError as error:
                if "locked" not in str(error) or attempt == 99:
                    raise
                time.sleep(0.02)

    def _mark(self) -> tuple[int, int]:
        (application,) = self._connection.execute("PRAGMA application_id").fetchone()
        (version,) = self._connection.execute("PRAGMA user_version").fetchone()
        return application, version

    def _foreign(self) -> InvalidValueError:
        return InvalidValueError(
            f"the file of experiments {self.path}",
            got="a database of something else",
            expected="one that scorebed has made",
            fix="name another file with --db.",
        )


def now() -> str:
    """The time in UTC, to the millisecond."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")


def _statements(script: str) -> Iterator[str]:
    """The statements of a script one by one; a trigger has a semicolon inside."""
    statement = ""
    for part in script.strip().splitlines(keepends=True):
        statement += part
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


@contextlib.contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Turn a failure of SQLite into one sentence."""
    try:
        yield
    except sqlite3.Error as error:
        what, reason = f"the file of experiments {path}", str(error)
        if "full" in reason:
            raise DiskFullError(
                what,
                got=f"'{reason}'",
                expected="space for one more event",
                fix="free some space and enter it again.",
            ) from error
        if "locked" in reason:
            raise RunFolderError(
                what,
                got="one that another process is writing to",
                expected=f"a turn within {PATIENCE:.0f} seconds",
                fix="try again; if that does not help, end that process.",
            ) from error
        raise RunFolderError(
            what,
            got=f"'{reason}'",
            expected="an SQLite file that can be read and written",
            fix="check the path and its permissions, or name another file with --db.",
        ) from error
