"""The affine layer and layer normalisation. All defaults are chosen here, not inherited from a
framework.
"""

import math
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from scorebed.errors import require

LAYER_NORM_EPS = 1e-5

Module = TypeVar("Module", bound=eqx.Module)


def uniform(*shape: int, bound: float, key: PRNGKeyArray) -> Float[Array, "*shape"]:
    """Draws from U(−bound, bound)."""
    return jr.uniform(key, shape, minval=-bound, maxval=bound)


class Linear(eqx.Module):
    """x W + b, with W and b from U(−1/√n, 1/√n) for n inputs, or W from U(−weight_bound,
    weight_bound).

    W is stored as [inputs, outputs], so that a batch of x is a row-major product, not transposed.
    """

    weight: Float[Array, "n m"]
    bias: Float[Array, " m"]

    def __init__(
        self, inputs: int, outputs: int, *, weight_bound: float | None = None, key: PRNGKeyArray
    ):
        require(
            min(inputs, outputs) >= 1,
            "a linear layer",
            got=f"{inputs} inputs and {outputs} outputs",
            expected="at least one of each",
            fix="check the sizes of the network.",
        )
        bound = 1 / math.sqrt(inputs)
        # One draw for both: initialisation costs what compiling its draws costs.
        draw = uniform(inputs + 1, outputs, bound=1.0, key=key)
        self.weight = draw[:-1] * (bound if weight_bound is None else weight_bound)
        self.bias = draw[-1] * bound

    def __call__(self, x: Float[Array, "*b n"]) -> Float[Array, "*b m"]:
        return x @ self.weight + self.bias


def preserving_variance(module: Module) -> Module:
    """The same module with W from U(−√(3/n), √(3/n)) and b = 0 in all of its affine layers: outputs
    then have the variance of the inputs, where the default of `Linear` leaves a third of it. In a
    deep network whose inputs hardly vary that decides how soon it learns (docs/decisions/026).
    """

    def changed(part: Any) -> Any:
        if not isinstance(part, Linear):
            return part
        larger = (math.sqrt(3) * part.weight, jnp.zeros_like(part.bias))
        return eqx.tree_at(lambda layer: (layer.weight, layer.bias), part, larger)

    made: Module = jax.tree.map(changed, module, is_leaf=lambda part: isinstance(part, Linear))
    return made


class LayerNorm(eqx.Module):
    """(x − mean) / √(variance + 10⁻⁵) over the last axis, times a learned gain, plus a learned
    shift.
    """

    gain: Float[Array, " n"]
    shift: Float[Array, " n"]

    def __init__(self, width: int):
        require(
            width >= 3,
            "a layer norm",
            got=f"width {width}",
            expected="at least 3",
            fix="project up first: of one or two numbers normalisation keeps at most the order.",
        )
        self.gain, self.shift = jnp.ones(width), jnp.zeros(width)

    def __call__(self, x: Float[Array, "*b n"]) -> Float[Array, "*b n"]:
        centred = x - _mean(x)
        variance = _mean(jnp.square(centred))
        return centred * jax.lax.rsqrt(variance + LAYER_NORM_EPS) * self.gain + self.shift


def _mean(x: Float[Array, "*b n"]) -> Float[Array, "*b 1"]:
    """The mean over the last axis, as a product of matrices: so are its derivatives, which are
    faster on a CPU (docs/decisions/033). In full precision, for accelerators would round the
    factors of a product.
    """
    size = x.shape[-1]
    column = jnp.full((size, 1), 1 / size, x.dtype)
    return jnp.matmul(x, column, precision=jax.lax.Precision.HIGHEST)
