"""A pool of workers: pieces of work go to a Dask cluster, one at a time to every thread of it.

A piece is a function of this library with plain arguments (names, numbers, paths), and gives plain
values: nothing else travels. A piece must be safe to do twice. One whose worker dies, or that
fails, is tried three times and then reported, while the others go on.
"""

import contextlib
import logging
import os
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from scorebed.errors import InvalidValueError, ScorebedError, require

if TYPE_CHECKING:
    from distributed import Client, Security

TRIES = 3
REACHED_WITHIN = 10.0  # seconds
DIED = "its workers died"
LOOK_AGAIN = 1.0  # seconds between two looks at the number of workers
PATIENCE = 10.0  # seconds without a worker after which it is said so
# Workers share the cores by their number, not by threads that stand in each other's way.
ONE_THREAD = "--xla_cpu_multi_thread_eigen=false"

Plain: TypeAlias = Any  # str, int, float, bool, None, and lists and dicts of these
OnDone: TypeAlias = Callable[[str], None]


class PoolResult(NamedTuple):
    """What pieces came to, by name, and in a sentence why others failed."""

    results: dict[str, Plain]
    failed: dict[str, str]


class PiecesFailedError(ScorebedError):
    """Some pieces of work failed, each as often as it was tried; the others are done."""

    def __init__(self, failed: Mapping[str, str]):
        each = "; ".join(f"{name}: {reason}" for name, reason in failed.items())
        number = "1 piece" if len(failed) == 1 else f"{len(failed)} pieces"
        super().__init__(
            f"{number} of the work, got {TRIES} failures each ({each}), expected them "
            "to end. Fix: see the reasons; the others are kept, and the same command goes on from "
            "there."
        )


class TlsFiles(NamedTuple):
    """The files of an encrypted connection to a Dask cluster; where none is given Dask's own
    configuration counts.
    """

    ca_file: Path | None = None
    cert: Path | None = None
    key: Path | None = None


NO_TLS = TlsFiles()


class Pool:
    """Workers that can be given pieces. Made by `local_pool` or `dask_pool`."""

    def __init__(self, client: "Client"):
        self.client = client

    def run(
        self,
        function: Callable[..., Plain],
        pieces: Mapping[str, tuple[Plain, ...]],
        *,
        on_done: OnDone = lambda _: None,
    ) -> PoolResult:
        """`function(*arguments)` of every piece, in any order, by whoever is free."""
        # No more pieces are on their way than threads: one that waits behind a piece that kills its
        # worker would be suspected too.
        waiting, running = deque(pieces), dict[Any, str]()
        tries: Counter[str] = Counter()
        found = PoolResult({}, {})
        idle = time.monotonic()
        with _scheduler_lost():
            while waiting or running:
                threads = self._threads()
                idle = time.monotonic() if threads else idle
                if time.monotonic() - idle > PATIENCE:
                    _say("no worker is left; waiting for one")
                    idle = time.monotonic() + 10 * PATIENCE
                while waiting and len(running) < threads:
                    name = waiting.popleft()
                    work = self.client.submit(attempt, function, pieces[name], pure=False)
                    running[work] = name
                for future in self._done(running):
                    name = running.pop(future)
                    result, failure = _outcome(future)
                    if failure is None:
                        found.results[name] = result
                        on_done(name)
                        continue
                    tries[name] += 1
                    if tries[name] < TRIES and failure != DIED:
                        waiting.append(name)
                    else:
                        found.failed[name] = failure
        return found

    def run_all(
        self,
        function: Callable[..., Plain],
        pieces: Mapping[str, tuple[Plain, ...]],
        *,
        on_done: OnDone = lambda _: None,
    ) -> dict[str, Plain]:
        """The same, with an error at the end if any piece has failed."""
        found = self.run(function, pieces, on_done=on_done)
        if found.failed:
            raise PiecesFailedError(found.failed)
        return found.results

    def _threads(self) -> int:
        if self.client.scheduler is None:
            raise OSError("the connection is closed")
        return sum(self.client.nthreads().values())

    @property
    def workers(self) -> int:
        """How many there are now."""
        return len(self.client.nthreads())

    def _done(self, running: Mapping[Any, str]) -> list[Any]:
        from distributed import wait

        if not running:
            time.sleep(LOOK_AGAIN)
            return []
        with contextlib.suppress(TimeoutError):
            wait(list(running), timeout=LOOK_AGAIN, return_when="FIRST_COMPLETED")
        return [future for future in running if future.done()]


