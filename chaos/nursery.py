"""Commands in processes of their own that may be killed, forked from one that has done the imports.

Importing JAX takes seconds; it has no threads before it first computes, so that a process which has
imported it and computed nothing can be forked safely. This module is both sides: `Nursery` starts
that process and talks to it by lines of JSON, `main` is what runs in it."""

import contextlib
import dataclasses
import importlib
import importlib.util
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
import types
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

COMMAND = "scorebed.cli._app:run"
PATIENCE = 300.0  # seconds for any command to end

# What commands import, done once beforehand.
EARLY = (
    "matplotlib.figure",
    "scorebed.cli.resume",
    "scorebed.cli.serve",
    "scorebed.cli.train",
    "scorebed.cli._execute",
    "scorebed.presets.reader",
    "scorebed.runs.begin",
    "scorebed.runs.load",
    "scorebed.web.server",
)
# Compiling takes most of the time; programs are kept for all of the commands.
FLAGS = "--xla_backend_optimization_level=0 --xla_cpu_parallel_codegen_split_count=1"


@dataclasses.dataclass(frozen=True)
class Death:
    """kill −9 at the n-th access to a folder: before a file is opened, made, renamed or removed,
    before or after it is brought to the disk, or when half of it is written.

    `log` is told where it was."""

    folder: str
    number: int
    log: str


class Child:
    """A command that was started."""

    def __init__(self, nursery: "Nursery", pid: int, out: Path):
        self.pid, self.out, self._nursery = pid, out, nursery

    def wait(self, timeout: float = PATIENCE) -> int:
        """Its exit code, negative for a signal; it is killed if it takes longer."""
        killer = threading.Timer(timeout, self.kill)
        killer.start()
        try:
            status = int(self._nursery.ask({"wait": self.pid}, timeout + 30)["status"])
        finally:
            killer.cancel()
        return os.waitstatus_to_exitcode(status)

    def kill(self) -> None:
        """kill −9."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)

    def said(self) -> str:
        """All of its output so far."""
        try:
            return self.out.read_text(errors="replace")
        except FileNotFoundError:
            return ""


class Nursery:
    """The process that commands are forked from, with their compiled programs in `work`."""

    def __init__(self, work: Path):
        self.work, self._count = work, 0
        environment = {
            "XLA_FLAGS": f"{FLAGS} {os.environ.get('XLA_FLAGS', '')}",
            "JAX_COMPILATION_CACHE_DIR": str(work / "compiled"),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "0",
        }
        self._process = subprocess.Popen(
            [sys.executable, "-m", "chaos.nursery"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=Path(__file__).parents[1],
            env=os.environ | environment,
        )

    def __enter__(self) -> "Nursery":
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing outlives it: its children are ended with it."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)

    def start(
        self, arguments: Sequence[str], *, death: Death | None = None, call: str = COMMAND
    ) -> Child:
        """Start `scorebed ARGUMENTS`, or another function of arguments, MODULE:NAME."""
        self._count += 1
        out = self.work / f"said-{self._count % 100}.txt"
        out.unlink(missing_ok=True)  # what an earlier command said is not for this one's readers
        asked = {
            "arguments": list(arguments),
            "call": call,
            "out": str(out),
            "death": None if death is None else dataclasses.asdict(death),
        }
        return Child(self, int(self.ask(asked, 120)["pid"]), out)

    def ask(self, request: Mapping[str, Any], timeout: float) -> dict[str, Any]:
        """One question and its answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        self._process.stdin.flush()
        if not select.select([self._process.stdout], [], [], timeout)[0]:
            self._process.kill()
            raise TimeoutError(f"no answer to {request} in {timeout:.0f} s")
        return json.loads(self._process.stdout.readline())


def _import_blackjax_without_its_algorithms() -> None:
    """They compute while they are imported, and scorebed uses none of them: it builds on the parts
    below.
    """
    found = importlib.util.find_spec("blackjax")
    assert found is not None
    bare: Any = types.ModuleType("blackjax")
    bare.__path__ = list(found.submodule_search_locations or ())
    sys.modules["blackjax"] = bare
    bare.SamplingAlgorithm = importlib.import_module("blackjax.base").SamplingAlgorithm


def main() -> None:
    """Fork what is asked for, until nobody asks."""
    _import_blackjax_without_its_algorithms()
    for name in EARLY:
        __import__(name)
    from jax._src import xla_bridge

    assert not xla_bridge.backends_are_initialized(), "an import computes: it cannot be forked"
    alive: set[int] = set()
    for line in sys.stdin:
        request = json.loads(line)
        if "wait" in request:
            _, status = os.waitpid(request["wait"], 0)
            alive.discard(request["wait"])
            answer = {"status": status}
        else:
            pid = os.fork()
            if pid == 0:
                _live(request)
            alive.add(pid)
            answer = {"pid": pid}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
    for pid in alive:
        os.kill(pid, signal.SIGKILL)


def _live(request: Mapping[str, Any]) -> None:
    """What the child does: one command."""
    code = 70
    try:
        said = os.open(request["out"], os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o666)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for source, target in ((nothing, 0), (said, 1), (said, 2)):
            os.dup2(source, target)
        from scorebed.runs import stage

        stage.CHECKPOINT_SECONDS = 0.0  # a checkpoint after every block
        if request["death"] is not None:
            die_at(Death(**request["death"]))
        module, _, name = request["call"].partition(":")
        code = getattr(importlib.import_module(module), name)(request["arguments"])
    except KeyboardInterrupt:
        code = 130
    except BaseException:
        sys.excepthook(*sys.exc_info())
        code = 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


ACCESSES = {"open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate"}


def die_at(death: Death) -> None:
    """Have this process killed as said, by itself."""
    count = 0

    def step(what: str, path: Any, before: Callable[[], object] = lambda: None) -> None:
        nonlocal count
        if not isinstance(path, str | os.PathLike) or death.folder not in os.fspath(path):
            return
        count += 1
        if count == death.number:
            before()
            with open(death.log, "a") as log:
                log.write(f"{what}\n")
            os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(60)  # until it arrives

    def audit(event: str, arguments: Sequence[Any]) -> None:
        if event in ACCESSES:
            step(event, arguments[0])

    from scorebed.runs import checkpoint, durable

    fsync, write_new = os.fsync, durable.write_new

    def fsync_or_die(descriptor: int) -> None:
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        step("before fsync", path)
        fsync(descriptor)
        step("after fsync", path)

    def write_or_die(path: Path, data: bytes) -> None:
        step("half written", path, lambda: path.write_bytes(data[: len(data) // 2]))
        write_new(path, data)

    os.fsync = fsync_or_die
    durable.write_new = checkpoint.write_new = write_or_die
    sys.addaudithook(audit)


if __name__ == "__main__":
    main()
