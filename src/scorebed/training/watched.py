"""Training that is watched: estimates of the bound along the way, the best parameters so far, an
early end.

`Watched` is all of it that must persist: whoever saves it can go on from it, in another process and
to the last bit. `Block` is what may be looked at after every block of steps.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from scorebed.training.dropped import DROPPED
from scorebed.training.fit import FitState

# Nats; a smaller gain does not count as progress. Estimates of one stage share their draws, so that
# this is not noise.
GAIN = 0.01


class Watched(eqx.Module):
    """The state of training, the best parameters so far with their lower bounds, and the last
    progress: the step at which a bound rose by `GAIN`, and what the bounds then were.
    """

    state: FitState
    best: PyTree
    lower: Float[Array, "..."]
    progress: Int[Array, ""]
    mark: Float[Array, "..."]

    @property
    def done(self) -> int:
        """Steps taken, by the members that have come furthest."""
        return int(np.max(np.asarray(self.state.step)))

    def idle(self) -> int:
        """Steps since the last progress."""
        return self.done - int(self.progress)

    def furthest(self, places: int | None = None) -> tuple[int, ...]:
        """The members that go on: all that have come furthest, or the best `places` of them."""
        steps, lower = np.atleast_1d(self.state.step), np.atleast_1d(self.lower)
        here = np.flatnonzero(steps == steps.max()).tolist()
        best = sorted(here, key=lambda number: -lower[number])
        return tuple(sorted(best[:places]))

    def after(self, state: FitState, lower: list[float]) -> "Watched":
        """With the new state, and for every member the better of its new and its best
        parameters; `lower` is empty at steps where no bound was estimated.
        """
        if not lower:
            return self.at(state)
        wins = self._estimates(lower) > np.asarray(self.lower)
        best = _chosen(wins, state.average, self.best)
        judged = self.judged(lower, jnp.asarray(np.asarray(state.step).max()))
        return Watched(state, best, judged.lower, judged.progress, judged.mark)

    def judged(self, lower: list[float], step: Int[Array, ""]) -> "Watched":
        """With the estimates of a step, and neither state nor best parameters changed."""
        # A member that was stopped has no new estimate: it is NaN.
        higher = np.fmax(self._estimates(lower), self.lower)
        highest = jnp.asarray(higher)
        if not (higher > np.asarray(self.mark) + GAIN).any():
            return Watched(self.state, self.best, highest, self.progress, self.mark)
        return Watched(self.state, self.best, highest, step, highest)

    def _estimates(self, lower: list[float]) -> np.ndarray:
        return np.asarray(lower, self.lower.dtype).reshape(self.lower.shape)

    def rows(self, members: Sequence[int]) -> "Watched":
        """Some members of a batch, in their order."""
        chosen = np.asarray(members)
        return self._by_member(lambda leaf: leaf[chosen])

    def with_rows(self, members: Sequence[int], part: "Watched") -> "Watched":
        """With `rows` of another in their places; what all members share stays as it is."""
        chosen = np.asarray(members)

        def placed(leaf: Array, new: Array) -> Array:
            found = np.array(leaf)
            found[chosen] = new
            return jnp.asarray(found)

        return self._by_member(placed, part)

    def _by_member(self, change: Callable[..., Array], *others: "Watched") -> "Watched":
        state, best, lower, mark = jax.tree.map(
            change,
            (self.state, self.best, self.lower, self.mark),
            *((each.state, each.best, each.lower, each.mark) for each in others),
        )
        return Watched(state, best, lower, self.progress, mark)

    def at(self, state: FitState) -> "Watched":
        """With another state, and nothing else changed."""
        changed: Watched = eqx.tree_at(lambda watched: watched.state, self, state)
        return changed


@jax.jit
def _chosen(wins: Array, new: PyTree, old: PyTree) -> PyTree:
    """The new parameters of the members that win, the old ones of the others."""

    def choose(a: Array, b: Array) -> Array:
        return jnp.where(wins.reshape(*wins.shape, *[1] * (a.ndim - wins.ndim)), a, b)

    return jax.tree.map(choose, new, old)


def watch(state: FitState) -> Watched:
    """Before the first step of a state, or of a batch of them."""
    lowest = jnp.asarray(np.full(state.step.shape, -np.inf, jnp.result_type(float)))
    return Watched(state, state.average, lowest, jnp.asarray(np.int32(0)), lowest)


def seen_patience(patience: int, every: int) -> int:
    """Steps without progress after which training ends, 0 for never, with an estimate every so many
    steps: at least from one estimate to the next, because nothing is known in between.
    """
    return max(patience, every) if patience and every else 0


class Block(NamedTuple):
    """A block of steps that is over: the number of its last step, the loss terms of each step, the
    lower bounds of all members if they were estimated, and what persists.
    """

    step: int
    terms: dict[str, Float[np.ndarray, "steps ..."]]
    lower: list[float]
    watched: Watched


OnBlock: TypeAlias = Callable[[Block], Any]


class Moment(NamedTuple):
    """A line of a training's history: means of the terms over a block, and the bounds after it."""

    step: int
    terms: dict[str, Any]
    lower: list[float]


def moment(block: Block) -> Moment:
    """What is worth keeping of a block."""
    with np.errstate(invalid="ignore", over="ignore"):  # of terms that are not finite
        terms = {
            name: np.asarray(values).mean(axis=0).tolist()
            for name, values in block.terms.items()
            if name != DROPPED
        }
    dropped = np.asarray(block.terms.get(DROPPED, 0))
    if np.nansum(dropped) > 0:  # their number, not a mean
        terms[DROPPED] = np.nansum(dropped, axis=0).tolist()
    return Moment(block.step, terms, block.lower)
