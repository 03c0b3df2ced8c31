"""A file of experiments that is not as it was written: found, whatever was changed in it."""

import logging
import shutil
import sqlite3

import pytest

from scorebed.errors import RunFolderError, ScorebedError
from scorebed.session.damage import FRAME, HEADER, PAGE, commits
from scorebed.session.session import Session
from scorebed.session.store import Store


@pytest.fixture
def killed(run, tmp_path):
    """A file as a kill leaves it: two outcomes are in its log, and in the log alone."""
    with Session.open(run, db=tmp_path / "open.sqlite", experiment="a", seed=3) as session:
        for y in (0.25, 0.5):
            session.propose()
            session.observe(y)
        for ending in ("", "-wal"):
            shutil.copy(tmp_path / f"open.sqlite{ending}", tmp_path / f"killed.sqlite{ending}")
    return tmp_path / "killed.sqlite"


def read(path):
    store = Store(path)
    try:
        return [store.events(each.id) for each in store.experiments()]
    finally:
        store.close()


@pytest.mark.parametrize(
    ("change", "of"),
    [
        ("UPDATE events SET data = replace(data, '0.25', '0.35')", "event"),
        ("UPDATE events SET at = replace(at, '20', '21')", "event"),
        ("UPDATE events SET step = 2 WHERE sequence = 2", "event"),
        ("UPDATE experiments SET seed = 4", "event 1"),
    ],
)
def test_a_changed_value_is_refused(killed, change, of):
    store = Store(killed)
    store._connection.execute("DROP TRIGGER events_stay")
    store._connection.execute(change)
    store.close()
    with pytest.raises(RunFolderError, match=f"a damaged one.*{of}.*not those that were written"):
        read(killed)


def test_pages_that_do_not_fit_together_are_refused(killed):
    Store(killed).close()  # the log is in the file now
    whole, refused = killed.read_bytes(), 0
    for at in range(PAGE, len(whole), PAGE):
        killed.write_bytes(whole[: at + 3] + b"\xff" + whole[at + 4 :])  # the number of cells
        try:
            read(killed)
        except ScorebedError:
            refused += 1
    assert refused >= 4


def test_entries_that_sqlite_loses_from_its_log_are_noticed(killed, caplog):
    log = killed.with_name(killed.name + "-wal")
    whole, (ends, torn) = log.read_bytes(), commits(log)
    assert len(ends) > 3
    assert not torn
    everything = read(killed)

    def damage(frame):
        """The same file, with a flipped bit in one frame of its log."""
        at = HEADER + (frame - 1) * (FRAME + PAGE) + FRAME + 100
        log.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])

    origin = killed.read_bytes()
    log.write_bytes(whole)
    killed.write_bytes(origin)
    for frame in (1, ends[0], ends[-2]):
        damage(frame)
        with pytest.raises(RunFolderError, match=r"the last \d+ entries of its log"):
            read(killed)
    with caplog.at_level(logging.WARNING, logger="scorebed.session"):
        damage(ends[-1])
        assert len(read(killed)[0]) < len(everything[0])
        assert "The last entry" in caplog.text
        log.write_bytes(whole[: len(whole) // 2])
        read(killed)
    assert "ends in the middle of an entry" in caplog.text


def test_a_log_of_a_writer_that_goes_on_is_whole(run, tmp_path):
    path = tmp_path / "live.sqlite"
    with Session.open(run, db=path, experiment="a", seed=3) as session:
        session.propose()
        Store(path).close()
        session.observe(0.1)
        assert read(path)[0][-1].data["y"] == [0.1]
    with sqlite3.connect(path) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
