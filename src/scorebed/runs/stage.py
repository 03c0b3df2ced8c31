"""One stage of training, kept on disk while it runs: metrics, checkpoints, and the best parameters
so far.
"""

import time
from collections.abc import Callable
from typing import Any, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from scorebed.baselines.iosmc.training import DegenerateParticlesError
from scorebed.runs.checkpoint import Checkpoints
from scorebed.runs.folder import RunFolder
from scorebed.training.fit import FitState, NonFiniteError, Only, StepInfo, Stop

CHECKPOINT_SECONDS = 20.0
# nats; a smaller one does not count as progress. Estimates of one stage share their draws, so
# this is no noise.
GAIN = 0.01

Monitor: TypeAlias = Callable[[StepInfo], list[float]]


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


class Kept(eqx.Module):
    """What a checkpoint holds: the state of training, the best parameters so far with their lower
    bounds, and the last progress: the step at which a bound rose by `GAIN`, and what they then
    were.
    """

    state: FitState
    best: PyTree
    lower: Float[Array, "..."]
    progress: Int[Array, ""]
    mark: Float[Array, "..."]


class StageCheckpointer:
    """Keeps a stage of training: metrics and checkpoints at its blocks, and the last state when it
    is stopped.

    `monitor` gives the lower bound of every restart, or nothing at steps where it is not estimated;
    the parameters with the highest one are kept beside the last. With `patience` > 0 the stage ends
    when no restart has found better ones for that many steps by more than `GAIN`.

    Where restarts are to be stopped early, `room` says how many of them may go on from a step:
    those with the highest bounds so far, `members`. They follow from what a checkpoint holds, so
    that a stage which is killed beside such a step stops the same."""

    def __init__(
        self,
        folder: RunFolder,
        progress: Progress,
        stage: str,
        steps: int,
        template: FitState,
        monitor: Monitor = lambda _: [],
        patience: int = 0,
        room: Callable[[int], int] | None = None,
    ):
        self.room = room
        self.folder, self.progress = folder, progress
        self.stage, self.monitor, self.patience = stage, monitor, patience
        self.checkpoints = Checkpoints(folder.checkpoint_folder(stage))
        lowest = jnp.full(template.step.shape, -jnp.inf)
        fresh = Kept(template, template.average, lowest, jnp.zeros((), jnp.int32), lowest)
        found = self.checkpoints.latest(fresh)
        self.kept: Kept = found.tree if found else fresh
        self.spent = float(found.extra["seconds"]) if found else 0.0  # type: ignore[arg-type]
        self.done = self.saved = found.step if found else 0
        self.members = self._going()
        # A stage that had ended early when it was stopped has no steps left.
        self.steps = self.done if self._over() else steps
        folder.truncate_metrics(stage, found.step if found else -1)
        self.begun = self.saved_at = time.monotonic()

    def __enter__(self) -> "StageCheckpointer":
        self.progress.begin(self.stage, self.steps, self.done)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: object
    ) -> None:
        if isinstance(error, NonFiniteError | DegenerateParticlesError):
            self.kept = eqx.tree_at(lambda kept: kept.state, self.kept, error.state)
            self.done = int(jnp.max(error.state.step))
        if self.done > self.saved and (
            kind is None
            or issubclass(kind, KeyboardInterrupt | NonFiniteError | DegenerateParticlesError)
        ):
            self._save()
        if kind is None:
            self.progress.end(f"{self.done} steps in {self.seconds:.0f} s")

    @property
    def seconds(self) -> float:
        """Time spent on the stage, over all interruptions."""
        return self.spent + time.monotonic() - self.begun

    def on_step(self, info: StepInfo) -> type[Stop] | Only | None:
        """The hook of `fit`."""
        terms = {
            name: np.asarray(values).mean(axis=0).tolist() for name, values in info.terms.items()
        }
        lower = self.monitor(info)
        self.kept, self.done = _better(self.kept, info.state, lower), info.step
        self.members = self._going()
        found = {"lower": lower} if lower else {}
        record = {"stage": self.stage, "step": info.step, "seconds": self.seconds, **terms, **found}
        self.folder.append_metrics(record)
        self.progress.update(info.step, _note(terms, found))
        if time.monotonic() - self.saved_at > CHECKPOINT_SECONDS or info.step >= self.steps:
            self._save()
        if self._over():
            return Stop
        return Only(self.members) if self.room else None

    def _going(self) -> tuple[int, ...]:
        """Who goes on: of those that have come this far, the best for which there is room."""
        steps, lower = np.atleast_1d(self.kept.state.step), np.atleast_1d(self.kept.lower)
        here = np.flatnonzero(steps == steps.max()).tolist()
        best = sorted(here, key=lambda number: -lower[number])
        return tuple(sorted(best[: self.room(self.done)] if self.room else here))

    def _over(self) -> bool:
        return 0 < self.patience <= self.done - int(self.kept.progress)

    def _save(self) -> None:
        self.checkpoints.save(self.done, self.kept, {"seconds": self.seconds})
        self.saved, self.saved_at = self.done, time.monotonic()


def _better(kept: Kept, state: FitState, lower: list[float]) -> Kept:
    """The new state, and for every restart the better of its new and its best parameters."""
    if not lower:
        return eqx.tree_at(lambda kept: kept.state, kept, state)
    new = jnp.asarray(lower, kept.lower.dtype).reshape(kept.lower.shape)
    wins = new > kept.lower

    def choose(a: Array, b: Array) -> Array:
        return jnp.where(wins.reshape(*wins.shape, *[1] * (a.ndim - wins.ndim)), a, b)

    # Who was stopped has no new estimate: it is NaN.
    best, highest = jax.tree.map(choose, state.average, kept.best), jnp.fmax(new, kept.lower)
    if not (highest > kept.mark + GAIN).any():
        return Kept(state, best, highest, kept.progress, kept.mark)
    return Kept(state, best, highest, jnp.max(state.step), highest)


def _note(terms: dict[str, Any], found: dict[str, Any]) -> str:
    if "lower" in found:
        return (
            f"{np.nanmax(found['lower']):.2f} nats"
            if np.isfinite(found["lower"]).any()
            else "no finite bound"
        )
    return ", ".join(f"{name} {np.nanmean(value):.3g}" for name, value in terms.items())


def block_size(steps: int, every: int = 0) -> int:
    """Steps per compiled call: few enough for a progress bar that moves, and a divisor of `every`,
    where blocks must end.
    """
    largest = max(1, min(50, steps // 20))
    return next(size for size in range(largest, 0, -1) if every % size == 0)
