"""The residual network of the heads: against its equation, and its start."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from scorebed.errors import InvalidValueError
from scorebed.nets import Linear, ResidualNetwork
from scorebed.nets.linear import preserving_variance
from scorebed.nets.mlp import gelu


def normalised(x, norm):
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt(np.square(centred).mean(-1, keepdims=True) + 1e-5) * norm.gain + (
        norm.shift
    )


def affine(x, layer):
    return x @ np.asarray(layer.weight) + np.asarray(layer.bias)


@pytest.mark.parametrize("blocks", [0, 2])
def test_it_is_its_equation(filled, blocks):
    network = filled(lambda key: ResidualNetwork(5, 4, 2, blocks=blocks, key=key))
    v = np.random.default_rng(0).normal(size=(3, 5)).astype(np.float32)
    x = affine(normalised(v, network.norm), network.project)
    for block in network.blocks:
        hidden = gelu(jnp.asarray(affine(normalised(x, block.norm), block.mlp.layers[0])))
        x = x + affine(np.asarray(hidden), block.mlp.layers[1])
    x = normalised(x, network.norm_last) if blocks else np.asarray(gelu(jnp.asarray(x)))
    np.testing.assert_allclose(network(jnp.asarray(v)), affine(x, network.output), atol=1e-4)


def test_a_negative_number_of_blocks_is_refused():
    with pytest.raises(InvalidValueError, match="blocks of a residual network, got -1"):
        ResidualNetwork(5, 4, 2, blocks=-1, key=jr.key(0))


def test_layers_that_preserve_variance_do_and_the_others_stay():
    """Outputs of standard normal inputs have the mean square one: the default leaves a third of
    it, a bound of 1/√n in place of √(3/n).
    """

    class Both(eqx.Module):
        layer: Linear
        other: jax.Array

    made = preserving_variance(Both(Linear(200, 300, key=jr.key(0)), jnp.ones(3)))
    outputs = np.asarray(made.layer(jr.normal(jr.key(1), (400, 200))), np.float64)
    # Given the weights, outputs are normal; their mean square varies by √(2/n) of itself and by
    # the weights' own, together less than a hundredth.
    assert abs(np.square(outputs).mean() - 1) < 0.05
    assert not np.asarray(made.layer.bias).any()
    np.testing.assert_array_equal(made.other, 1.0)
