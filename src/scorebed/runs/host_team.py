"""Several hosts as a team, by `jax.distributed`: how they meet, what they tell each other, and what
happens if one is lost.

A host that dies takes the others with it: they cannot go on without its share of every batch, and a
checkpoint is at most one interval old. JAX notices too, but it ends the process with a dump; a
watch of our own is faster, and ends it with a sentence.

JAX has to be told before it computes anything: nothing is imported here that does.
"""

import contextlib
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import jax
import numpy as np
from jax._src import distributed  # the store of the hosts' beats has no public name
from jax.experimental import multihost_utils
from jaxtyping import PyTree

from scorebed._sharding import host_mesh
from scorebed.errors import InvalidValueError, ScorebedError, require

if TYPE_CHECKING:
    from scorebed.runs.stage import StageCheckpointer
    from scorebed.training.watched import Watched

JOINED_WITHIN = 300  # seconds
BEAT = 2.0  # seconds between two signs of life
LOST_AFTER = 30.0  # seconds without one
JAX_WAITS = 300  # seconds after which JAX itself would end the process
LEFT_WITHIN = 60  # seconds for all hosts to say goodbye

# How an error of another host, or of the way to it, begins.
STATUS = re.compile("UNKNOWN|UNAVAILABLE|INTERNAL|ABORTED|CANCELLED|DEADLINE_EXCEEDED")

Tree = TypeVar("Tree", bound=PyTree)
OnLost = Callable[[ScorebedError], None]


class HostLostError(ScorebedError):
    """Another host is gone, and this one cannot go on without it."""

    def __init__(self, got: str):
        super().__init__(
            f"the training over several hosts, got {got}, expected all hosts to go on. Fix: start "
            "all of them again with `scorebed resume RUN` and the same --hosts; what was saved "
            "is kept."
        )


class Hosts(NamedTuple):
    """Which of how many hosts this one is; they meet at an address of host 0. Without it and a
    number JAX asks SLURM or MPI.
    """

    number: int
    rank: int | None = None
    coordinator: str | None = None


class Team:
    """This host among the others, from `join` to `leave`."""

    def __init__(self, devices: int, *, on_lost: OnLost):
        # `together` until all have left, `waiting` until host 0 has said what to do
        self.rank, self.count, self.devices = jax.process_index(), jax.process_count(), devices
        self.together, self.waiting = True, True
        self.watch = _Watch(self.rank, self.count, on_lost)
        self.watch.start()

    @property
    def leads(self) -> bool:
        """Whether this is host 0."""
        return self.rank == 0

    def same(self, tree: Tree) -> Tree:
        """The arrays of host 0, on every host."""
        with others_lost():
            found: Tree = multihost_utils.broadcast_one_to_all(tree)
        return found

    def same_text(self, text: str) -> str:
        """A text of host 0, on every host."""
        data = np.frombuffer(text.encode(), np.uint8)
        length = int(self.same(np.asarray(len(data), np.int32)))
        if length == 0:
            return ""
        sent = data if self.leads else np.zeros(length, np.uint8)
        return np.asarray(self.same(sent), np.uint8).tobytes().decode()

    def carry_out(self, stage: "StageCheckpointer") -> "Watched":
        """A stage that host 0 keeps on its disk."""
        stage.watched = self.same(stage.watched)
        with others_lost(), host_mesh(self.devices):
            return stage.carry_out()

    def leave(self) -> None:
        """Say goodbye, when all hosts have come to here; JAX goes on with this host alone."""
        with others_lost():
            multihost_utils.sync_global_devices("scorebed-end")
            self.watch.stop()
            jax.distributed.shutdown()
        self.together = False

    def dismiss(self) -> None:
        """Tell hosts that still wait for a run, as host 0, that there is none."""
        if self.leads and self.waiting:
            with contextlib.suppress(HostLostError):
                self.same_text("")
                self.leave()


