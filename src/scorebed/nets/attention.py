"""Multi-head attention: among all tokens, or of one fixed query over a set that grows token by
token.

    head: Σ_k softmax_k(⟨q_j, k_k⟩ / √e) v_k,   q = x W_q + b_q,   k = x W_k,   v = x W_v + b_v
    heads are joined by W_o, b_o

Keys have no bias: it would add the same number to all logits of a query, and cancel in the
softmax."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from scorebed.errors import require
from scorebed.nets.linear import LayerNorm, Linear, uniform
from scorebed.nets.mlp import MLP, gelu


class MultiHeadAttention(eqx.Module):
    """Attention among tokens of `width`, equivariant to their order. Weights are initialised like
    those of `Linear`.
    """

    to_query: Linear
    to_key: Float[Array, "d d"]
    to_value: Linear
    to_output: Linear
    heads: int = eqx.field(static=True)

    def __init__(self, width: int, heads: int, *, key: PRNGKeyArray):
        require(
            heads >= 1 and width % heads == 0,
            "attention heads",
            got=f"{heads} heads on width {width}",
            expected="a number of heads that divides the width",
            fix="change one of the two.",
        )
        key_query, key_key, key_value, key_output = jr.split(key, 4)
        self.to_query = Linear(width, width, key=key_query)
        self.to_key = uniform(width, width, bound=1 / math.sqrt(width), key=key_key)
        self.to_value = Linear(width, width, key=key_value)
        self.to_output = Linear(width, width, key=key_output)
        self.heads = heads

    def queries(self, x: Float[Array, "*b d"]) -> Float[Array, "*b heads e"]:
        """Queries, already divided by √e."""
        queries = self._split(self.to_query(x))
        return queries / math.sqrt(queries.shape[-1])

    def keys(self, x: Float[Array, "*b d"]) -> Float[Array, "*b heads e"]:
        """Keys."""
        return self._split(x @ self.to_key)

    def values(self, x: Float[Array, "*b d"]) -> Float[Array, "*b heads e"]:
        """Values."""
        return self._split(self.to_value(x))

    def join(self, x: Float[Array, "*b heads e"]) -> Float[Array, "*b d"]:
        """The output layer on the concatenated heads."""
        return self.to_output(x.reshape(*x.shape[:-2], -1))

    def __call__(self, x: Float[Array, "T d"]) -> Float[Array, "T d"]:
        queries, keys, values = self._all(x)
        logits = jnp.einsum("qhe,khe->hqk", queries, keys)
        return self.join(jnp.einsum("hqk,khe->qhe", jax.nn.softmax(logits), values))

    def _all(self, x: Float[Array, "*b d"]) -> list[Float[Array, "*b heads e"]]:
        """Queries, keys and values by one product: of the same numbers, three times as wide."""
        root = math.sqrt(self.to_key.shape[-1] // self.heads)
        weight = jnp.concatenate(
            [self.to_query.weight / root, self.to_key, self.to_value.weight], axis=-1
        )
        bias = jnp.concatenate(
            [self.to_query.bias / root, jnp.zeros_like(self.to_query.bias), self.to_value.bias]
        )
        return [self._split(part) for part in jnp.split(x @ weight + bias, 3, axis=-1)]

    def _split(self, x: Float[Array, "*b d"]) -> Float[Array, "*b heads e"]:
        return x.reshape(*x.shape[:-1], self.heads, -1)


class RunningAttention(eqx.Module):
    """Attention of one query over a growing set, in constant memory: Σ_k w_k v_k / Σ_k w_k with
    w_k = exp(logit_k − peak).

    Both sums are kept relative to the largest logit so far, so that no exponential overflows.
    """

    peak: Float[Array, " heads"]
    mass: Float[Array, " heads"]
    total: Float[Array, "heads e"]

    @staticmethod
    def of(logits: Float[Array, " heads"], values: Float[Array, "heads e"]) -> "RunningAttention":
        """The set of a single token."""
        peak = jax.lax.stop_gradient(logits)
        weight = jnp.exp(logits - peak)  # one, with the gradient of the logit
        return RunningAttention(peak, weight, weight[:, None] * values)

    def add(
        self, logits: Float[Array, " heads"], values: Float[Array, "heads e"]
    ) -> "RunningAttention":
        """The set with one more token."""
        # The result does not depend on the peak, so neither does its gradient.
        peak = jnp.maximum(self.peak, jax.lax.stop_gradient(logits))
        decay, weight = jnp.exp(self.peak - peak), jnp.exp(logits - peak)
        return RunningAttention(
            peak, decay * self.mass + weight, decay[:, None] * self.total + weight[:, None] * values
        )

    def mean(self) -> Float[Array, "heads e"]:
        """The attended value of each head."""
        return self.total / self.mass[:, None]


class TransformerBlock(eqx.Module):
    """Pre-norm block: x + attention(norm(x)), then x + MLP(norm(x)) with one hidden GELU layer of
    width `hidden`.
    """

    norm_attention: LayerNorm
    attention: MultiHeadAttention
    norm_mlp: LayerNorm
    mlp: MLP

    def __init__(self, width: int, heads: int, hidden: int, *, key: PRNGKeyArray):
        key_attention, key_mlp = jr.split(key)
        self.norm_attention, self.norm_mlp = LayerNorm(width), LayerNorm(width)
        self.attention = MultiHeadAttention(width, heads, key=key_attention)
        self.mlp = MLP((width, hidden, width), gelu, key=key_mlp)

    def __call__(self, x: Float[Array, "T d"]) -> Float[Array, "T d"]:
        x = x + self.attention(self.norm_attention(x))
        return x + self.mlp(self.norm_mlp(x))


def sinusoidal_positions(length: int, width: int) -> Float[np.ndarray, "T d"]:
    """p_{t,2i} = sin(t / 10⁴^{2i/d}), p_{t,2i+1} = cos of the same, t from 0 (Vaswani et al.,
    2017).

    Added to tokens whose order matters, since attention ignores it.
    """
    pair = np.arange(width) // 2 * 2
    angles = np.arange(length)[:, None] / 10_000.0 ** (pair / width)
    return np.where(np.arange(width) % 2 == 0, np.sin(angles), np.cos(angles))
