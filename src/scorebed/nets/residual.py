"""A residual network: a pre-norm projection to a width, residual blocks there, and an output layer.

x₀ = W norm(v) + b,   x_{i+1} = x_i + W₂ gelu(W₁ norm(x_i) + b₁) + b₂,   out = V norm(x_n) + c
"""

import equinox as eqx
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from scorebed.errors import require
from scorebed.nets.linear import LayerNorm, Linear
from scorebed.nets.mlp import MLP, gelu


class ResidualBlock(eqx.Module):
    """x + MLP(norm(x)), with one hidden GELU layer of the same width."""

    norm: LayerNorm
    mlp: MLP

    def __init__(self, width: int, *, key: PRNGKeyArray):
        self.norm, self.mlp = LayerNorm(width), MLP((width, width, width), gelu, key=key)

    def __call__(self, x: Float[Array, "*b width"]) -> Float[Array, "*b width"]:
        return x + self.mlp(self.norm(x))


class ResidualNetwork(eqx.Module):
    """`inputs` numbers → `outputs` numbers. Without blocks it is a plain network of one hidden
    layer: V gelu(W norm(v) + b) + c.
    """

    norm: LayerNorm
    project: Linear
    blocks: tuple[ResidualBlock, ...]
    norm_last: LayerNorm | None
    output: Linear

    def __init__(self, inputs: int, width: int, outputs: int, *, blocks: int, key: PRNGKeyArray):
        require(
            blocks >= 0,
            "the blocks of a residual network",
            got=blocks,
            expected="a whole number from 0",
            fix="0 is one hidden layer.",
        )
        key_project, key_output, *keys = jr.split(key, 2 + blocks)
        self.norm = LayerNorm(inputs)
        self.project = Linear(inputs, width, key=key_project)
        self.blocks = tuple(ResidualBlock(width, key=k) for k in keys)
        self.norm_last = LayerNorm(width) if blocks else None
        self.output = Linear(width, outputs, key=key_output)

    def __call__(self, v: Float[Array, "*b n"]) -> Float[Array, "*b m"]:
        x = self.project(self.norm(v))
        for block in self.blocks:
            x = block(x)
        return self.output(gelu(x) if self.norm_last is None else self.norm_last(x))
