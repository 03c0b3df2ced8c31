"""Floating-point operations of a function, counted from its program.

XLA's own count of a compiled program (`cost_analysis`) counts the body of a loop once however often
it runs, which for an experiment of fifty steps is fifty times too little. Here loops of known
length count once per iteration. A matrix product counts 2·m·n·k; every other floating-point
operation counts one per element of its result, an exponential as much as a sum, so a share of the
peak is a lower bound on how busy the cores are."""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, Jaxpr

# What moves numbers, or compares them, and computes none.
FREE = frozenset(
    {
        "broadcast_in_dim",
        "reshape",
        "transpose",
        "squeeze",
        "slice",
        "dynamic_slice",
        "dynamic_update_slice",
        "concatenate",
        "gather",
        "scatter",
        "pad",
        "rev",
        "iota",
        "split",
        "copy",
        "convert_element_type",
        "bitcast_convert_type",
        "select_n",
        "stop_gradient",
        "device_put",
        "sharding_constraint",
    }
)


def flops(function: Callable[..., Any], *arguments: Any) -> int:
    """Of one call."""
    return _count(jax.make_jaxpr(function)(*arguments).jaxpr)


def _count(jaxpr: Jaxpr) -> int:
    return sum(_of_equation(equation) for equation in jaxpr.eqns)


def _of_equation(equation: Any) -> int:
    name, parameters = equation.primitive.name, equation.params
    if name == "scan":
        return parameters["length"] * _count(parameters["jaxpr"].jaxpr)
    if name == "cond":
        return max(_count(branch.jaxpr) for branch in parameters["branches"])
    if name == "while":
        raise ValueError("a loop of unknown length")
    inside = [value for value in parameters.values() if isinstance(value, ClosedJaxpr | Jaxpr)]
    if inside:
        return sum(
            _count(part.jaxpr if isinstance(part, ClosedJaxpr) else part) for part in inside[:1]
        )
    made = sum(
        math.prod(out.aval.shape)
        for out in equation.outvars
        if jnp.issubdtype(out.aval.dtype, jnp.floating)
    )
    if name == "dot_general":
        (contracted, _), _ = parameters["dimension_numbers"]
        return 2 * made * math.prod(equation.invars[0].aval.shape[axis] for axis in contracted)
    if name.startswith(("reduce_", "cumsum", "cumlogsumexp", "cummax")):
        return math.prod(equation.invars[0].aval.shape) if made else 0
    return 0 if name in FREE else made
