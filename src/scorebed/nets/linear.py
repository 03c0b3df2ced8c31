"""The affine layer and layer normalisation. All defaults are chosen here, not inherited from a
framework.
"""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from scorebed.errors import require

LAYER_NORM_EPS = 1e-5


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
        centred = x - x.mean(-1, keepdims=True)
        variance = jnp.square(centred).mean(-1, keepdims=True)
        return centred * jax.lax.rsqrt(variance + LAYER_NORM_EPS) * self.gain + self.shift
