"""Measured steps as compiled programs take them, and values that are carried along them."""

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeAlias, TypeVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from scorebed.session.events import StepRecord, Vector
from scorebed.tasks.base import Task

Pair: TypeAlias = tuple[Vector, Vector]
Value = TypeVar("Value")


class AlongHistory(Generic[Value]):
    """One value before the first measurement and one after each, kept with the data behind it.

    After an undo or a correction only what changed is computed again. `grow` makes the next value
    from the last one and all measurements up to it. Not for several threads at once."""

    def __init__(self, first: Callable[[], Value], grow: Callable[[Value, Sequence[Pair]], Value]):
        self._first, self._grow = first, grow
        self._kept: list[tuple[Pair | None, Value]] = []

    def values(self, pairs: Sequence[Pair]) -> list[Value]:
        """The values after none, one, …, all of `pairs`."""
        if not self._kept:
            self._kept.append((None, self._first()))
        same = 0
        while same < min(len(pairs), len(self._kept) - 1) and (
            self._kept[same + 1][0] == pairs[same]
        ):
            same += 1
        if same < len(pairs):
            del self._kept[same + 1 :]
        for count in range(same + 1, len(pairs) + 1):
            self._kept.append((pairs[count - 1], self._grow(self._kept[-1][1], pairs[:count])))
        return [value for _, value in self._kept[: len(pairs) + 1]]


def pairs_of(records: Sequence[StepRecord]) -> list[Pair]:
    """(ξ, y) of the measured steps."""
    return [
        (record.used, record.y)
        for record in records
        if record.used is not None and record.y is not None
    ]


def array(values: Any) -> Array:
    """Numbers in JAX's default precision, rounded once from Python's."""
    return jnp.asarray(np.asarray(values, np.float64), jnp.result_type(float))


def stacked(pairs: Sequence[Pair], task: Task) -> tuple[Array, Array]:
    """(ys, ξs) of a history."""
    ys = np.asarray([y for _, y in pairs], np.float64).reshape(len(pairs), task.outcome_dim)
    xis = np.asarray([xi for xi, _ in pairs], np.float64).reshape(len(pairs), task.designs.dim)
    return array(ys), array(xis)


def padded(pairs: Sequence[Pair], task: Task) -> tuple[Array, Array]:
    """(ys, ξs) with rows of zeros up to the task's horizon, so that one compiled program serves
    histories of all lengths.

    A longer history is padded to the next multiple of the horizon, whatever the length of the
    experiment."""
    rows = -len(pairs) % task.horizon if pairs else task.horizon
    fill = [((0.0,) * task.designs.dim, (0.0,) * task.outcome_dim)] * rows
    return stacked([*pairs, *fill], task)
