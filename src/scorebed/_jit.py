"""`jit` for functions called once: skips XLA optimisations that would cost more than they save."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np


class Constant:
    """A tree that is a constant of a program, arrays included: equal ones share the program. One
    with a leaf that has no hash equals itself alone.
    """

    def __init__(self, tree: Any):
        self.tree = tree
        leaves, structure = jax.tree.flatten(tree)
        self.content: tuple[Any, ...] = (structure, *map(_content, leaves))
        try:
            hash(self.content)
        except TypeError:
            self.content = (object(),)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Constant) and self.content == other.content

    def __hash__(self) -> int:
        return hash(self.content)


def _content(leaf: Any) -> Any:
    if not eqx.is_array_like(leaf):
        return leaf
    if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return str(leaf.dtype), _content(jax.random.key_data(leaf))
    array = np.asarray(leaf)
    kind = type(leaf), getattr(leaf, "weak_type", False)
    return array.shape, array.dtype.str, array.tobytes(), kind


def jit_once(function: Callable[..., Any]) -> Callable[..., Any]:
    """`equinox.filter_jit` for a function that is called a single time. Faster than running it
    operation by operation. Inside of another program it is the function itself: the outer one
    decides how it is compiled.
    """
    options: dict[str, Any] = {"compiler_options": {"xla_backend_optimization_level": 0}}
    compiled: Callable[..., Any] = eqx.filter_jit(function, **options)

    def call(*args: Any, **kwargs: Any) -> Any:
        # What is traced outside stays so inside of `ensure_compile_time_eval`.
        leaves = jax.tree.leaves((jnp.zeros(()), args, kwargs))
        traced = any(isinstance(leaf, jax.core.Tracer) for leaf in leaves)
        return (function if traced else compiled)(*args, **kwargs)

    return call
