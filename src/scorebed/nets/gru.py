"""Gated recurrent units (Cho et al., 2014), in the variant whose reset gate acts after the hidden
product:

    r = σ(x W_r + h U_r + b_r),   z = σ(x W_z + h U_z + b_z)
    n = tanh(x W_n + b_n + r ⊙ (h U_n + c)),   h' = n + z ⊙ (h − n)
"""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from scorebed.errors import require
from scorebed.nets.linear import uniform


class GRUCell(eqx.Module):
    """One unit. All weights are drawn from U(−1/√hidden, 1/√hidden).

    The gates r and z have one bias each, since two would only appear as a sum.
    """

    weight_input: Float[Array, "n three_h"]  # all three gates in one product
    weight_hidden: Float[Array, "h three_h"]
    bias: Float[Array, " three_h"]
    bias_hidden: Float[Array, " h"]

    def __init__(self, inputs: int, hidden: int, *, key: PRNGKeyArray):
        require(
            min(inputs, hidden) >= 1,
            "a recurrent unit",
            got=f"{inputs} inputs and {hidden} hidden units",
            expected="at least one of each",
            fix="check the sizes of the network.",
        )
        key_gates, key_bias_hidden = jr.split(key)
        bound = 1 / math.sqrt(hidden)
        draw = uniform(inputs + hidden + 1, 3 * hidden, bound=bound, key=key_gates)
        self.weight_input, self.weight_hidden, self.bias = draw[:inputs], draw[inputs:-1], draw[-1]
        self.bias_hidden = uniform(hidden, bound=bound, key=key_bias_hidden)

    def __call__(self, h: Float[Array, "*b h"], x: Float[Array, "*b n"]) -> Float[Array, "*b h"]:
        x_r, x_z, x_n = jnp.split(x @ self.weight_input + self.bias, 3, axis=-1)
        h_r, h_z, h_n = jnp.split(h @ self.weight_hidden, 3, axis=-1)
        n = jnp.tanh(x_n + jax.nn.sigmoid(x_r + h_r) * (h_n + self.bias_hidden))
        return n + jax.nn.sigmoid(x_z + h_z) * (h - n)


class GRU(eqx.Module):
    """A stack of units, each with the new state of the one below as its input: state
    [layers, hidden] → state.
    """

    cells: tuple[GRUCell, ...]

    def __init__(self, inputs: int, hidden: int, layers: int, *, key: PRNGKeyArray):
        require(
            layers >= 1,
            "the layers of a recurrent network",
            got=layers,
            expected="at least one",
            fix="give the number of stacked units.",
        )
        self.cells = tuple(
            GRUCell(inputs if i == 0 else hidden, hidden, key=k)
            for i, k in enumerate(jr.split(key, layers))
        )

    def init(self) -> Float[Array, "layers h"]:
        """The zero state."""
        bias = self.cells[0].bias_hidden
        return jnp.zeros((len(self.cells), *bias.shape), bias.dtype)

    def __call__(
        self, state: Float[Array, "layers h"], x: Float[Array, " n"]
    ) -> Float[Array, "layers h"]:
        new = []
        for cell, h in zip(self.cells, state, strict=True):
            x = cell(h, x)
            new.append(x)
        return jnp.stack(new)
