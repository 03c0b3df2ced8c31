"""Arrays of a tree in a file and back."""

import json
from collections.abc import Callable

import equinox as eqx
import hypothesis.extra.numpy as hnp
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
import safetensors.numpy
from hypothesis import example, given, settings

from scorebed.errors import CheckpointError, LeafMismatchError, NewerFormatError, ScorebedError
from scorebed.runs.serialisation import (
    decode_leaves,
    encode_leaves,
    leaf_names,
    load_leaves,
    read_metadata,
    save_leaves,
)

NUMPY_DTYPES = [
    "bool",
    "int8",
    "int32",
    "int64",
    "uint32",
    "float16",
    "float32",
    "float64",
    "complex64",
]
ARRAYS = st.sampled_from(NUMPY_DTYPES).flatmap(
    lambda dtype: hnp.arrays(
        dtype, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3)
    )
)
FEW = settings(deadline=None, max_examples=40)
WORDS = st.text("ab.%_ é\n😀", max_size=3)
TREES = st.recursive(
    ARRAYS,
    lambda below: (
        st.dictionaries(WORDS, below, max_size=3)
        | st.lists(below, max_size=3)
        | st.tuples(below, below)
    ),
    max_leaves=6,
)


class Layer(eqx.Module):
    weight: jax.Array
    bias: jax.Array | None
    activation: Callable = jnp.tanh

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.activation(self.weight @ x)


class MLP(eqx.Module):
    layers: list[Layer]


def same(a, b) -> bool:
    """Equal in structure, kind of array, dtype, shape and every bit."""
    leaves_a, structure_a = jax.tree.flatten(a)
    leaves_b, structure_b = jax.tree.flatten(b)
    return structure_a == structure_b and all(
        type(x) is type(y)
        and x.dtype == y.dtype
        and x.shape == y.shape
        and np.asarray(x).tobytes() == np.asarray(y).tobytes()
        for x, y in zip(leaves_a, leaves_b, strict=True)
    )


def blank(tree):
    """A template of the same kind with other contents."""
    return jax.tree.map(np.zeros_like, tree)


@FEW
@given(tree=TREES, metadata=st.dictionaries(WORDS, st.integers() | WORDS | st.none(), max_size=3))
@example(tree={"__metadata__": np.ones(2, "float32")}, metadata={})
@example(tree={"a.b": np.zeros(1), "a": {"b": np.ones(1)}, "a%2Eb": np.full(1, 2.0)}, metadata={})
def test_any_tree_comes_back_bit_by_bit(tmp_path_factory, tree, metadata):
    path = tmp_path_factory.getbasetemp() / "tree.safetensors"
    save_leaves(path, tree, metadata)
    assert same(load_leaves(path, blank(tree)), tree)
    assert read_metadata(path) == metadata


@FEW
@given(TREES)
def test_no_two_leaves_share_a_name_and_equal_trees_give_equal_bytes(tree):
    names = leaf_names(tree)
    assert len(set(names)) == len(names) == len(jax.tree.leaves(tree))
    assert encode_leaves(tree) == encode_leaves(jax.tree.map(np.copy, tree))


def test_names_are_the_way_to_the_leaf():
    mlp = MLP([Layer(jnp.ones((2, 1)), jnp.ones(2)), Layer(jnp.ones((1, 2)), None)])
    tree = {"encoder": {"mlp": mlp}, "steps": [jnp.zeros(()), 3.0, None, jnp.ones(2)]}
    layers = [
        "encoder.mlp.layers.0.weight",
        "encoder.mlp.layers.0.bias",
        "encoder.mlp.layers.1.weight",
    ]
    assert leaf_names(tree) == [*layers, "steps.0", "steps.3"]
    assert leaf_names(jnp.zeros(3)) == ["array"]


def test_arrays_that_do_not_lie_in_order_in_memory_are_saved_as_they_read():
    # The library alone would write the memory as it lies, and scramble all three.
    grid = np.arange(12.0).reshape(3, 4)
    tree = [
        grid.T,
        grid[:, ::2],
        np.asfortranarray(grid),
        np.broadcast_to(np.ones(1), (3,)),
        jnp.asarray(grid.T).T,
    ]
    assert same(
        decode_leaves(encode_leaves(tree), [*blank(tree)[:4], jnp.zeros((3, 4))], where="x"), tree
    )


def test_kinds_of_array_follow_the_template_and_keep_their_dtype():
    tree = {
        "half": jnp.ones((2, 3), jnp.bfloat16),
        "flag": jnp.asarray(True),
        "count": jnp.asarray(7, jnp.int32),
        "numpy": np.arange(3, dtype="int64"),
        "scalar": np.float64(0.1),
        "key": jr.key(3),
        "keys": jr.split(jr.key(4, impl="rbg"), 2),
        "name": "not an array",
        "rate": 0.5,
    }
    template = jax.tree.map(lambda x: x * 0 if isinstance(x, np.ndarray | np.generic) else x, tree)
    template |= {
        "half": jnp.zeros((2, 3), jnp.bfloat16),
        "key": jr.key(0),
        "keys": jr.split(jr.key(0, impl="rbg"), 2),
    }
    template |= {"flag": jnp.asarray(False), "count": jnp.asarray(0, jnp.int32), "rate": 0.25}
    loaded = decode_leaves(encode_leaves(tree), template, where="x")
    assert loaded["name"] == "not an array"
    assert loaded["rate"] == 0.25  # no array: the template's own
    for name in ("half", "flag", "count", "numpy", "scalar"):
        assert same(loaded[name], tree[name]), name
    for name in ("key", "keys"):
        assert loaded[name].dtype == tree[name].dtype
        assert (jr.key_data(loaded[name]) == jr.key_data(tree[name])).all()
    loaded["numpy"][0] = 5  # NumPy's are to be written to