def join(hosts: Hosts, devices: int, *, on_lost: OnLost) -> Team:
    """Meet the other hosts. Nothing of JAX may have been used before.

    `on_lost` is called, from another thread, when a host gives no sign of life any more; it has to
    end the process, which may be waiting for that host.
    """
    _check(hosts)
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    try:
        jax.distributed.initialize(
            hosts.coordinator,
            hosts.number,
            hosts.rank,
            # Where the others find it, and nowhere else: JAX would listen on all addresses.
            coordinator_bind_address=hosts.coordinator,
            initialization_timeout=JOINED_WITHIN,
            heartbeat_timeout_seconds=JAX_WAITS,
            shutdown_timeout_seconds=LEFT_WITHIN,
        )
    except (ValueError, RuntimeError) as error:  # JAX's own errors are RuntimeErrors
        raise InvalidValueError(
            "--hosts",
            got=f"'{_first_words(error)}'",
            expected=f"{hosts.number} hosts that meet within {JOINED_WITHIN} s",
            fix="start the same command on every host, with its own --rank and with the "
            "--coordinator HOST:PORT that is an address of host 0.",
        ) from None
    return Team(devices, on_lost=on_lost)


@contextlib.contextmanager
def quiet_stdout() -> Iterator[None]:
    """Send what libraries print to stdout to stderr: answers alone belong there."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


def _check(hosts: Hosts) -> None:
    require(
        hosts.rank is None or 0 <= hosts.rank < hosts.number,
        "--rank",
        got=hosts.rank,
        expected=f"the number of this host, from 0 to {hosts.number - 1}",
        fix="host 0 has the run folder.",
    )
    host, _, port = (hosts.coordinator or "host:1").rpartition(":")
    require(
        host != "" and port.isdecimal() and 0 < int(port) < 65536,
        "--coordinator",
        got=f"'{hosts.coordinator}'",
        expected="HOST:PORT, an address of host 0",
        fix="for processes of one machine take 127.0.0.1:8476.",
    )


@contextlib.contextmanager
def others_lost() -> Iterator[None]:
    """What JAX says when it cannot reach another host, in our words."""
    try:
        yield
    except (jax.errors.JaxRuntimeError, ValueError) as error:  # it raises either
        if not STATUS.match(str(error)):
            raise
        raise HostLostError(f"'{_first_words(error)}'") from None


def _first_words(error: BaseException) -> str:
    return " ".join(str(error).split())[:200]


class _Watch:
    """A thread that gives signs of life in the store that JAX's coordinator keeps, and looks for
    those of the others.
    """

    def __init__(self, rank: int, count: int, on_lost: OnLost):
        self.rank, self.others = rank, [each for each in range(count) if each != rank]
        self.on_lost, self.over = on_lost, threading.Event()
        self.thread = threading.Thread(target=self._look, daemon=True)
        self.seen: dict[int, tuple[str, float]] = {}

    def start(self) -> None:
        now = time.monotonic()
        self.seen = dict.fromkeys(self.others, ("", now))
        self.thread.start()

    def stop(self) -> None:
        self.over.set()
        self.thread.join()

    def _look(self) -> None:
        store: Any = distributed.global_state.client
        number = 0
        while not self.over.wait(BEAT):
            number += 1
            now = time.monotonic()
            # A store that does not answer is a host 0 that gives no signs.
            with contextlib.suppress(jax.errors.JaxRuntimeError):
                store.key_value_set(_beat(self.rank), str(number), allow_overwrite=True)
            for other in self.others:
                with contextlib.suppress(jax.errors.JaxRuntimeError):
                    value = store.key_value_try_get(_beat(other))
                    if value != self.seen[other][0]:
                        self.seen[other] = (value, now)
            lost = self._lost(now)
            if lost and not self.over.is_set():
                names = " and ".join(f"host {each}" for each in lost)
                self.on_lost(HostLostError(f"no sign of {names} for {LOST_AFTER:.0f} s"))

    def _lost(self, now: float) -> Sequence[int]:
        return [other for other in self.others if now - self.seen[other][1] > LOST_AFTER]


def _beat(rank: int) -> str:
    return f"scorebed/beat/{rank}"
