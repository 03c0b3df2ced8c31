"""Measurements as compiled programs take them, and what grows with them step by step."""

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeAlias, TypeVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from scorebed.session.state import Record, Vector
from scorebed.tasks.base import Task

Pair: TypeAlias = tuple[Vector, Vector]
Link = TypeVar("Link")


class Chain(Generic[Link]):
    """One value before the first measurement and one after each, kept with the data that made it.

    After an undo or a correction only what changed is computed again. `grow` makes the next value
    from the last one and all measurements up to it. Not for several threads at once."""

    def __init__(self, first: Callable[[], Link], grow: Callable[[Link, Sequence[Pair]], Link]):
        self._first, self._grow = first, grow
        self._links: list[tuple[Pair | None, Link]] = []

    def reach(self, pairs: Sequence[Pair]) -> list[Link]:
        """The values after none, one, …, all of `pairs`."""
        if not self._links:
            self._links.append((None, self._first()))
        same = 0
        while (
            same < min(len(pairs), len(self._links) - 1) and self._links[same + 1][0] == pairs[same]
        ):
            same += 1
        if same < len(pairs):
            del self._links[same + 1 :]
        for count in range(same + 1, len(pairs) + 1):
            self._links.append((pairs[count - 1], self._grow(self._links[-1][1], pairs[:count])))
        return [link for _, link in self._links[: len(pairs) + 1]]


def pairs_of(records: Sequence[Record]) -> list[Pair]:
    """(ξ, y) of the measured steps."""
    return [
        (record.used, record.y)
        for record in records
        if record.used is not None and record.y is not None
    ]


def array(values: Any) -> Array:
    """Numbers in the precision that everything computes with. Those of Python have more digits."""
    return jnp.asarray(np.asarray(values, np.float64), jnp.result_type(float))


def stacked(pairs: Sequence[Pair], task: Task) -> tuple[Array, Array]:
    """(ys, ξs) of a history."""
    ys = np.asarray([y for _, y in pairs], np.float64).reshape(len(pairs), task.outcome_dim)
    xis = np.asarray([xi for xi, _ in pairs], np.float64).reshape(len(pairs), task.designs.dim)
    return array(ys), array(xis)


def padded(pairs: Sequence[Pair], task: Task) -> tuple[Array, Array]:
    """(ys, ξs) with rows of zeros up to the task's horizon, so that one compiled program serves
    histories of all lengths.

    A history that is longer is padded to the next multiple of it: how long the experiment is to
    become makes no difference."""
    rows = -len(pairs) % task.horizon if pairs else task.horizon
    fill = [((0.0,) * task.designs.dim, (0.0,) * task.outcome_dim)] * rows
    return stacked([*pairs, *fill], task)
