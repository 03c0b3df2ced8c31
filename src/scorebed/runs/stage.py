"""One stage of training, kept on disk while it runs: metrics, checkpoints, what it came to."""

import math
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from scorebed.runs.checkpoint import Checkpoints
from scorebed.runs.folder import RunFolder
from scorebed.runs.watch import Watch
from scorebed.training.fit import Stop, TrainingStoppedError
from scorebed.training.stage import Stage
from scorebed.training.watched import Block, Watched, moment

CHECKPOINT_SECONDS = 20.0


class Progress:
    """How a run shows itself; this one is silent."""

    def begin(self, stage: str, total: int, done: int) -> None:
        """A stage of `total` units starts, `done` of which were done before."""

    def update(self, done: int, note: str, total: int | None = None) -> None:
        """`done` units are done, of `total` where that was not known before; `note` is the current
        loss or bound.
        """

    def end(self, line: str) -> None:
        """The stage is over; `line` says how it went."""


class StageCheckpointer:
    """Carries a stage out from where its folder has it: metrics and checkpoints at its blocks, and
    the last state when it is stopped.

    Checkpoints at `marks` are kept for good. Whoever goes on (`Watched.furthest`) follows from what
    a checkpoint holds, so that a stage which is killed goes on as if it had not been.
    """

    def __init__(
        self,
        folder: RunFolder,
        progress: Progress,
        stage: Stage,
        *,
        marks: Sequence[int] = (),
        watch: Watch | None = None,
        share: float = 1.0,
    ):
        """With a `watch` the stage ends at the first block after its share of the time."""
        self.folder, self.progress, self.stage, self.marks = folder, progress, stage, marks
        self.watch = watch
        self.allotted = math.inf if watch is None else watch.allot(stage.name, share)
        self.first_block_at: float | None = None
        self.checkpoints = Checkpoints(folder.checkpoint_folder(stage.name), marks=marks)
        fresh = stage.start()
        found = self.checkpoints.latest(fresh)
        self.watched: Watched = found.tree if found else fresh
        self.spent = float(found.extra["seconds"]) if found else 0.0  # type: ignore[arg-type]
        self.saved = found.step if found else 0
        self.last_step = stage.last_step(self.watched)
        folder.truncate_metrics(stage.name, found.step if found else -1)
        self.begun = self.saved_at = time.monotonic()

    def carry_out(self) -> Watched:
        """To the end of the stage; a failure or an interrupt keeps the last good state."""
        self.progress.begin(self.stage.name, self.last_step, self.done)
        ended = None if self.watch is None else self.watch.ended(self.stage.name)
        try:
            if ended is None or self.done < ended:
                self.watched = self.stage.go_on(self.watched, on_block=self._on_block)
            if self.watch is not None and self.watch.ended(self.stage.name) is not None:
                self.watched = self.stage.ended_here(self.watched)
        except TrainingStoppedError as error:
            self.watched = self.watched.at(error.state)
            self._save_if_new()
            raise
        except KeyboardInterrupt:
            self._save_if_new()
            raise
        self._save_if_new()
        self.progress.end(f"{self.done} steps in {self.seconds:.0f} s")
        return self.watched

    @property
    def seconds(self) -> float:
        """Time spent on the stage, over all interruptions."""
        return self.spent + time.monotonic() - self.begun

    @property
    def done(self) -> int:
        """Steps taken; of the state itself, so that an interrupt cannot come between the two."""
        return self.watched.done

    def _on_block(self, block: Block) -> type[Stop] | None:
        """A line of metrics, then the new state. An interrupt that loses the line finds the state
        before the block: whoever resumes repeats the block, and writes the same line.
        """
        _, terms, lower = moment(block)
        found = {"lower": lower} if lower else {}
        record = {"stage": self.stage.name, "step": block.step, "seconds": self.seconds}
        self.folder.append_metrics({**record, **terms, **found})
        self.watched = block.watched
        self.progress.update(block.step, _note(terms, lower))
        if self._is_over(block.step):
            return Stop  # what it comes to is saved by `carry_out`
        late = time.monotonic() - self.saved_at > CHECKPOINT_SECONDS
        marked = any(self.saved < mark <= block.step for mark in self.marks)
        if late or marked or block.step >= self.last_step:
            self._save()
        return None

    def _is_over(self, step: int) -> bool:
        """Whether the clock ends the stage after this step, which is then written down."""
        if self.watch is None or step >= self.last_step:
            return False
        ended = self.watch.ended(self.stage.name)
        if ended is not None:
            return step >= ended
        self.first_block_at = self.first_block_at or time.monotonic()
        least = time.monotonic() - self.first_block_at >= self.watch.least_seconds
        if not least or self.seconds < self.allotted:
            return False
        self.watch.end(self.stage.name, step)
        return True

    def _save_if_new(self) -> None:
        if self.done > self.saved:
            self._save()

    def _save(self) -> None:
        self.checkpoints.save(self.done, self.watched, {"seconds": self.seconds})
        self.saved, self.saved_at = self.done, time.monotonic()


def _note(terms: dict[str, Any], lower: list[float]) -> str:
    if lower:
        return f"{np.nanmax(lower):.2f} nats" if _some(lower) else "no finite bound"
    return ", ".join(
        f"{name} {np.nanmean(value):.3g}" for name, value in terms.items() if _some(value)
    )


def _some(value: Any) -> bool:
    """Whether there is a number at all: NumPy warns of the mean of none."""
    return bool(np.isfinite(value).any())
