"""LAPACK calls that cannot wait for each other for ever.

On CPUs, jaxlib 0.10 and 0.11.0 share a large batch of matrices out among the threads of XLA's pool,
and wait for them on a thread of that pool. Two such calls at once on two cores take both threads,
and each waits for what the other's thread was to do: the program never ends. `scorebed` lowers
large batches to a loop over pieces that are small enough to be computed in place. Every matrix
still goes to the same routine, so results are the same to the last bit. Other versions do not share
batches out, and are left alone; 0.11.0 is excluded by our requirements."""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jaxlib

AFFECTED = (0, 10)
IN_PLACE = 200_000  # operations from which on a call is shared out, as jaxlib counts them

# The primitives of `jax.lax.linalg` that call LAPACK.
ROUTINES = (
    "cholesky",
    "eig",
    "eigh",
    "geqp3",
    "geqrf",
    "hessenberg",
    "householder_product",
    "lu",
    "ormqr",
    "schur",
    "svd",
    "triangular_solve",
    "tridiagonal",
    "tridiagonal_solve",
)


def is_affected() -> bool:
    """Whether this version of jaxlib shares batches out."""
    return bool(jaxlib.version.__version_info__[:2] == AFFECTED)


def compute_in_place() -> None:
    """Have the LAPACK calls of programs that are compiled from now on computed in place. To be
    called once.
    """
    if not is_affected():
        return
    from jax._src.interpreters import mlir
    from jax._src.lax import linalg

    for name in ROUTINES:
        primitive = getattr(linalg, f"{name}_p")
        usual = mlir._platform_specific_lowerings["cpu"][primitive].rule
        rule = functools.partial(_lower, primitive, usual, lower_fun=mlir.lower_fun)
        mlir.register_lowering(primitive, rule, platform="cpu")


def largest_batch(routine: str, shapes: Sequence[tuple[int, ...]]) -> int:
    """How many matrices of these operands a call may have and be computed in place. One is
    always.
    """
    if routine == "cholesky":
        operations = shapes[0][-1] ** 3
    elif routine == "triangular_solve":
        operations = shapes[0][-1] * math.prod(shapes[1][-2:])
    else:
        return 1
    return max(1, (IN_PLACE - 1) // max(1, operations))


def _lower(
    primitive: Any,
    usual: Callable[..., Any],
    ctx: Any,
    *operands: Any,
    lower_fun: Callable[..., Any],
    **params: Any,
) -> Any:
    shapes = [operand.shape for operand in ctx.avals_in]
    # The operand of most axes is one of matrices; those beside it may be of vectors.
    batch = max(shapes, key=len)[:-2]
    known = all(isinstance(size, int) for shape in shapes for size in shape)
    if not known or math.prod(batch) <= (largest := largest_batch(primitive.name, shapes)):
        return usual(ctx, *operands, **params)

    def in_pieces(*arrays: jax.Array) -> Any:
        flat = tuple(array.reshape(-1, *array.shape[len(batch) :]) for array in arrays)
        found = jax.lax.map(lambda one: primitive.bind(*one, **params), flat, batch_size=largest)
        return jax.tree.map(lambda array: array.reshape(*batch, *array.shape[1:]), found)

    return lower_fun(in_pieces, primitive.multiple_results)(ctx, *operands)
