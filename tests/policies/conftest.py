"""Double precision throughout, and modules with numbers from numpy: compiling random initialisers
would take most of the time.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest


@pytest.fixture(scope="module", autouse=True)
def double_precision():
    with jax.enable_x64(True):
        yield


@pytest.fixture(scope="module")
def filled():
    """`filled(make)`: the module `make(key)` with every array replaced by 0.5 · N(0, 1)."""

    def fill(make, seed=0):
        rng = np.random.default_rng(seed)
        shapes = eqx.filter_eval_shape(make, jr.key(0))
        arrays, other = eqx.partition(shapes, lambda a: isinstance(a, jax.ShapeDtypeStruct))
        draws = jax.tree.map(lambda a: jnp.asarray(0.5 * rng.normal(size=a.shape), a.dtype), arrays)
        return eqx.combine(draws, other)

    return fill
