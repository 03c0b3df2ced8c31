"""Leases: who runs a trial, and until when.

The lease of a trial is a file leases/NUMBER.EPOCH.json with an owner and an expiry, which the owner
renews. The file of the highest epoch counts. A worker takes a trial up by making the next epoch's
file, which succeeds for one worker only, and may do so once the lease before has expired or was
given back. A worker that comes back after its lease was taken finds the next epoch and stops; what
it wrote meanwhile is in a run folder of its own epoch, which nobody else uses.

Clocks of different machines have to agree to within a fraction of a lease's seconds. Where the
storage is a database, its heartbeats have to have stopped too (`heartbeats.py`), and these go by
the clock of the server.
"""

import contextlib
import dataclasses
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from scorebed.errors import DiskFullError, ScorebedError
from scorebed.runs import strict_json
from scorebed.runs.durable import explained, replace_file, temporary_beside, write_new

SECONDS = 60.0  # of a lease; renewed three times as often


class LeaseLostError(ScorebedError):
    """Another worker has taken a trial up: this one must not go on with it."""


class LeaseFile(NamedTuple):
    """What a lease says."""

    owner: str
    expires: float
    """In seconds since 1970; 0 once it was given back."""
    failures: int
    """Attempts at the trial that ended with an error."""
    reached: int
    """Lines of metrics that the furthest attempt before this one had written."""
    errors: tuple[str, ...]
    """What attempts failed of."""
    deaths: tuple[int, ...] = ()
    """Epochs whose worker fell silent before it got further than others."""


@dataclasses.dataclass(frozen=True)
class Lease:
    """A trial in the hands of this worker."""

    folder: Path
    number: int
    epoch: int
    content: LeaseFile
    seconds: float

    @property
    def lost(self) -> bool:
        """Whether another worker has taken the trial up, or finished it. A folder that is gone
        with all leases says neither: its disk is away.
        """
        with explained("looking for leases in", self.folder):
            os.stat(self.folder)
            after = _path(self.folder, self.number, self.epoch + 1)
            return after.exists() or not self._file.exists()

    def check(self) -> None:
        """Raise `LeaseLostError` if the lease is lost."""
        if self.lost:
            raise LeaseLostError(
                f"the lease of trial {self.number}, got one that another worker has taken over, "
                "expected one that is held. Fix: nothing is to be done; the other worker goes on."
            )

    def renew(self) -> None:
        """Hold the trial for some more seconds, if it is still held."""
        if not self.lost:
            self._write(self.content._replace(expires=time.time() + self.seconds))

    def give_back(self) -> None:
        """Let others take the trial up at once; it counts as no failure."""
        if self.lost:
            return
        free = self.content._replace(expires=0.0)
        try:
            self._write(free)
        except DiskFullError:  # the file that is there has room enough
            size = self._file.stat().st_size
            with self._file.open("r+b") as file:
                file.write(_bytes(free).ljust(size))

    def stand_down(self) -> None:
        """Say, after the trial was taken from this worker, that it was slow and not dead."""
        if _path(self.folder, self.number, self.epoch + 1).exists():
            replace_file(_alive(self.folder, self.number, self.epoch), b"")

    def fail(self, error: str) -> int:
        """Give back a trial that failed, and say how often it has, with its workers' deaths."""
        errors = (*self.content.errors, error)
        failed = self.content._replace(
            expires=0.0, failures=self.content.failures + 1, errors=errors
        )
        if not self.lost:
            self._write(failed)
        return failed.failures + self.deaths

    def end(self) -> None:
        """Remove the leases of a trial that is finished, those that came after this one too."""
        # The earliest first: no owner may find its file without the one that followed.
        for path in sorted(self.folder.glob(f"{self.number:05d}.*"), key=_epoch):
            path.unlink(missing_ok=True)

    @contextlib.contextmanager
    def renewed(self, beat: Callable[[], None] = lambda: None) -> Iterator[None]:
        """Renew the lease from a thread, for compiling may take longer than a lease lasts; `beat`
        is another sign of life that it gives.
        """
        stop = threading.Event()

        def renew() -> None:
            while not stop.wait(self.seconds / 3):
                for sign in (self.renew, beat):
                    with contextlib.suppress(Exception):  # the next time may do better
                        sign()

        thread = threading.Thread(target=renew, daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()

    @property
    def deaths(self) -> int:
        """Workers that died with this trial: those that fell silent, and have not come back."""
        silent = (_alive(self.folder, self.number, epoch) for epoch in self.content.deaths)
        return sum(not path.exists() for path in silent)

    @property
    def _file(self) -> Path:
        return _path(self.folder, self.number, self.epoch)

    def _write(self, content: LeaseFile) -> None:
        replace_file(self._file, _bytes(content))


def latest(folder: Path, number: int) -> tuple[int, LeaseFile | None]:
    """The highest epoch of a trial's leases, 0 if there is none, and what its file says."""
    epoch = 0
    while _path(folder, number, epoch + 1).exists():
        epoch += 1
    return epoch, _read(_path(folder, number, epoch)) if epoch else None


def is_free(content: LeaseFile | None) -> bool:
    """Whether a trial with this lease may be taken up."""
    return content is None or content.expires < time.time()


def claim(
    folder: Path,
    number: int,
    epoch: int,
    owner: str,
    *,
    failures: int = 0,
    reached: int = 0,
    errors: tuple[str, ...] = (),
    deaths: tuple[int, ...] = (),
    seconds: float = SECONDS,
) -> Lease | None:
    """The lease of an epoch; None if another worker has made it first."""
    content = LeaseFile(owner, time.time() + seconds, failures, reached, errors, deaths)
    path = _path(folder, number, epoch)
    temporary = temporary_beside(path)
    with explained("writing", path):
        try:
            write_new(temporary, _bytes(content))
            os.link(temporary, path)  # fails if there is one, on a shared disk too
        except FileExistsError:
            # A server whose answer was lost is asked twice, and finds the link that it has made.
            if temporary.stat().st_nlink != 2:
                return None
        finally:
            temporary.unlink(missing_ok=True)
    return Lease(folder, number, epoch, content, seconds)


def _path(folder: Path, number: int, epoch: int) -> Path:
    return folder / f"{number:05d}.{epoch}.json"


def _alive(folder: Path, number: int, epoch: int) -> Path:
    return folder / f"{number:05d}.{epoch}.alive"


def _epoch(path: Path) -> int:
    return int(path.name.split(".")[1])


def _bytes(content: LeaseFile) -> bytes:
    return (strict_json.dumps(content._asdict()) + "\n").encode()


def _read(path: Path) -> LeaseFile | None:
    """What a lease says; None for one that is gone. A damaged one is free."""
    try:
        values: Any = strict_json.loads(path.read_bytes())
        lists = {key: tuple(values.get(key, ())) for key in ("errors", "deaths")}
        return LeaseFile(**{**values, **lists})
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError):
        return LeaseFile("nobody", 0.0, 0, 0, ())
