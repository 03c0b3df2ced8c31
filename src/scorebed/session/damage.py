"""Whether the file of experiments is as it was written.

SQLite looks neither whether its pages fit together, unless it is asked, nor for lost entries at the
end of its log: it drops a damaged one there with all that follow it, and says nothing. So the log
is read before SQLite does."""

import logging
import sqlite3
import time
from pathlib import Path

from scorebed.errors import RunFolderError

HEADER, FRAME = 32, 24  # bytes of the log's own, in front of it and of every page
PAGE = 4096
ATTEMPTS = 5  # at a log to which another process may be writing

_warn = logging.getLogger("scorebed.session").warning


def damaged(path: Path, what: object) -> RunFolderError:
    """The refusal of a file that is not as it was written."""
    return RunFolderError(
        f"the file of experiments {path}",
        got=f"a damaged one ({what})",
        expected="what was stored",
        fix="use another copy of it; this one was left as it is.",
    )


def check_pages(path: Path, connection: sqlite3.Connection) -> None:
    """Refuse a file whose pages do not fit together."""
    try:
        (found,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
    except sqlite3.OperationalError:
        raise  # such as a disk that is full
    except sqlite3.DatabaseError as error:
        raise damaged(path, error) from error
    if found != "ok":
        raise damaged(path, found)


def check_log(path: Path, connection: sqlite3.Connection) -> None:
    """Refuse a file of which SQLite has lost entries that were stored; before anything is written.

    The last entry alone may be one that a power failure cut short, which nobody was told of: that
    is a warning."""
    for attempt in range(ATTEMPTS):
        ends, torn = commits(path.with_name(path.name + "-wal"))
        if torn:
            _warn(
                f"The log of {path} ends in the middle of an entry: if it was not cut short by a "
                f"crash, entries are missing. Look whether the last outcomes are there."
            )
        if not ends:
            return
        (_, taken, _) = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        lost = sum(end > taken for end in ends)
        if lost == 0:
            return
        if attempt < ATTEMPTS - 1:  # another process may be half-way
            time.sleep(0.02)
    if lost > 1:
        raise damaged(path, f"the last {lost} entries of its log cannot be read")
    _warn(
        f"The last entry of {path} cannot be read: if the power failed while it was stored, it had "
        f"not been acknowledged. Look whether the last outcome is there, and enter it again if not."
    )


def commits(log: Path) -> tuple[list[int], bool]:
    """The numbers, from 1, of the frames of a log that end a transaction, and whether it ends
    inside of a frame. What follows from an earlier round of it has other salts.
    """
    try:
        data = log.read_bytes()
    except FileNotFoundError:
        return [], False
    page, salts = int.from_bytes(data[8:12], "big"), (data[16:20], data[20:24])
    if page < 512 or page & (page - 1):
        page = PAGE
    ends = []
    starts = range(HEADER, len(data) - FRAME - page + 1, FRAME + page)
    for number, at in enumerate(starts, 1):
        if salts[0] != data[at + 8 : at + 12] and salts[1] != data[at + 12 : at + 16]:
            break
        if data[at + 4 : at + 8] != bytes(4):
            ends.append(number)
    torn = len(data) > 0 and (len(data) < HEADER or (len(data) - HEADER) % (FRAME + page) != 0)
    return ends, torn
