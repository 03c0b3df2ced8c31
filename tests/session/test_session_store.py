"""The file of experiments: what was acknowledged survives, nothing is ever changed, files of others
are left alone.
"""

import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
import threading

import pytest
from crashes import Crash

from scorebed.errors import (
    CheckpointError,
    ConflictError,
    DiskFullError,
    InvalidValueError,
    NewerFormatError,
    RunFolderError,
)
from scorebed.session.events import Kind
from scorebed.session.store import SCHEMA, Store

VALUES = {
    "name": "a",
    "run": "run",
    "task": "linear-gaussian",
    "fingerprint": "0" * 16,
    "policy_sha256": "0" * 64,
    "seed": 1,
    "horizon": 9,
}


@pytest.fixture
def experiment(store):
    with store.writing():
        return store.begin(VALUES)


# A client that is killed at a named point. It prints what it has been told is stored.
CLIENT = """
import os, signal, sys
from pathlib import Path
from scorebed.session.store import Store

def maybe_die(point):
    if point == sys.argv[2]:
        os.kill(os.getpid(), signal.SIGKILL)

assert "jax" not in sys.modules
store = Store(Path(sys.argv[1]))
with store.writing():
    experiment = store.begin(VALUES)
for step in (1, 2, 3):
    for kind in ("proposed", "observed"):
        maybe_die(f"before {kind} {step}")
        with store.writing():
            store.append(experiment.id, kind, step, {"y": [step / 3]})
            maybe_die(f"inside {kind} {step}")
        maybe_die(f"after {kind} {step}")
        print(kind, step, flush=True)
"""


@pytest.mark.parametrize(
    "point", ["inside proposed 1", "after proposed 2", "inside observed 2", "after observed 3"]
)
def test_kill_9_loses_nothing_that_was_acknowledged(db, point):
    script = CLIENT.replace("VALUES", repr(VALUES))
    done = subprocess.run(
        [sys.executable, "-c", script, db, point], check=False, stdout=subprocess.PIPE, text=True
    )
    assert done.returncode == -signal.SIGKILL
    acknowledged = done.stdout.splitlines()
    store = Store(db)
    (experiment,) = store.experiments()
    stored = [f"{event.kind} {event.step}" for event in store.events(experiment.id)]
    # What was being written is there whole or not at all, and only that may be there without an
    # acknowledgement.
    assert stored == acknowledged + (
        [point.removeprefix("after ")] if point.startswith("after") else []
    )
    with store.writing():
        assert store.append(experiment.id, "noted", 1, {"text": "on"}).sequence == len(stored) + 1
    store.close()
    with sqlite3.connect(db) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    connection.close()


def test_it_is_durable_by_its_settings(store):
    assert store._connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert store._connection.execute("PRAGMA synchronous").fetchone() == (2,)  # FULL


@pytest.mark.parametrize("statement", ["UPDATE events SET data = '{}'", "DELETE FROM events"])
def test_events_can_be_neither_changed_nor_deleted(store, experiment, statement):
    with store.writing():
        store.append(experiment.id, "noted", 1, {"text": "stays"})
    with pytest.raises(sqlite3.IntegrityError, match="events are never"):
        store._connection.execute(statement)
    assert [event.data for event in store.events(experiment.id)] == [{"text": "stays"}]


def test_a_transaction_that_fails_leaves_nothing(store, experiment):
    with contextlib.suppress(ZeroDivisionError), store.writing():
        store.append(experiment.id, "noted", 1, {"text": "gone"})
        _ = 1 // 0
    assert store.events(experiment.id) == []
    with pytest.raises(RunFolderError, match="CHECK constraint"), store.writing():
        store.append(experiment.id, "invented", 1, {})
    with store.writing():
        for kind in Kind:
            store.append(experiment.id, kind, 1, {})
    assert [event.sequence for event in store.events(experiment.id)] == list(
        range(1, len(Kind) + 1)
    )


def test_a_full_disk_is_said_and_harms_nothing(store, experiment):
    with store.writing():
        store.append(experiment.id, "noted", 1, {"text": "before"})
    (pages,) = store._connection.execute("PRAGMA page_count").fetchone()
    store._connection.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(DiskFullError, match="full"), store.writing():
        store.append(experiment.id, "noted", 1, {"text": "x" * 100_000})
    with store.writing():
        store.append(experiment.id, "noted", 1, {"text": "after"})
    assert [event.data["text"] for event in store.events(experiment.id)] == ["before", "after"]


def test_a_newer_file_is_refused_and_left_as_it_is(db):
    Store(db).close()
    with sqlite3.connect(db) as connection:
        connection.execute(f"PRAGMA user_version = {SCHEMA + 1}")
    connection.close()
    before = db.read_bytes()
    with pytest.raises(
        NewerFormatError,
        match=f"version {SCHEMA + 1}, expected at most {SCHEMA}. Fix: update scorebed",
    ):
        Store(db)
    assert db.read_bytes() == before


