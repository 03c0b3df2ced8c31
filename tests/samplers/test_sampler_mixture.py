"""Mixtures of samplers."""

import math

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from scorebed.errors import InvalidValueError
from scorebed.samplers import IsotropicGaussian, SamplerMixture
from scorebed.tasks.spaces import Quantity, Real

LINE = Real((Quantity("x"),))
NARROW, WIDE = IsotropicGaussian(4, LINE, scale=1e-3), IsotropicGaussian(4, LINE, scale=10.0)


def test_share_of_a_component_is_its_weight_for_whole_trajectories():
    """A share that is off by 4% is caught; so is a component drawn per step."""
    N = 10_000
    sampler = SamplerMixture((NARROW, WIDE), (1.0, 3.0))
    xis = np.asarray(jax.jit(jax.vmap(lambda key: sampler.sample(key=key)))(jr.split(jr.key(0), N)))
    small = np.abs(xis[:, :, 0]) < 0.005
    whole = small.all(1)
    assert abs(whole.mean() - 0.25) <= 4.892 * math.sqrt(0.25 * 0.75 / N)
    assert small[~whole].mean() < 0.01


def test_density_is_the_weighted_sum():
    """Near each component, and so far out that only the widest has a density above the smallest
    number.
    """
    parts, weights = (IsotropicGaussian(4, LINE), NARROW, WIDE), (0.5, 0.2, 0.3)
    sampler = SamplerMixture(parts, weights)
    xis = jnp.asarray(
        [
            [[0.5], [-0.3], [1.0], [0.0]],
            [[1e-3], [0.0], [2e-3], [0.0]],
            [[80.0], [70.0], [90.0], [80.0]],
        ]
    )
    both = jax.jit(
        jax.vmap(lambda xi: (sampler.log_prob(xi), jnp.stack([c.log_prob(xi) for c in parts])))
    )
    mixed, single = both(xis)
    np.testing.assert_allclose(
        mixed,
        np.logaddexp.reduce(np.log(weights) + np.asarray(single, np.float64), axis=1),
        rtol=1e-6,
    )


def test_weights_are_equal_unless_given():
    np.testing.assert_allclose(SamplerMixture((NARROW, WIDE)).weights, (0.5, 0.5))
    np.testing.assert_allclose(SamplerMixture((NARROW, WIDE), (1.0, 3.0)).weights, (0.25, 0.75))


@pytest.mark.parametrize("weights", [(1.0,), (1.0, 0.0), (1.0, -1.0), (1.0, math.nan)])
def test_bad_weights_are_refused(weights: tuple[float, ...]):
    with pytest.raises(InvalidValueError, match=r"expected 2 positive numbers\. Fix"):
        SamplerMixture((NARROW, WIDE), weights)


def test_components_must_agree():
    with pytest.raises(InvalidValueError, match="no components"):
        SamplerMixture(())
    with pytest.raises(InvalidValueError, match="different horizons or design spaces"):
        SamplerMixture((NARROW, IsotropicGaussian(5, LINE)))
    with pytest.raises(InvalidValueError, match="different horizons or design spaces"):
        SamplerMixture((NARROW, IsotropicGaussian(4, Real((Quantity("x"),), scale=2.0))))