def test_a_module_comes_back_from_a_template_without_numbers():
    module = Layer(jnp.asarray([[1.0, 2.0]]), None)
    template = eqx.filter_eval_shape(lambda: Layer(jnp.zeros((1, 2)), None))
    assert isinstance(template.weight, jax.ShapeDtypeStruct)
    loaded = decode_leaves(encode_leaves(module), template, where="x")
    assert (loaded(jnp.ones(2)) == module(jnp.ones(2))).all()


def test_a_mismatch_names_leaf_shape_and_type_expected_and_found():
    data = encode_leaves(
        {"a": jnp.ones((4, 2)), "b": jnp.ones(3), "c": jr.key(0), "e": jnp.ones(1)}
    )
    like = {
        "a": jnp.ones((8, 2)),
        "b": jnp.ones(3, jnp.int32),
        "c": jr.key(0, impl="rbg"),
        "d": jnp.ones(()),
    }
    with pytest.raises(LeafMismatchError) as caught:
        decode_leaves(data, like, where="score.safetensors")
    message = str(caught.value)
    assert "\n" not in message
    for part in (
        "score.safetensors, got",
        "'a' of float32[4, 2] for float32[8, 2]",
        "'b' of float32[3] for int32[3]",
        "'c' of key<fry>[] for key<rbg>[]",
        "no 'd' (float32[])",
        "an unexpected 'e' (float32[1])",
        "Fix: ",
    ):
        assert part in message
    many = {f"w{i}": jnp.ones(1) for i in range(9)}
    with pytest.raises(LeafMismatchError, match="and 4 more"):
        decode_leaves(encode_leaves(many), {}, where="x")


def test_key_data_are_no_key_and_a_key_is_no_key_data():
    key, raw = {"k": jr.key(0)}, {"k": jr.key_data(jr.key(0))}
    for saved, like in ((key, raw), (raw, key)):
        with pytest.raises(LeafMismatchError):
            decode_leaves(encode_leaves(saved), like, where="x")


def test_an_array_that_the_format_does_not_know_is_refused_by_name():
    with pytest.raises(
        ScorebedError, match=r"the leaf 'a\.0', got complex128, expected one of bool"
    ):
        encode_leaves({"a": [np.ones(2, "complex128")]})


def test_a_newer_format_is_told_from_damage_even_with_arrays_that_we_cannot_read():
    header = json.dumps({"format": 2, "keys": {}, "metadata": {}})
    data = safetensors.numpy.save(
        {"a": np.asarray(jnp.ones(2, jnp.float8_e4m3fn))}, metadata={"scorebed": header}
    )
    with pytest.raises(NewerFormatError, match="got format 2, expected at most format 1"):
        decode_leaves(data, {"a": jnp.ones(2)}, where="x")


def test_a_file_cut_short_anywhere_is_damaged(tmp_path):
    like, path = {"a": jnp.arange(5.0), "k": jr.key(1)}, tmp_path / "x.safetensors"
    data = encode_leaves(like, {"note": "x"})
    for length in range(0, len(data), 3):
        path.write_bytes(data[:length])
        with pytest.raises(CheckpointError, match="Fix: "):
            load_leaves(path, like)


@FEW
@given(
    st.binary(max_size=200)
    | st.builds(lambda b: len(b).to_bytes(8, "little") + b, st.binary(max_size=80))
)
@example(b"\xff" * 64)
@example((2).to_bytes(8, "little") + b"{}")
@example((60_000).to_bytes(8, "little") + b"[" * 60_000)
def test_garbage_is_damaged(data):
    with pytest.raises(CheckpointError):
        decode_leaves(data, {"a": jnp.zeros(2)}, where="x")


@pytest.mark.parametrize(
    "header",
    [
        "[]",
        "{}",
        "null",
        '{"format": "1", "keys": {}, "metadata": {}}',
        '{"format": NaN, "keys": {}, "metadata": {}}',
        '{"format": 1, "keys": {"a": "evil"}, "metadata": {}}',
        '{"format": 1, "keys": {"a": ["rbg"]}, "metadata": {}}',
        '{"format": 1, "keys": {"a": "rbg"}, "metadata": {}}',
    ],
)
def test_a_header_that_is_not_ours_is_damaged(header):
    data = safetensors.numpy.save({"a": np.zeros(3, "float32")}, metadata={"scorebed": header})
    with pytest.raises(CheckpointError):
        decode_leaves(data, {"a": jnp.zeros(3)}, where="x")


def test_a_file_of_another_program_and_a_missing_one_are_told_in_one_line(tmp_path):
    path = tmp_path / "other.safetensors"
    safetensors.numpy.save_file({"a": np.zeros(3)}, path)
    for file in (path, tmp_path / "missing", tmp_path):
        with pytest.raises(CheckpointError) as caught:
            load_leaves(file, {"a": jnp.zeros(3)})
        assert "\n" not in str(caught.value)
        assert str(file) in str(caught.value)
