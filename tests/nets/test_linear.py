"""The affine and normalisation layers: against equinox's, and their initial distributions."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from scorebed.errors import InvalidValueError
from scorebed.nets import LayerNorm, Linear


def test_linear_is_equinox_linear_with_the_weight_transposed(filled):
    ours, theirs = (
        filled(lambda key: Linear(5, 3, key=key)),
        filled(lambda key: eqx.nn.Linear(5, 3, key=key)),
    )
    theirs = eqx.tree_at(lambda l: (l.weight, l.bias), theirs, (ours.weight.T, ours.bias))
    x = jnp.arange(5.0)
    np.testing.assert_allclose(ours(x), theirs(x), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("bound", [None, 0.05])
def test_initial_values_are_uniform_within_their_bounds(bound):
    """The mean square of U(−b, b) is b²/3 with standard deviation b²·√(4/45): catches a bound wrong
    by 3%, or a normal law.
    """
    layer = Linear(100, 200, weight_bound=bound, key=jr.key(0))
    for values, b in ((layer.weight, bound or 0.1), (layer.bias, 0.1)):
        values = np.asarray(values, np.float64)
        assert 0.95 * b < np.abs(values).max() <= b * (1 + 1e-6)
        assert abs(np.square(values).mean() - b**2 / 3) <= 4.892 * b**2 * np.sqrt(4 / 45) / np.sqrt(
            values.size
        )


def test_a_mapped_batch_is_one_matrix_product(filled):
    """No batch dimensions and no transpose: `vmap` over experiments must reach the fast kernel."""
    layer = filled(lambda key: Linear(5, 3, key=key))
    equations = jax.make_jaxpr(jax.vmap(layer))(np.ones((7, 5), np.float32)).jaxpr.eqns
    (dot,) = [e for e in equations if e.primitive.name == "dot_general"]
    (_, batch) = dot.params["dimension_numbers"]
    assert batch == ((), ())
    assert dot.outvars[0].aval.shape == (7, 3)
    assert "transpose" not in {e.primitive.name for e in equations}


def test_layer_norm_is_equinox_layer_norm(filled):
    ours = filled(lambda _: LayerNorm(6))
    theirs = eqx.tree_at(
        lambda l: (l.weight, l.bias), eqx.nn.LayerNorm(6, eps=1e-5), (ours.gain, ours.shift)
    )
    x = 3 + np.random.default_rng(1).normal(size=(4, 6)).astype(np.float32)
    for scale in (1.0, 1e-3):  # at the small scale eps decides
        got, expected = eqx.filter_jit(lambda v: (ours(v), jax.vmap(theirs)(v)))(scale * x)
        np.testing.assert_allclose(got, expected, rtol=1e-3, atol=1e-4)


def test_layer_norm_of_a_constant_is_finite_with_a_finite_gradient(filled):
    norm = filled(lambda _: LayerNorm(4))
    value, grad = jax.jit(jax.value_and_grad(lambda x: norm(x).sum()))(np.ones(4, np.float32))
    np.testing.assert_allclose(value, norm.shift.sum(), rtol=1e-5)
    assert np.isfinite(grad).all()


def test_bad_sizes_are_refused():
    with pytest.raises(InvalidValueError, match="linear layer"):
        Linear(0, 3, key=jr.key(0))
    with pytest.raises(InvalidValueError, match="project up"):
        LayerNorm(2)
