"""Keys by name."""

import itertools

import jax.random as jr
import numpy as np

from scorebed.keys import named


def data(key) -> tuple[int, ...]:
    return tuple(np.asarray(jr.key_data(key)).tolist())


def test_equal_paths_give_equal_keys_and_different_paths_different_ones():
    root = jr.key(0)
    paths = [
        (),
        ("policy",),
        ("score",),
        ("policy", 0),
        ("policy", 3),
        (3, "policy"),
        ("policy", 3, "noise"),
    ]
    keys = [data(named(root, *path)) for path in paths]
    assert keys == [data(named(root, *path)) for path in paths]
    assert all(a != b for a, b in itertools.combinations(keys, 2))


def test_a_path_can_be_walked_in_parts():
    assert data(named(named(jr.key(1), "policy"), 3)) == data(named(jr.key(1), "policy", 3))
