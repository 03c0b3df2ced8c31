"""One owner of a folder at a time, by `flock` on a file that holds the owner's process id.

The kernel drops the lock when the owner ends, however it ends, so a lock is never stale; the file itself stays.
"""

import fcntl
import os
import time
import weakref
from pathlib import Path

from scorebed.errors import FolderInUseError
from scorebed.runs.durable import explained

PATIENCE = 0.3  # seconds that an owner may take to write its id after it got the lock


class Lock:
    """A lock on `path`, taken by `acquire` and dropped by `release` or the end of the process."""

    def __init__(self, path: Path):
        self.path = path
        self._descriptor: int | None = None

    @property
    def held(self) -> bool:
        """Whether this process holds it through this object."""
        return self._descriptor is not None

    def acquire(self) -> None:
        """Take the lock; raises `FolderInUseError` with the owner's process id if another has it."""
        if self.held:
            return
        with explained("locking", self.path):
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
            except BlockingIOError:
                os.close(descriptor)
                raise self._in_use() from None
            except BaseException:
                os.close(descriptor)
                raise
        self._descriptor = descriptor
        _let_go_in_children(self)

    def release(self) -> None:
        """Drop the lock, if it is held."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    def _in_use(self) -> FolderInUseError:
        # The id of an owner that was killed stays in the file until the next one writes its own: wait for one that lives.
        deadline = time.monotonic() + PATIENCE
        owner = self._owner()
        while not _lives(owner) and time.monotonic() < deadline:
            time.sleep(0.01)
            owner = self._owner()
        return FolderInUseError(
            f"the run folder {self.path.parent}",
            got=f"one that process {owner or 'of unknown id'} is writing to",
            expected="one that nobody else writes to",
            fix=f"wait for process {owner or 'it'} to end, or stop it; commands that only read work meanwhile.",
        )

    def _owner(self) -> int:
        try:
            return int(self.path.read_bytes()[:20])
        except (OSError, ValueError):
            return 0


def _lives(process: int) -> bool:
    if process <= 0:
        return False
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True


def _let_go_in_children(lock: Lock) -> None:
    """A forked child inherits the lock and would keep it alive after its parent was killed: it closes its copy."""
    reference = weakref.ref(lock)

    def let_go() -> None:
        inherited = reference()
        if inherited is not None:
            inherited.release()

    os.register_at_fork(after_in_child=let_go)
