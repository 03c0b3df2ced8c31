"""Blocks in a common order: what was shuffled is put back, and a posterior that is known by
quadrature is shown block by block.
"""

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

from scorebed.inference.relabelling import relabelled
from scorebed.session.events import ProposedDesign, StepRecord
from scorebed.session.posterior import Beliefs
from scorebed.tasks.base import IID, Gaussian
from scorebed.tasks.declare import measured, parameters, ranges


def shuffled(blocks: np.ndarray, *, seed: int) -> np.ndarray:
    """Particles [N, K, d] with the blocks of each in an order of its own, flat."""
    orders = np.random.default_rng(seed).permuted(
        np.tile(np.arange(blocks.shape[1]), (len(blocks), 1)), axis=1
    )
    return np.take_along_axis(blocks, orders[:, :, None], axis=1).reshape(len(blocks), -1)


@pytest.mark.parametrize("count", [2, 4, 7])
def test_blocks_that_lie_apart_are_put_back_exactly(count):
    rng = np.random.default_rng(0)
    centres = np.stack([np.arange(count), rng.normal(size=count)], 1)
    blocks = centres + np.asarray([0.05, 3.0]) * rng.normal(size=(500, count, 2))
    blocks[..., 1] *= 1e6  # another unit
    found = relabelled(shuffled(blocks, seed=1), count).reshape(blocks.shape)
    np.testing.assert_array_equal(found, blocks)


def test_blocks_are_told_apart_by_all_coordinates_not_the_first_alone():
    """Two sources above each other: sorted by x alone, both would be everywhere."""
    rng = np.random.default_rng(0)
    blocks = np.asarray([[0.0, -5.0], [0.02, 5.0]]) + 0.3 * rng.normal(size=(400, 2, 2))
    found = relabelled(shuffled(blocks, seed=1), 2).reshape(blocks.shape)
    assert found[:, :, 1].std(0).max() < 0.4
    assert sorted(found[:, :, 1].mean(0).round()) == [-5, 5]


def test_a_single_block_stays_as_it_is():
    theta = np.random.default_rng(0).normal(size=(10, 3))
    assert relabelled(theta, 1) is theta


class TwoSources(IID, Gaussian):
    """y = (a + b, (a − b)²): the two can be told from the data, up to their order."""

    horizon = 2
    prior = parameters({("a", "b"): dist.Normal(0.0, 1.0)})
    designs = ranges({"gain": (0.5, 2.0)})
    outcomes = measured("sum", "distance")
    additive_noise = True
    exchangeable = 2

    def mean(self, theta, state, xi):
        del state
        return xi[0] * jnp.stack([theta[0] + theta[1], (theta[0] - theta[1]) ** 2])

    def scale(self, theta, state, xi):
        del theta, state, xi
        return [0.2, 0.2]


def test_two_sources_are_shown_with_their_own_mean_and_spread():
    """Against a grid over a ≤ b, which holds half of the posterior. 2,048 particles that are not
    quite independent: five standard errors, and 0.02 of the ordering's bias.
    """
    y = (0.4, 4.0)
    record = StepRecord(1, ProposedDesign(0, 1, (1.0,), ""), (1.0,), y, "", 0)
    marginals = Beliefs(TwoSources(), seed=0).posterior([record]).marginals
    a, b = np.meshgrid(*2 * [np.linspace(-4, 4, 801)], indexing="ij")
    residual = ((y[0] - a - b) / 0.2) ** 2 + ((y[1] - (a - b) ** 2) / 0.2) ** 2
    weight = np.where(a <= b, np.exp(-0.5 * (a**2 + b**2 + residual)), 0)
    weight /= weight.sum()
    for found, axis in zip(marginals, (a, b), strict=True):
        mean = float((weight * axis).sum())
        sd = float((weight * (axis - mean) ** 2).sum() ** 0.5)
        assert found.mean == pytest.approx(mean, abs=5 * sd / 2048**0.5 + 0.02)
        assert found.sd == pytest.approx(sd, rel=0.15)
    assert marginals[0].mean < -0.5 < 0.8 < marginals[1].mean
