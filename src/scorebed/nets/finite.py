"""Numbers through which no derivative flows that is not finite.

A batch is differentiated at once, and 0 · NaN is NaN: a single example whose derivative is not
finite spoils the gradient of all, even where its loss is masked.

The identity with a transpose of its own. `jax.custom_vjp` would forbid forward mode, which sliced
score matching needs, so it is a primitive: linear, and its own derivative.
"""

from typing import Any

import jax.numpy as jnp
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jaxtyping import Array, Float

_identity = Primitive("finite_cotangent")
_identity.def_impl(lambda x: x)
_identity.def_abstract_eval(lambda x: x)
mlir.register_lowering(_identity, lambda _, x: [x])
# Rows are judged one by one, so that a batch is one more axis in front.
batching.primitive_batchers[_identity] = lambda args, dims: (
    _identity.bind(jnp.moveaxis(args[0], dims[0], 0)),
    0,
)


def _finite_rows(cotangent: Any, x: Any) -> list[Any]:
    del x
    if isinstance(cotangent, ad.Zero):
        return [cotangent]
    finite = jnp.isfinite(cotangent).all(-1, keepdims=True)
    return [jnp.where(finite, cotangent, 0)]


ad.deflinear2(_identity, _finite_rows)


def finite_cotangent(x: Float[Array, "*b n"]) -> Float[Array, "*b n"]:
    """x; in reverse mode every row's cotangent is zero unless all of it is finite."""
    through: Array = _identity.bind(x)
    return through
