"""Progress of a long command on stderr: bars with rate and time left on a terminal, one line per
stage elsewhere.
"""

import sys
import time
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)

from scorebed.runs.stage import Progress as Silent


class Bars(Silent):
    """A bar per stage."""

    def __init__(self) -> None:
        self.terminal = sys.stderr.isatty()
        self.console = Console(stderr=True, markup=False, highlight=False)
        self.bars: Progress | None = None
        self.stage, self.begun, self.first, self.task = "", 0.0, 0, TaskID(0)

    def begin(self, stage: str, total: int, done: int) -> None:
        self.stage, self.begun, self.first = stage, time.monotonic(), done
        if self.terminal:
            columns = (
                TextColumn("{task.description}"),
                BarColumn(bar_width=30),
                MofNCompleteColumn(),
                TextColumn("{task.fields[rate]}"),
                TimeRemainingColumn(),
                TextColumn("{task.fields[note]}"),
            )
            self.bars = Progress(*columns, console=self.console, transient=True)
            self.bars.start()
            self.task = self.bars.add_task(
                stage, total=total or None, completed=done, note="", rate=""
            )

    def update(self, done: int, note: str, total: int | None = None) -> None:
        if self.bars is None:
            return
        elapsed = time.monotonic() - self.begun
        fields: dict[str, Any] = {
            "rate": f"{(done - self.first) / elapsed:.1f}/s" if elapsed else ""
        }
        if note:
            fields["note"] = note
        if total is not None:
            fields["total"] = total
        self.bars.update(self.task, completed=done, **fields)

    def end(self, line: str) -> None:
        self.close()
        self.console.print(f"{self.stage}: {line}", soft_wrap=True)

    def close(self) -> None:
        """Take the bar away, as at the end or after Ctrl-C."""
        if self.bars is not None:
            self.bars.stop()
            self.bars = None
