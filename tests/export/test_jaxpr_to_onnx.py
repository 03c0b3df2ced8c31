"""Every rule computes what JAX computes, in an independent implementation: onnxruntime."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import jaxprs_in_params

pytest.importorskip("onnx", reason="these tests need onnx: pip install onnx")
pytest.importorskip("onnxruntime", reason="these tests need it: pip install onnxruntime")

import onnx
import onnxruntime

from scorebed.export.jaxpr_to_onnx import (
    CALLS,
    IR_VERSION,
    ONE_TO_ONE,
    OPSET,
    RULES,
    NoOnnxError,
    to_onnx,
)
from scorebed.export.programs import Program

SHAPE = (3, 4)


@jax.custom_vjp
def _custom(x):
    return jnp.cos(x)


_custom.defvjp(lambda x: (_custom(x), x), lambda x, g: (g * x,))

FUNCTIONS = {
    "elementwise": lambda x, y: (
        -jnp.exp(-x) / (1 + y**2) + jnp.tanh(x) * jax.nn.sigmoid(y) - jnp.minimum(x, y)
    ),
    "more elementwise": lambda x, y: (
        jnp.log(jnp.abs(x) + 1) + jnp.sin(y) * jnp.sqrt(jnp.square(x)) + jax.lax.erf(y)
    ),
    "activations": lambda x, y: (
        jax.nn.relu(x) + jax.nn.gelu(y) + jax.nn.silu(x) * jax.lax.rsqrt(jnp.square(y) + 1)
    ),
    "products": lambda x, y: jnp.einsum("ij,kj->ik", x, y) @ x + jnp.tensordot(x, y, 2),
    "batched products": lambda x, y: (
        jnp.einsum("bi,bi,bj->bj", x, y, x) + jax.vmap(jnp.outer)(x, y).sum(2)
    ),
    "reductions": lambda x, y: x - x.mean(-1, keepdims=True) + y.max(0) + jnp.abs(x).sum(),
    "shapes": lambda x, y: jnp.concatenate(
        [x.T.reshape(3, 4)[:, ::2], y[1:2].repeat(3, 0)[:, :2]], axis=1
    ),
    "splits": lambda x, y: jnp.stack(
        [a * b for a, b in zip(jnp.split(x, 2, axis=1), y.T[:2, :, None], strict=True)]
    ),
    "choices": lambda x, y: (
        jnp.where(x > y, x, 2 * y)
        + jnp.where((x <= 0) & ~(y == 1), 1.0, 0.0)
        + jnp.where((x < y) | (y >= 1), 0.5, x)
    ),
    "clamped index": lambda x, y: jax.lax.dynamic_slice(
        x, ((y[0, 0] * 10).astype(jnp.int32), (y[0, 1] * 10).astype(jnp.int32)), (1, 2)
    ),
    "counting": lambda x, y: (
        jnp.arange(3.0)[:, None] * x + jax.lax.broadcasted_iota(jnp.float32, y.shape, 1)
    ),
    "calls": lambda x, y: jax.jit(jnp.sin)(x) + jax.checkpoint(jnp.tanh)(y) + _custom(x),
    "gradients": lambda x, y: (
        jax.grad(lambda x: (x * x + x.sum() * x).sum())(x) + jax.lax.stop_gradient(jnp.copy(y))
    ),
    "an input": lambda x, y: (y, x)[1],
}


def program(function, *dtypes):
    inputs = {
        name: jax.ShapeDtypeStruct(SHAPE, dtype) for name, dtype in zip("xy", dtypes, strict=False)
    }
    return Program(lambda *values: (function(*values),), inputs, ("out",))


def translated(function):
    return to_onnx("test", program(function, jnp.float32, jnp.float32), ())


def primitives(jaxpr) -> set[str]:
    bodies = [body for eqn in jaxpr.eqns for body in jaxprs_in_params(eqn.params)]
    return {eqn.primitive.name for eqn in jaxpr.eqns}.union(*map(primitives, bodies))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_and_its_onnx_form_agree(name):
    session, ours = onnxruntime.InferenceSession(translated(FUNCTIONS[name])), FUNCTIONS[name]
    for seed in (0, 1):  # the dynamic index is below the range once and above it once
        x, y = np.random.default_rng(seed).normal(size=(2, *SHAPE)).astype(np.float32)
        (found,) = session.run(None, {"x": x, "y": y})
        expected = np.asarray(jax.jit(ours)(x, y))
        assert found.shape == expected.shape
        assert found.dtype == expected.dtype
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_every_rule_is_compared_above():
    given = [jax.ShapeDtypeStruct(SHAPE, jnp.float32)] * 2
    used = set().union(*(primitives(jax.make_jaxpr(f)(*given).jaxpr) for f in FUNCTIONS.values()))
    of_other_releases = {"checkpoint", "closed_call"}  # names that this JAX does not use
    assert {*ONE_TO_ONE, *RULES, *CALLS} - of_other_releases <= used


def test_the_model_is_well_formed_and_says_what_it_is():
    model = onnx.load_from_string(translated(FUNCTIONS["products"]))
    onnx.checker.check_model(model, full_check=True)
    assert (model.ir_version, model.opset_import[0].version) == (IR_VERSION, OPSET)
    assert model.producer_name == "scorebed"
    assert [value.name for value in model.graph.input] == ["x", "y"]
    assert [value.name for value in model.graph.output] == ["out"]


def test_the_same_function_gives_the_same_bytes():
    assert translated(FUNCTIONS["activations"]) == translated(FUNCTIONS["activations"])


def test_weights_are_constants_and_unused_ones_are_left_out():
    x, w, unused = (jnp.full(SHAPE, value, jnp.float32) for value in (2, 3, 5))
    inputs = {"x": jax.ShapeDtypeStruct(SHAPE, jnp.float32)}
    data = to_onnx("test", Program(lambda w, _, x: (w * x,), inputs, ("out",)), (w, unused))
    (constant,) = onnx.load_from_string(data).graph.initializer
    np.testing.assert_array_equal(onnx.numpy_helper.to_array(constant), w)
    (found,) = onnxruntime.InferenceSession(data).run(None, {"x": np.asarray(x)})
    np.testing.assert_array_equal(found, 6)


@pytest.mark.parametrize(
    ("function", "dtype", "reason"),
    [
        (jnp.sort, jnp.float32, "the operation 'sort' has no ONNX form"),
        (
            lambda x: jax.lax.fori_loop(0, 3, lambda _, v: v + 1, x),
            jnp.float32,
            "the operation 'scan' has no ONNX form",
        ),
        (lambda x: x.astype(jnp.bfloat16), jnp.float32, "values of type bfloat16"),
        (
            lambda x: jax.lax.select_n(x, x, x + 1, x + 2),
            jnp.int32,
            "selects among more than two cases",
        ),
        (lambda x: x & 1, jnp.int32, "not valid ONNX"),
    ],
)
def test_what_has_no_onnx_form_is_refused_with_its_reason(function, dtype, reason):
    with pytest.raises(NoOnnxError, match=reason):
        to_onnx("test", program(function, dtype), ())
