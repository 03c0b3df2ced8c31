"""Gaussian samplers against closed forms."""

import math

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy import integrate, stats

from scorebed.errors import InvalidValueError
from scorebed.samplers import IsotropicGaussian, RandomScaleGaussian
from scorebed.tasks.spaces import Quantity, Real

LINE = Real((Quantity("x"),), scale=40.0)
PLANE = Real((Quantity("x"), Quantity("y")))


def test_isotropic_density_is_normal():
    sampler = IsotropicGaussian(5, LINE, scale=0.5)
    xis = 20 * np.random.default_rng(0).normal(size=(5, 1)).astype(np.float32)
    np.testing.assert_allclose(
        sampler.log_prob(jnp.asarray(xis)), stats.norm.logpdf(xis, scale=20.0).sum(), rtol=1e-5
    )


def test_random_scale_second_and_fourth_moment():
    """E u² = E σ² and E u² u'² = E σ⁴: independent scales per step, or a scale that is fixed, would
    miss the second by 28%.
    """
    low, high = 0.3, 1.2
    sampler = RandomScaleGaussian(2, LINE, low=low, high=high)
    us = (
        np.asarray(
            jax.jit(jax.vmap(lambda key: sampler.sample(key=key)))(jr.split(jr.key(1), 40_000))
        )[:, :, 0]
        / 40
    )
    for values, power in ((us[:, 0] ** 2, 2), (us[:, 0] ** 2 * us[:, 1] ** 2, 4)):
        truth = (high ** (power + 1) - low ** (power + 1)) / ((power + 1) * (high - low))
        assert (
            abs(values.mean() - truth)
            <= 4.892 * values.std() / math.sqrt(len(values))
            <= 0.12 * truth
        )


def random_scale_reference(us: np.ndarray, low: float, high: float) -> float:
    """log q by Simpson's rule on ten thousand points around the peak of the integrand."""
    n, s = us.size, (us**2).sum()
    peak = min(max(math.sqrt(s / n), low), high)
    sigma = np.linspace(
        max(low, peak * (1 - 12 / math.sqrt(2 * n))),
        min(high, peak * (1 + 12 / math.sqrt(2 * n))),
        10_001,
    )
    log_q = (
        -n * np.log(sigma)
        - 0.5 * s / sigma**2
        - 0.5 * n * math.log(2 * math.pi)
        - math.log(high - low)
    )
    return log_q.max() + math.log(integrate.simpson(np.exp(log_q - log_q.max()), x=sigma))


@pytest.mark.parametrize("horizon", [1, 30, 200])
def test_random_scale_density_against_a_fine_grid(horizon: int):
    """Also for designs much smaller than any the sampler draws, as a new policy makes them, and for
    much larger ones.
    """
    sampler = RandomScaleGaussian(horizon, PLANE)
    z = np.random.default_rng(0).normal(size=(horizon, 2))
    us = np.stack([size * z for size in (1e-3, 0.05, 0.5, 1.0, 3.0, 20.0)]).astype(np.float32)
    truth = np.array([random_scale_reference(u.astype(np.float64), 0.5, 2.0) for u in us])
    log_q = jax.jit(jax.vmap(sampler.log_prob))(jnp.asarray(us))
    np.testing.assert_allclose(log_q[:5], truth[:5], rtol=1e-6, atol=3e-4)
    np.testing.assert_allclose(log_q[5], truth[5], rtol=3e-3)


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (1.0, 1.0), (2.0, 1.0), (1.0, math.inf)])
def test_bad_scales_are_refused(low: float, high: float):
    with pytest.raises(InvalidValueError, match=r"expected 0 < low < high\. Fix"):
        RandomScaleGaussian(3, LINE, low=low, high=high)
    with pytest.raises(InvalidValueError, match="scale of Gaussian designs"):
        IsotropicGaussian(3, LINE, scale=-1.0)
