"""`jit` for functions called once: skips XLA optimisations that would cost more than they save."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp


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
