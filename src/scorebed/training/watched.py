"""Training that is watched: estimates of the bound along the way, the best parameters so far, an
early end.

`Watched` is all of it that must persist: whoever saves it can go on from it, in another process and
to the last bit. `Block` is what may be looked at after every block of steps.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

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
        return int(jnp.max(self.state.step))

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
        new = jnp.asarray(lower, self.lower.dtype).reshape(self.lower.shape)
        wins = new > self.lower

        def choose(a: Array, b: Array) -> Array:
            return jnp.where(wins.reshape(*wins.shape, *[1] * (a.ndim - wins.ndim)), a, b)

        # A member that was stopped has no new estimate: it is NaN.
        best = jax.tree.map(choose, state.average, self.best)
        highest = jnp.fmax(new, self.lower)
        if not (highest > self.mark + GAIN).any():
            return Watched(state, best, highest, self.progress, self.mark)
        return Watched(state, best, highest, jnp.max(state.step), highest)

    def at(self, state: FitState) -> "Watched":
        """With another state, and nothing else changed."""
        changed: Watched = eqx.tree_at(lambda watched: watched.state, self, state)
        return changed


def watch(state: FitState) -> Watched:
    """Before the first step of a state, or of a batch of them."""
    lowest = jnp.full(state.step.shape, -jnp.inf)
    return Watched(state, state.average, lowest, jnp.zeros((), jnp.int32), lowest)


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
    terms = {name: np.asarray(values).mean(axis=0).tolist() for name, values in block.terms.items()}
    return Moment(block.step, terms, block.lower)