FIRST = """
CREATE TABLE experiments (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, created TEXT NOT NULL,
    run TEXT NOT NULL, task TEXT NOT NULL, fingerprint TEXT NOT NULL, policy_sha256 TEXT NOT NULL,
    seed INTEGER NOT NULL, horizon INTEGER NOT NULL) STRICT;
CREATE TABLE events (experiment INTEGER NOT NULL REFERENCES experiments (id),
    sequence INTEGER NOT NULL, kind TEXT NOT NULL CHECK (kind IN ('proposed', 'observed', 'skipped',
    'undone', 'corrected', 'noted', 'finished')), step INTEGER NOT NULL, at TEXT NOT NULL,
    data TEXT NOT NULL, token TEXT, PRIMARY KEY (experiment, sequence)) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX one_row_per_token ON events (experiment, token) WHERE token IS NOT NULL;
CREATE TRIGGER events_stay BEFORE UPDATE ON events
    BEGIN SELECT RAISE(ABORT, 'events are never changed'); END;
CREATE TRIGGER events_remain BEFORE DELETE ON events
    BEGIN SELECT RAISE(ABORT, 'events are never deleted'); END;
INSERT INTO experiments VALUES
    (1, 'old', '2026-01-01T00:00:00+00:00', 'run', 'linear-gaussian', 'ab', 'cd', 1, 3);
INSERT INTO events VALUES
    (1, 1, 'proposed', 1, '2026-01-01T00:00:00+00:00', '{"design": [0.5]}', NULL);
INSERT INTO events VALUES
    (1, 2, 'observed', 1, '2026-01-01T00:00:01+00:00', '{"used": [0.5], "y": [1.0]}', 'a');
PRAGMA application_id = 1398949220;
PRAGMA user_version = 1;
"""


def test_a_file_of_the_first_version_is_taken_over_whole(db, monkeypatch):
    connection = sqlite3.connect(db)
    connection.executescript(FIRST)
    connection.close()

    def crashing(self, script):
        whole(self, script[: script.index("DROP TABLE")])
        raise Crash

    whole = Store._execute_all
    monkeypatch.setattr(Store, "_execute_all", crashing)
    with pytest.raises(Crash):
        Store(db)
    monkeypatch.undo()
    store = Store(db)
    (old,) = store.experiments()
    assert [(e.sequence, e.kind, e.token) for e in store.events(old.id)] == [
        (1, "proposed", None),
        (2, "observed", "a"),
    ]
    with store.writing():
        store.append(old.id, "planned", 2, {"horizon": 5})
    for statement in ("UPDATE events SET data = '{}'", "DELETE FROM events"):
        with pytest.raises(sqlite3.IntegrityError, match="events are never"):
            store._connection.execute(statement)
    with pytest.raises(RunFolderError, match="UNIQUE"), store.writing():
        store.append(old.id, "observed", 2, {}, token="a")
    store.close()
    again = Store(db)
    assert len(again.events(old.id)) == 3
    again.close()


def test_policies_are_kept_by_their_hash(store):
    with store.writing():
        name = store.keep(b"weights")
        assert store.keep(b"weights") == name
    assert store.kept(name) == b"weights"
    with pytest.raises(CheckpointError, match="got none"):
        store.kept("0" * 64)
    for statement in ("UPDATE policies SET data = x'00'", "DELETE FROM policies"):
        with pytest.raises(sqlite3.IntegrityError, match="policies are never"):
            store._connection.execute(statement)


def test_files_of_others_are_refused(db):
    with sqlite3.connect(db) as connection:
        connection.execute("CREATE TABLE theirs (x)")
    connection.close()
    with pytest.raises(InvalidValueError, match="a database of something else"):
        Store(db)
    text = db.with_name("notes.txt")
    text.write_text("dear diary " * 100)
    with pytest.raises(RunFolderError, match="file is not a database"):
        Store(text)
    assert text.read_text().startswith("dear diary")
    with pytest.raises(RunFolderError, match="unable to open"):
        Store(db.parent / "missing" / "live.sqlite")


@pytest.mark.usefixtures("experiment")
def test_names_are_unique_and_made_up_on_request(store):
    with pytest.raises(ConflictError, match="'a', which exists"), store.writing():
        store.begin(VALUES)
    assert store.free_name() == "experiment-1"
    with store.writing():
        store.begin(VALUES | {"name": "experiment-1"})
    assert store.free_name() == "experiment-2"
    assert [e.name for e in store.experiments()] == ["a", "experiment-1"]


def test_many_openings_of_a_new_file_at_once(db):
    stores, errors = [], []

    def start():
        try:
            stores.append(Store(db))
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=start) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert len(stores) == 8
    for store in stores:
        store.close()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written_is_said(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(RunFolderError):
        Store(tmp_path / "live.sqlite")
