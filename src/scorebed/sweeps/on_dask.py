"""Workers of a Dask cluster work on a study. Needs the extra `cluster`.

The path of the study and a number are all that is sent to them, and a number is all that comes
back; results are in the study. So nothing depends on a scheduler or a worker that is lost: while
the scheduler is away the study waits for it, and a worker that comes, or comes back, is put to
work.
"""

import contextlib
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from scorebed.errors import InvalidValueError, ScorebedError, require
from scorebed.sweeps.away import LONGEST_PAUSE, patiently
from scorebed.sweeps.status import study_status
from scorebed.sweeps.study import SweepStudy, open_study, worker_name

REACHED_WITHIN = 10  # seconds
LOOK_AGAIN = 1.0  # seconds between two looks at the workers
LET_END = 10.0  # seconds for workers to see that a study is over


class _SchedulerLostError(Exception):
    """The scheduler is away, and what was submitted to it is lost."""


def run_on_dask(
    study: SweepStudy,
    address: str,
    *,
    lease_seconds: float,
    say: Callable[[str], None] = lambda _: None,
) -> dict[str, int]:
    """A worker on every worker of a Dask cluster until the study is over; how many trials each has
    ended, by its address, where that is known.
    """
    client = _connect(address)
    try:
        require(
            bool(_workers(client)),
            "--dask",
            got=f"the scheduler {address} without workers",
            expected="at least one",
            fix=f"start some: dask worker {address} --nthreads 1",
        )
        while True:
            try:
                return _Crew(study, client, lease_seconds, say).work()
            except _SchedulerLostError:
                say(f"waiting for the scheduler {address}")
                _close(client)
                client = _connect_again(address)
                say(f"the scheduler {address} is back")
    finally:
        _close(client)


def work_here(folder: str, lease_seconds: float) -> int:
    """A worker in this process, whatever has called it; how many trials it has ended."""
    from scorebed.sweeps.worker import Worker

    owner = f"{worker_name()}-{threading.get_native_id()}"
    return Worker(open_study(Path(folder)), owner=owner, lease_seconds=lease_seconds).work()


class _Crew:
    """The workers of one connection to a scheduler."""

    def __init__(
        self, study: SweepStudy, client: Any, lease_seconds: float, say: Callable[[str], None]
    ):
        self.study, self.client, self.say = study, client, say
        self.trials = study.load(brief=True)
        self.order = (str(study.folder.resolve()), lease_seconds)
        self.at_work: dict[str, Any] = {}
        self.failed: dict[str, str] = {}

    def work(self) -> dict[str, int]:
        """Keep every worker at work until the study is over."""
        while not patiently(lambda: study_status(self.study, self.trials), self.say).over:
            self._engage(_workers(self.client))
            for address, future in self.at_work.items():
                if future.status == "cancelled":
                    raise _SchedulerLostError
                if future.status == "error" and address not in self.failed:
                    self.failed[address] = " ".join(str(future.exception()).split())[:300]
                    self.say(f"{address} has stopped: {self.failed[address]}")
            self._require_one()
            time.sleep(LOOK_AGAIN)
        return self._ended()

    def _engage(self, there: set[str]) -> None:
        for address in set(self.at_work) - there:  # it is gone, and others take up what it had
            self.at_work.pop(address).cancel()
            self.failed.pop(address, None)
            self.say(f"{address} is gone")
        for address in there - set(self.at_work):
            self.at_work[address] = self.client.submit(
                work_here, *self.order, workers=[address], allow_other_workers=False, pure=False
            )

    def _require_one(self) -> None:
        if self.failed and set(self.at_work) <= set(self.failed):
            address, error = next(iter(self.failed.items()))
            raise ScorebedError(
                f"the workers of {self.study.folder}, got '{error}' on {address}, expected at "
                "least one that goes on. Fix: see that all have the study's folder under the same "
                "path, and the extra scorebed[sweep]."
            )

    def _ended(self) -> dict[str, int]:
        """What workers say that they have ended, of those that still can say it."""
        deadline = time.monotonic() + LET_END
        found = {}
        for address, future in self.at_work.items():
            while not future.done() and time.monotonic() < deadline:
                time.sleep(0.05)
            if future.status == "finished":
                found[address] = int(future.result(timeout=REACHED_WITHIN))
        return found


def _workers(client: Any) -> set[str]:
    """The addresses of a scheduler's workers, now."""
    if client.status != "running":
        raise _SchedulerLostError
    try:
        return set(client.scheduler_info(n_workers=-1)["workers"])
    except (OSError, TimeoutError) as error:
        raise _SchedulerLostError from error


def _connect(address: str) -> Any:
    try:
        from distributed import Client
    except ModuleNotFoundError as missing:
        raise ScorebedError(
            f"--dask, got no package '{missing.name}', expected distributed. "
            "Fix: pip install 'scorebed[cluster]'."
        ) from missing
    try:
        return Client(address, timeout=REACHED_WITHIN)
    except (OSError, ValueError) as error:
        raise InvalidValueError(
            "--dask",
            got=f"'{address}' ({' '.join(str(error).split())[:200]})",
            expected="the address of a Dask scheduler that runs",
            fix="start one: dask scheduler --host 127.0.0.1, and give its tcp://… address.",
        ) from None


def _close(client: Any) -> None:
    with contextlib.suppress(OSError, TimeoutError):  # of a scheduler that is not there
        client.close(timeout=REACHED_WITHIN)


def _connect_again(address: str) -> Any:
    pause = 1.0
    while True:
        try:
            return _connect(address)
        except InvalidValueError:
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)
