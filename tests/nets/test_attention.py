"""Attention: against equinox's, its symmetries, and the running form against the softmax that it
replaces.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from scorebed.errors import InvalidValueError
from scorebed.nets import MultiHeadAttention, RunningAttention, TransformerBlock

T, WIDTH, HEADS = 5, 12, 3


def normal(seed, *shape):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def test_attention_is_equinox_attention(filled):
    ours = filled(lambda key: MultiHeadAttention(WIDTH, HEADS, key=key))
    theirs = filled(
        lambda key: eqx.nn.MultiheadAttention(
            HEADS, WIDTH, use_query_bias=True, use_value_bias=True, use_output_bias=True, key=key
        )
    )
    theirs = eqx.tree_at(
        lambda a: (
            *(a.query_proj.weight, a.query_proj.bias, a.key_proj.weight),
            *(a.value_proj.weight, a.value_proj.bias, a.output_proj.weight, a.output_proj.bias),
        ),
        theirs,
        (
            *(ours.to_query.weight.T, ours.to_query.bias, ours.to_key.T),
            *(
                ours.to_value.weight.T,
                ours.to_value.bias,
                ours.to_output.weight.T,
                ours.to_output.bias,
            ),
        ),
    )
    got, expected = eqx.filter_jit(lambda x: (ours(x), theirs(x, x, x)))(normal(1, T, WIDTH))
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


def test_block_is_the_pre_norm_equation_and_equivariant_to_the_order_of_tokens(filled):
    block = filled(lambda key: TransformerBlock(WIDTH, HEADS, 20, key=key))
    order = np.array([3, 0, 4, 1, 2])

    def norm(layer, v):
        return (v - v.mean(-1, keepdims=True)) / jnp.sqrt(
            v.var(-1, keepdims=True) + 1e-5
        ) * layer.gain + layer.shift

    @jax.jit
    def evaluate(x):
        middle = x + block.attention(norm(block.norm_attention, x))
        first, second = block.mlp.layers
        hidden = jax.nn.gelu(norm(block.norm_mlp, middle) @ first.weight + first.bias)
        return block(x), middle + hidden @ second.weight + second.bias, block(x[order])

    got, expected, permuted = evaluate(normal(1, T, WIDTH))
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(permuted, got[order], rtol=1e-4, atol=1e-4)
    assert block.mlp.layers[0].weight.shape == (WIDTH, 20)


def softmax_attention(logits, values, weight):
    return (weight * jnp.einsum("th,the->he", jax.nn.softmax(logits, axis=0), values)).sum()


def running_attention(logits, values, weight):
    pool = RunningAttention.of(logits[0], values[0])
    for t in range(1, 4):
        pool = pool.add(logits[t], values[t])
    return (weight * pool.mean()).sum()


@jax.jit
def both_attentions(*data):
    return [
        jax.value_and_grad(f, argnums=(0, 1))(*data) for f in (softmax_attention, running_attention)
    ]


@pytest.mark.parametrize("spread", [1.0, 300.0])
def test_running_attention_is_the_softmax_with_its_gradient(spread):
    """A spread of 300 overflows a single-precision exponential: the peak must keep up, in either
    direction.
    """
    data = spread * normal(0, 4, HEADS), normal(1, 4, HEADS, 4), normal(2, HEADS, 4)
    (expected, grads_expected), (got, grads) = both_attentions(*data)
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)
    for a, b in zip(grads, grads_expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_heads_must_divide_the_width():
    with pytest.raises(InvalidValueError, match="5 heads on width 12"):
        MultiHeadAttention(12, 5, key=jr.key(0))
