"""A disk that is full at every write in turn: one line that says so, what was saved before is
whole, and with room again the run, or the experiment, goes on as if nothing had been.
"""

import errno
import importlib
import os
import sqlite3
import sys
from pathlib import Path
from typing import Any

from chaos.nursery import Nursery
from chaos.parts import Found, Part
from chaos.tiny import finished_run
from chaos.training_kills import METHODS, command_line, files
from scorebed.errors import ScorebedError
from scorebed.runs.load import load
from scorebed.session.session import Session
from scorebed.session.store import Store

STRIDE = 9  # pieces that share the writes of a run
METHOD = list(METHODS)[1]
STEPS = 3


def full_disk(work: Path, number: int, cases: int) -> Found:
    """Every STRIDE-th write of a run from number `number`, at most `cases`, and in the first
    piece every write of an experiment.
    """
    found = Found()
    if number == 0:
        _experiment(found, work)
    with Nursery(work) as nursery:
        whole = work / "whole"
        if not (whole / "record.json").exists():
            child = nursery.start(command_line(METHOD, whole))
            assert child.wait() == 0, child.said()
        path = work / f"full-{number}"
        for case in range(cases):
            at = 1 + number + case * STRIDE
            started = (path / "config.toml").exists()
            words = ["resume", str(path)] if started else command_line(METHOD, path)
            child = nursery.start([str(at), str(path), *words], call="chaos.full_disk:without_room")
            code, said = child.wait(), child.said()
            if code == 0:
                break
            found.counts["writes of a run that failed"] += 1
            found.counts["writes that failed"] += 1
            lines = [line for line in said.splitlines() if line.startswith("error: ")]
            found.expect(code == 2 and len(lines) == 1, f"write {at}: exit {code}, {said[-400:]}")
            found.expect("Traceback" not in said, f"write {at}: a traceback")
            left = [p.name for p in path.rglob(".tmp-*")] if path.exists() else []
            found.expect(not left, f"write {at} left {left}")
            if path.exists() and not (path / "config.toml").exists():
                found.faults.append(f"write {at} left half a run folder")
        if (path / "config.toml").exists():
            child = nursery.start(["resume", str(path)])
            code = child.wait()
            found.expect(code == 0, f"with room again: {child.said()[-400:]}")
            theirs, ours = files(whole), files(path)
            differing = [name for name in theirs if ours.get(name) != theirs[name]]
            found.expect(not differing, f"{path.name} differs in {differing}")
            found.counts["runs compared"] += 1
    return found


def without_room(arguments: list[str]) -> int:
    """A command whose n-th write to a folder, and every later one, finds the disk full."""
    number, folder, *words = arguments
    count = 0

    def step(path: Any) -> None:
        nonlocal count
        if isinstance(path, str | os.PathLike) and folder in os.fspath(path):
            count += 1
            if count >= int(number):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), os.fspath(path))

    def audit(event: str, given: Any) -> None:
        written = event == "open" and isinstance(given[1], str) and given[1][0] in "wax"
        if written or event == "os.mkdir":
            step(given[0])

    fsync = os.fsync

    def fsync_or_full(descriptor: int) -> None:
        step(os.readlink(f"/proc/self/fd/{descriptor}"))
        fsync(descriptor)

    os.fsync = fsync_or_full
    sys.addaudithook(audit)
    module = importlib.import_module("scorebed.cli._app")
    return int(module.run(words))


def _experiment(found: Found, work: Path) -> None:
    """An experiment whose file may not grow past so many pages, for every number of pages until all
    of it fits: what was acknowledged is there, and with room again it goes on.
    """
    run = load(finished_run(work))
    wanted = [round(0.4 * step - 0.7, 3) for step in range(STEPS)]
    for room in range(1, 200):
        path = work / f"room-{room}.sqlite"
        path.unlink(missing_ok=True)
        acknowledged: list[float] = []
        try:
            store = Store(path)
        except ScorebedError:
            found.counts["experiments that could not begin"] += 1
            continue
        pages = store._connection.execute("PRAGMA page_count").fetchone()[0]
        store._connection.execute(f"PRAGMA max_page_count = {pages - 1 + room}")
        failed = False
        try:
            with Session.create(run, db=store, experiment="bench", seed=1) as session:
                for y in wanted:
                    session.propose()
                    session.note("x" * 900)
                    session.exchange(y)
                    acknowledged.append(y)
        except ScorebedError as error:
            failed = True
            found.expect("full" in str(error), f"{room} pages of room: {error}")
        except sqlite3.Error as error:
            failed = True
            found.faults.append(f"{room} pages of room: {error!r}")
        store.close()
        found.counts["writes of a session that failed"] += failed
        found.counts["writes that failed"] += failed
        with Session.open(run, db=path, experiment="bench", seed=1) as again:
            there = [record.y[0] for record in again.state.measured if record.y]
            found.expect(there == acknowledged, f"{room} pages of room: {there}, {acknowledged}")
            for y in wanted[len(there) :]:
                again.propose()
                again.exchange(y)
            found.expect(again.state.complete, f"{room} pages of room: it does not go on")
        if not failed:
            return


FULL_DISK = Part(
    name="disk",
    title="a full disk at writes of a run, and at every page of a session",
    promise="one line; what was saved is whole, and with room again it goes on to the same bytes",
    counted="writes that failed",
    piece=full_disk,
    pieces=STRIDE,
    cases=60,
    small=2,
)
