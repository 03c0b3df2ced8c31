"""The recurrent network: against equinox's cell, and the wiring of the stack."""

import equinox as eqx
import jax
import jax.random as jr
import numpy as np
import pytest

from scorebed.errors import InvalidValueError
from scorebed.nets import GRU, GRUCell


def normal(*shape):
    return np.random.default_rng(1).normal(size=shape).astype(np.float32)


def test_cell_is_equinox_cell(filled):
    ours = filled(lambda key: GRUCell(3, 4, key=key))
    theirs = eqx.tree_at(
        lambda c: (c.weight_ih, c.weight_hh, c.bias, c.bias_n),
        filled(lambda key: eqx.nn.GRUCell(3, 4, key=key)),
        (ours.weight_input.T, ours.weight_hidden.T, ours.bias, ours.bias_hidden),
    )
    got, expected = eqx.filter_jit(lambda h, x: (ours(h, x), theirs(x, h)))(normal(4), normal(3))
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


def test_each_layer_reads_the_new_state_of_the_one_below(filled):
    net = filled(lambda key: GRU(3, 4, 3, key=key))

    @jax.jit
    def both(state, x):
        first = net.cells[0](state[0], x)
        second = net.cells[1](state[1], first)
        return net(state, x), (first, second, net.cells[2](state[2], second))

    got, expected = both(normal(3, 4), normal(3))
    np.testing.assert_allclose(got, np.stack(expected), rtol=1e-5)


def test_state_starts_at_zero_and_stays_inside_the_unit_box(filled):
    net = filled(lambda key: GRU(3, 4, 2, key=key))
    start = net.init()
    assert start.shape == (2, 4)
    assert not np.asarray(start).any()
    last = jax.jit(lambda xs: jax.lax.scan(lambda s, x: (net(s, x), None), start, xs)[0])(
        100 * normal(50, 3)
    )
    assert np.abs(last).max() <= 1


def test_initial_values_keep_the_bound_of_the_hidden_size():
    cell = eqx.filter_jit(lambda key: GRUCell(2, 100, key=key))(jr.key(0))
    for leaf in jax.tree.leaves(cell):
        assert 0.09 < np.abs(leaf).max() <= 0.1 * (1 + 1e-6)


def test_bad_sizes_are_refused():
    with pytest.raises(InvalidValueError, match="layers"):
        GRU(3, 4, 0, key=jr.key(0))
    with pytest.raises(InvalidValueError, match="hidden units"):
        GRUCell(3, 0, key=jr.key(0))
