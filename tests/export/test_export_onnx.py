"""Every rule of the ONNX form computes what JAX computes, run by another implementation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from scorebed.export.onnx import NoOnnxError, to_onnx
from scorebed.export.programs import Program
from scorebed.export.protobuf import _varint

X, Y, W = ((3, 4), (3, 4), (4, 5))
FUNCTIONS = {
    "elementwise": lambda x, y: (
        -jnp.exp(-x) / (1 + y**2) + jnp.tanh(x) * jax.nn.sigmoid(y) - jnp.minimum(x, y)
    ),
    "activations": lambda x, y: (
        jax.nn.relu(x) + jax.nn.gelu(y) + jax.nn.silu(x) * jax.lax.rsqrt(jnp.square(y) + 1)
    ),
    "products": lambda x, y: jnp.einsum("ij,kj->ik", x, y) @ x + jnp.tensordot(x, y, 2),
    "reductions": lambda x, y: x - x.mean(-1, keepdims=True) + y.max(0) + jnp.abs(x).sum(),
    "shapes": lambda x, y: jnp.concatenate(
        [x.T.reshape(3, 4)[:, ::2], y[1:2].repeat(3, 0)[:, :2]], axis=1
    ),
    "splits": lambda x, y: jnp.stack(
        [a * b for a, b in zip(jnp.split(x, 2, axis=1), y.T[:2, :, None], strict=True)]
    ),
    "choices": lambda x, y: jnp.where(x > y, x, 2 * y) + jnp.where((x <= 0) & ~(y == 1), 1.0, 0.0),
    "clamped index": lambda x, y: jax.lax.dynamic_slice(
        x, ((y[0, 0] * 10).astype(jnp.int32), (y[0, 1] * 10).astype(jnp.int32)), (1, 2)
    ),
    "what was given": lambda x, y: (y, x)[1],
}


def program(function, *shapes):
    given = {
        name: jax.ShapeDtypeStruct(shape, jnp.float32)
        for name, shape in zip("xyw", shapes, strict=False)
    }
    return Program(lambda *values: (function(*values),), given, ("out",))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_and_its_onnx_form_agree(name):
    onnxruntime = pytest.importorskip(
        "onnxruntime", reason="this test needs onnxruntime: pip install onnxruntime"
    )
    data = to_onnx("test", program(FUNCTIONS[name], X, Y), ())
    session, ours = onnxruntime.InferenceSession(data), jax.jit(FUNCTIONS[name])
    for seed in (0, 1):  # the index lies on both sides
        x, y = np.random.default_rng(seed).normal(size=(2, 3, 4)).astype(np.float32)
        (found,) = session.run(None, {"x": x, "y": y})
        wanted = np.asarray(ours(x, y))
        assert found.shape == wanted.shape
        assert found.dtype == wanted.dtype
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def test_what_is_not_known_is_refused_by_its_name():
    for function, word in (
        (lambda x: jnp.sort(x), "sort"),
        (lambda x: jax.lax.fori_loop(0, 3, lambda _, v: v + 1, x), "scan"),
        (lambda x: jax.vmap(jnp.dot)(x, x), "batch of matrix products"),
        (lambda x: x.astype(jnp.bfloat16), "bfloat16"),
    ):
        with pytest.raises(NoOnnxError, match=word):
            to_onnx("test", program(function, X), ())


def test_whole_numbers_as_the_wire_format_has_them():
    assert _varint(0) == b"\x00"
    assert _varint(127) == b"\x7f"
    assert _varint(300) == b"\xac\x02"  # the example of the format's own description
    assert _varint(-1) == b"\xff" * 9 + b"\x01"
