"""The multi-layer perceptron and its GELU."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy.stats import norm

from scorebed.errors import InvalidValueError
from scorebed.nets import MLP, gelu


def test_mlp_is_equinox_mlp(filled):
    ours = filled(lambda key: MLP((3, 8, 8, 2), jnp.tanh, key=key))
    theirs = filled(lambda key: eqx.nn.MLP(3, 2, 8, 2, activation=jnp.tanh, key=key))
    theirs = eqx.tree_at(
        lambda m: [a for l in m.layers for a in (l.weight, l.bias)],
        theirs,
        [a for l in ours.layers for a in (l.weight.T, l.bias)],
    )
    xs = np.random.default_rng(1).normal(size=(5, 3)).astype(np.float32)
    batch, mapped, expected = eqx.filter_jit(
        lambda v: (ours(v), jax.vmap(ours)(v), jax.vmap(theirs)(v))
    )(xs)
    np.testing.assert_allclose(mapped, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(batch, expected, rtol=1e-5, atol=1e-6)


def test_last_bound_shrinks_the_last_weights_and_nothing_else():
    plain, small = eqx.filter_jit(
        lambda key: tuple(
            MLP((4, 25, 3), jnp.tanh, last_bound=bound, key=key) for bound in (None, 0.05)
        )
    )(jr.key(0))
    assert (
        0.04
        < np.abs(small.layers[-1].weight).max()
        <= 0.05
        < np.abs(plain.layers[-1].weight).max()
        <= 0.2
    )
    same = [
        np.array_equal(a, b)
        for a, b in zip(jax.tree.leaves(plain), jax.tree.leaves(small), strict=True)
    ]
    assert same == [True, True, False, True]


def test_two_sizes_are_a_linear_layer(filled):
    net = filled(lambda key: MLP((3, 2), jnp.tanh, key=key))
    x = jnp.asarray([1.0, -2.0, 3.0])
    weight, bias = np.asarray(net.layers[0].weight), np.asarray(net.layers[0].bias)
    np.testing.assert_allclose(net(x), np.asarray(x) @ weight + bias, rtol=1e-5)


def test_gelu_is_x_times_the_normal_cdf_within_its_stated_error():
    x = np.linspace(-6, 6, 1001).astype(np.float32)
    value, slope = jax.jit(lambda v: (gelu(v), jax.vmap(jax.grad(gelu))(v)))(x)
    assert (
        1e-4 < np.abs(value - x * norm.cdf(x)).max() < 5e-4
    )  # more than rounding: it is the approximation
    np.testing.assert_allclose(slope, norm.cdf(x) + x * norm.pdf(x), atol=2e-3)


def test_missing_sizes_are_refused():
    with pytest.raises(InvalidValueError, match="inputs and outputs"):
        MLP((3,), jnp.tanh, key=jr.key(0))
