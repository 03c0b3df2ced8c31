"""The programs that training compiles, by the shapes of what they are called with: nothing is
computed, so that those of any size can be looked at anywhere (`liveness.py`, `jax.export`).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import optax
from jaxtyping import Array, PyTree

from scorebed.training.fit import FitState, Gradient, block_of_steps, start, start_batch
from scorebed.training.liveness import Footprint, of_jaxpr

# The bits of a key; programs take these, since a key is a type of JAX's own.
SEED = jax.ShapeDtypeStruct((2,), jnp.uint32)


class TrainingProgram(NamedTuple):
    """A compiled call: its name, its function, and the shapes of its arguments."""

    name: str
    function: Callable[..., Any]
    shapes: tuple[Any, ...]


def is_shape(leaf: Any) -> bool:
    """An array, or the shape of one."""
    return eqx.is_array(leaf) or isinstance(leaf, jax.ShapeDtypeStruct)


def is_inexact_shape(leaf: Any) -> bool:
    """An array of real numbers, or the shape of one: what is trained."""
    return is_shape(leaf) and jnp.issubdtype(leaf.dtype, jnp.inexact)


def shapes_of(tree: PyTree) -> PyTree:
    """The same with shapes for arrays."""
    return jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) if is_shape(leaf) else leaf, tree
    )


def block_program(
    name: str,
    gradient_for: Callable[[PyTree], Gradient],
    fresh: Any,
    optimiser: optax.GradientTransformation,
    *,
    block: int,
    decay: float,
    members: int | None = None,
    together: bool = False,
) -> TrainingProgram:
    """A block of steps of `fit`, from `fresh`, the untrained module or its shapes: a batch of
    `members` where there are any, moved at once or in turn.
    """
    params, rest = eqx.partition(fresh, is_inexact_shape)

    def function(state: FitState, seeds: Array, first: Array, length: Array) -> Any:
        # What a gradient prepares, such as weights by a pilot, is computed before the program.
        with jax.ensure_compile_time_eval():
            gradient = gradient_for(rest)
        run = block_of_steps(gradient, optimiser, block=block, decay=decay, together=together)
        return run(state, jr.wrap_key_data(seeds), first, length)

    begin = start if members is None else start_batch
    state = eqx.filter_eval_shape(begin, params, optimiser)
    if members is not None and not together:
        state = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), state)
    seeds = jax.ShapeDtypeStruct((members, 2), jnp.uint32) if together else SEED
    number = jax.ShapeDtypeStruct((), jnp.int32)
    return TrainingProgram(name, function, (state, seeds, number, number))


def footprint(program: TrainingProgram) -> Footprint:
    """Of a program, by its shapes."""
    given, fixed = eqx.partition(program.shapes, is_shape)

    def function(given: Any) -> Any:
        return eqx.filter(program.function(*eqx.combine(given, fixed)), is_shape)

    return of_jaxpr(jax.make_jaxpr(function)(given))
