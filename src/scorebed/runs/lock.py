"""One owner of a folder at a time, by `flock` on a file that holds the owner's process id.

The kernel drops the lock when the owner ends, however it ends, so a lock is never stale; the file
itself stays."""

import fcntl
import os
import time
import weakref
from pathlib import Path

from scorebed.errors import FolderInUseError
from scorebed.runs.durable import explained

# seconds for an owner to write its id after it got the lock, and for the child of a dead one to
# let go
PATIENCE = 0.3


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
        """Take the lock; raises `FolderInUseError` with the owner's process id if another has
        it.
        """
        if self.held:
            return
        with explained("locking", self.path):
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            try:
                self._wait_for(descriptor)
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
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

    def _wait_for(self, descriptor: int) -> None:
        # An owner that lives is refused at once. One that was killed may leave a child that has yet
        # to close its copy, and one that has just begun has yet to write its id: both pass within
        # PATIENCE.
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                owner = self._owner()
                if _lives(owner) or time.monotonic() > deadline:
                    raise self._in_use(owner) from None
            time.sleep(0.01)

    def _in_use(self, owner: int) -> FolderInUseError:
        return FolderInUseError(
            f"the run folder {self.path.parent}",
            got=f"one that process {owner or 'of unknown id'} is writing to",
            expected="one that nobody else writes to",
            fix=f"wait for process {owner or 'it'} to end, or stop it; commands that only read "
            f"work meanwhile.",
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
    """A forked child inherits the lock and would keep it alive after its parent was killed: it
    closes its copy.
    """
    reference = weakref.ref(lock)

    def let_go() -> None:
        inherited = reference()
        if inherited is not None:
            inherited.release()

    os.register_at_fork(after_in_child=let_go)
