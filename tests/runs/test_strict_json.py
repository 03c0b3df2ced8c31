"""JSON without its common extensions."""

import math

import hypothesis.strategies as st
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings

from scorebed.errors import ScorebedError
from scorebed.runs.strict_json import dumps, loads

WORDS = st.text('aé"\\\n\x00\ud800😀', max_size=4)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | WORDS
)
VALUES = st.recursive(
    SCALARS,
    lambda below: st.lists(below, max_size=3) | st.dictionaries(WORDS, below, max_size=3),
    max_leaves=6,
)


@settings(deadline=None, max_examples=40)
@given(VALUES)
def test_plain_values_come_back(value):
    assert loads(dumps(value)) == value
    assert loads(dumps(value, indent=2).encode()) == value


def test_numbers_that_are_not_finite_become_null_and_scalars_become_numbers():
    value = {
        "a": math.nan,
        "b": [math.inf, -math.inf, np.float32("nan")],
        "c": np.int64(3),
        "d": jnp.float32(0.5),
    }
    assert loads(dumps(value)) == {"a": None, "b": [None, None, None], "c": 3, "d": 0.5}
    assert dumps({"b": 1, "a": np.bool_(True)}) == '{"b": 1, "a": true}'  # in the order given


@pytest.mark.parametrize("value", [{1: 2}, {"a": {3}}, {"a": object()}, [np.zeros(2)], b"x"])
def test_what_is_not_json_is_refused(value):
    with pytest.raises(ScorebedError, match="a value for a JSON file, got"):
        dumps(value)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "NaN",
        "[Infinity]",
        "1e999",
        '{"a": 1, "a": 2}',
        "{'a': 1}",
        "[" * 100_000,
        b"\xff\xff",
        "1" * 5000,
    ],
)
def test_texts_that_are_not_strict_json_are_refused(text):
    with pytest.raises(ValueError, match=r"."):
        loads(text)
