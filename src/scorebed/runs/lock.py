"""One owner of a folder at a time, by a lock on a file that holds the owner's process id.

The kernel drops the lock when the owner ends, however it ends, so a lock is never stale; the file
itself stays."""

import os
import time
import weakref
from pathlib import Path

from scorebed._platform import (
    NOT_INHERITED,
    in_forked_children,
    overwrite,
    process_lives,
    try_lock,
)
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
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | NOT_INHERITED, 0o666)
            try:
                self._wait_for(descriptor)
                overwrite(descriptor, f"{os.getpid()}\n".encode())
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
        while not try_lock(descriptor):
            owner = self._owner()
            if process_lives(owner) or time.monotonic() > deadline:
                raise self._in_use(owner)
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


def _let_go_in_children(lock: Lock) -> None:
    """A forked child inherits the lock and would keep it alive after its parent was killed: it
    closes its copy.
    """
    reference = weakref.ref(lock)

    def let_go() -> None:
        inherited = reference()
        if inherited is not None:
            inherited.release()

    in_forked_children(let_go)