@contextlib.contextmanager
def local_pool(count: int) -> Iterator[Pool]:
    """Workers of this machine, each a process with one thread, on loopback; they end with it."""
    distributed = _distributed("--workers")
    import dask

    flags = f"{ONE_THREAD} {os.environ.get('XLA_FLAGS', '')}"
    settings = {
        # The scheduler counts further tries.
        "distributed.scheduler.allowed-failures": TRIES - 1,
        "distributed.worker.memory.terminate": False,
    }
    with (
        dask.config.set(settings),
        distributed.LocalCluster(
            n_workers=count,
            threads_per_worker=1,
            processes=True,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
            memory_limit=0,
            silence_logs=logging.CRITICAL,
            env={"XLA_FLAGS": flags},
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield Pool(client)


@contextlib.contextmanager
def dask_pool(where: str, tls: TlsFiles = NO_TLS) -> Iterator[Pool]:
    """The workers of a Dask cluster that runs; `where` is the address of its scheduler, or its
    scheduler file.
    """
    distributed = _distributed("--dask")
    is_file = where.endswith(".json")
    how: dict[str, Any] = {"scheduler_file": where} if is_file else {"address": where}
    try:
        client = distributed.Client(**how, security=_security(tls), timeout=REACHED_WITHIN)
    except (OSError, ValueError, TypeError) as error:
        raise InvalidValueError(
            "--dask",
            got=f"'{where}' ({' '.join(str(error).split())[:200]})",
            expected="the address of a Dask scheduler that runs, or its scheduler file",
            fix="start one: dask scheduler --host 127.0.0.1, and give its tcp://… address.",
        ) from None
    with client:
        yield Pool(client)


def worker_name() -> str:
    """Who this is: host, process and thread."""
    return f"{os.uname().nodename}-{os.getpid()}-{threading.get_native_id()}"


def _security(tls: TlsFiles) -> "Security | None":
    if not any(tls):
        return None
    from distributed import Security

    require(
        all(tls) and all(path.is_file() for path in tls if path),
        "--dask-tls-ca-file, --dask-tls-cert and --dask-tls-key",
        got=", ".join(str(path) for path in tls if path),
        expected="three files that exist",
        fix="give all of them, or none and use Dask's own configuration.",
    )
    return Security(
        tls_ca_file=str(tls.ca_file),
        tls_client_cert=str(tls.cert),
        tls_client_key=str(tls.key),
        require_encryption=True,
    )


def _distributed(option: str) -> Any:
    try:
        import distributed
    except ModuleNotFoundError as missing:
        raise ScorebedError(
            f"{option}, got no package '{missing.name}', expected distributed. "
            "Fix: pip install 'scorebed[cluster]'."
        ) from missing
    return distributed


@contextlib.contextmanager
def _scheduler_lost() -> Iterator[None]:
    """A scheduler that is gone, in one sentence: what was done is in the shared folder."""
    from concurrent.futures import CancelledError

    from distributed.client import FutureCancelledError
    from distributed.comm import CommClosedError

    try:
        yield
    except (CommClosedError, FutureCancelledError, CancelledError, OSError) as error:
        raise ScorebedError(
            f"the Dask scheduler, got '{' '.join(str(error).split())[:200]}', expected one that "
            "goes on. Fix: start it and its workers again, then the same command: what is done is "
            "kept."
        ) from None


def attempt(function: Callable[..., Plain], arguments: Sequence[Plain]) -> list[Plain]:
    """A piece, on a worker: what it gives, or why it failed in a sentence. An exception itself
    would travel as a pickle, and one that cannot be read back would never arrive.
    """
    try:
        return [function(*arguments), None]
    except Exception as error:
        words = " ".join(str(error).split())[:300]
        ours = isinstance(error, ScorebedError)
        return [None, words if ours else f"{type(error).__name__}: {words}"]


def _outcome(future: Any) -> tuple[Plain, str | None]:
    """What came of a piece, or why nothing did."""
    from distributed import KilledWorker

    try:
        result, failure = future.result()
    except KilledWorker:
        return None, DIED
    return result, failure


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")
