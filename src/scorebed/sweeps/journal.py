"""Optuna's journal file, kept whole: one JSON object per line.

A writer that is killed, or whose disk is full, may leave half a line. Optuna's own file would
append the next line to that half, and every reader would fail from then on. What was not written
to its end was acknowledged to nobody: it is cut off before the next line is written. Every line
ends with a checksum of its own, which Optuna does not look at; those of an earlier version have
none.
"""

import contextlib
import json
import logging
import os
import re
import zlib
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

from optuna.storages.journal import (
    BaseJournalBackend,
    JournalFileOpenLock,
    JournalFileSymlinkLock,
)
from optuna.storages.journal._file import BaseJournalFileLock

from scorebed.errors import RunFolderError
from scorebed.runs.durable import explained

_warn = logging.getLogger("scorebed.sweeps").warning

GRACE = 30  # seconds without a sign of its owner after which a lock is taken
TAIL = 1 << 20  # bytes that are looked through for the end of the last whole line


# How Optuna writes a setting of a trial, and the end of one. In another form nothing is left out.
SETTING = re.compile(rb'\{"op_code":5,"worker_id":"[^"]*","trial_id":(\d+),')
ENDED = re.compile(rb'\{"op_code":6,"worker_id":"[^"]*","trial_id":(\d+),"state":[123],')
CHECKSUM = re.compile(rb'"crc32":"([0-9a-f]{8})"\}$')
NOTHING: dict[str, Any] = {"op_code": 5, "worker_id": "", "trial_id": -1}  # of no trial


class JournalFile(BaseJournalBackend):
    """A journal that exists: one that is not there is away, and is not begun anew.

    A `brief` one leaves out what Optuna takes most of its time for, the settings of trials that are
    over, each with its distribution. It is for reading alone.
    """

    def __init__(self, path: Path, *, brief: bool = False):
        self._path, self._brief = path, brief
        self._torn = False  # whether we said so
        self._line, self._byte = 0, 0  # how far a brief one was read
        with explained("opening", path):
            os.stat(path)
        self._lock = JournalFileSymlinkLock(str(path), GRACE)

    def read_logs(self, log_number_from: int) -> Generator[dict[str, Any], None, None]:
        """Every line from a number on."""
        with explained("reading", self._path):
            yield from self._logs(log_number_from)

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Add lines, all or none."""
        text = b"".join(_sealed(json.dumps(log, separators=(",", ":")).encode()) for log in logs)
        with explained("writing", self._path, needed=len(text)), held(self._lock):
            _mend(self._path)
            with self._path.open("ab") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())

    def _logs(self, first: int) -> Iterator[dict[str, Any]]:
        """Every whole line from a number on; to a brief one, a setting of a trial that is over says
        nothing.
        """
        if first < self._line:
            self._line, self._byte = 0, 0
        with self._path.open("rb") as file:
            file.seek(self._byte)
            *lines, torn = file.read().split(b"\n")
            end = file.tell() - len(torn)
        if torn and not self._torn:
            self._torn = True
            _warn(f"The last line of {self._path} is torn, as by a worker that was killed.")
        ended = map(ENDED.match, lines) if self._brief else ()
        over = {found[1] for found in ended if found}
        for number, line in enumerate(lines[first - self._line :], first + 1):
            _check(line, number, self._path)
            setting = SETTING.match(line) if self._brief else None
            yield NOTHING if setting and setting[1] in over else json.loads(line)
        self._line, self._byte = self._line + len(lines), end


def _sealed(line: bytes) -> bytes:
    """An object as a line, with the checksum of what stands before it as its last entry."""
    body = line[:-1] + b","
    return b'%s"crc32":"%08x"}\n' % (body, zlib.crc32(body))


def _check(line: bytes, number: int, path: Path) -> None:
    found = CHECKSUM.search(line)
    if found is None and line.endswith(b"}") and b'"crc' not in line[-24:]:
        return  # of an earlier version
    if found is None or int(found[1], 16) != zlib.crc32(line[: found.start()]):
        raise RunFolderError(
            f"line {number} of {path}",
            got="other than was written",
            expected="a line of the journal",
            fix="use another copy of it; the run folders of the trials are untouched.",
        )


@contextlib.contextmanager
def held(lock: BaseJournalFileLock) -> Iterator[None]:
    """Hold a lock. One whose owner gives no sign for half a minute is taken from it."""
    lock.acquire()
    try:
        yield
    finally:
        with contextlib.suppress(RuntimeError):  # it was taken from us
            lock.release()


def lock_beside(path: Path) -> BaseJournalFileLock:
    """A lock that guards no file: its own file is `path`.lock. Optuna's other lock is a link, whose
    age is that of the file that it guards, and which nobody could take from a dead owner if there
    is none.
    """
    return JournalFileOpenLock(str(path), GRACE)


def _mend(path: Path) -> None:
    """Cut half a line off the end."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - TAIL))
        tail = file.read()
    torn = len(tail) - (tail.rfind(b"\n") + 1)
    if torn:
        os.truncate(path, size - torn)
