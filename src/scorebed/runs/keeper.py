"""One stage of training, kept on disk while it runs: metrics, checkpoints, and the best parameters so far."""

import time
from collections.abc import Callable
from typing import Any, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from scorebed.runs.checkpoint import Checkpoints
from scorebed.runs.folder import RunFolder
from scorebed.train.fit import FitState, NonFiniteError, StepInfo

CHECKPOINT_SECONDS = 20.0

Monitor: TypeAlias = Callable[[StepInfo], list[float]]


class Progress:
    """How a run shows itself; this one is silent."""

    def begin(self, stage: str, total: int, done: int) -> None:
        """A stage of `total` units starts, `done` of which were done before."""

    def update(self, done: int, note: str, total: int | None = None) -> None:
        """`done` units are done, of `total` where that was not known before; `note` is the current loss or bound."""

    def end(self, line: str) -> None:
        """The stage is over; `line` says how it went."""


class Kept(eqx.Module):
    """What a checkpoint holds: the state of training, and the best parameters so far with their lower bounds."""

    state: FitState
    best: PyTree
    lower: Float[Array, "..."]


class Keeper:
    """Keeps a stage of training: metrics and checkpoints at its blocks, and the last state when it is stopped.

    `monitor` gives the lower bound of every restart, or nothing at steps where it is not estimated; the parameters with the
    highest one are kept beside the last.
    """

    def __init__(
        self,
        folder: RunFolder,
        progress: Progress,
        stage: str,
        steps: int,
        template: FitState,
        monitor: Monitor = lambda _: [],
    ):
        self.folder, self.progress = folder, progress
        self.stage, self.steps, self.monitor = stage, steps, monitor
        self.checkpoints = Checkpoints(folder.checkpoint_folder(stage))
        fresh = Kept(template, template.average, jnp.full(template.step.shape, -jnp.inf))
        found = self.checkpoints.latest(fresh)
        self.kept: Kept = found.tree if found else fresh
        self.spent = float(found.extra["seconds"]) if found else 0.0  # type: ignore[arg-type]
        self.done = self.saved = found.step if found else 0
        folder.truncate_metrics(stage, found.step if found else -1)
        self.begun = self.saved_at = time.monotonic()

    def __enter__(self) -> "Keeper":
        self.progress.begin(self.stage, self.steps, self.done)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if isinstance(error, NonFiniteError):
            self.kept = Kept(error.state, self.kept.best, self.kept.lower)
            self.done = int(jnp.max(error.state.step))
        if self.done > self.saved and (kind is None or issubclass(kind, KeyboardInterrupt | NonFiniteError)):
            self._save()
        if kind is None:
            self.progress.end(f"{self.steps} steps in {self.seconds:.0f} s")

    @property
    def seconds(self) -> float:
        """Time spent on the stage, over all interruptions."""
        return self.spent + time.monotonic() - self.begun

    def on_step(self, info: StepInfo) -> None:
        """The hook of `fit`."""
        terms = {name: np.asarray(values).mean(axis=0).tolist() for name, values in info.terms.items()}
        lower = self.monitor(info)
        self.kept, self.done = _better(self.kept, info.state, lower), info.step
        found = {"lower": lower} if lower else {}
        record = {"stage": self.stage, "step": info.step, "seconds": self.seconds, **terms, **found}
        self.folder.append_metrics(record)
        self.progress.update(info.step, _note(terms, found))
        if time.monotonic() - self.saved_at > CHECKPOINT_SECONDS or info.step >= self.steps:
            self._save()

    def _save(self) -> None:
        self.checkpoints.save(self.done, self.kept, {"seconds": self.seconds})
        self.saved, self.saved_at = self.done, time.monotonic()


def _better(kept: Kept, state: FitState, lower: list[float]) -> Kept:
    """The new state, and for every restart the better of its new and its best parameters."""
    if not lower:
        return Kept(state, kept.best, kept.lower)
    new = jnp.asarray(lower, kept.lower.dtype)
    wins = new > kept.lower

    def choose(a: Array, b: Array) -> Array:
        return jnp.where(wins.reshape(-1, *[1] * (a.ndim - 1)), a, b)

    return Kept(state, jax.tree.map(choose, state.average, kept.best), jnp.maximum(new, kept.lower))


def _note(terms: dict[str, Any], found: dict[str, Any]) -> str:
    if "lower" in found:
        return f"{max(found['lower']):.2f} nats"
    return ", ".join(f"{name} {np.mean(value):.3g}" for name, value in terms.items())
