"""AR(1) designs: moments, and the density against independent references."""

import math

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy import integrate, stats

from scorebed.errors import InvalidValueError
from scorebed.samplers import AR1
from scorebed.tasks.spaces import Quantity, Real


def space(dim: int) -> Real:
    return Real(tuple(Quantity(f"x{i + 1}") for i in range(dim)))


def path(
    rng: np.random.Generator, shape: tuple[int, int], sigma: float, delta: float
) -> np.ndarray:
    """A draw with known scale and 1 − ρ, step by step."""
    us = np.zeros(shape)
    us[0] = rng.normal(size=shape[1])
    for t in range(1, shape[0]):
        us[t] = (
            us[t - 1]
            - delta * us[t - 1]
            + math.sqrt(delta * (2 - delta)) * rng.normal(size=shape[1])
        )
    return sigma * us


def reference(us: np.ndarray) -> float:
    """log q by the product of conditional normals and Simpson's rule on a fine grid in (log σ, log
    δ), cut off where the paper's prior on δ = 1 − ρ has 3e-8 of its mass left. Double precision.
    """
    T, d = us.shape
    log_delta, log_sigma = (
        np.linspace(math.log(1e-8), math.log(0.3), 1501),
        np.linspace(math.log(0.2), math.log(5.0), 301),
    )
    delta, sigma = np.exp(log_delta), np.exp(log_sigma)
    variance = delta * (2 - delta)
    innovations = us[1:] - us[:-1] + delta[:, None, None] * us[:-1]
    quadratic = (us[0] ** 2).sum() + (innovations**2).sum((1, 2)) / variance
    log_q = (
        -0.5 * quadratic[:, None] / sigma**2
        - 0.5 * (T - 1) * d * np.log(variance)[:, None]
        - T * d * (log_sigma + 0.5 * math.log(2 * math.pi))
        + (log_delta[:, None] + log_sigma)
    )
    peak = log_q.max()
    total = integrate.simpson(integrate.simpson(np.exp(log_q - peak), x=log_sigma), x=log_delta)
    return peak + math.log(total / (0.3 - 1e-8) / (5.0 - 0.2))


CASES = {
    (30, 2): {
        "typical": (1.3, 0.12),
        "small scale": (0.25, 0.05),
        "hardly correlated": (1.0, 0.9),
        "a new policy's designs": (0.02, 0.1),
        "very smooth": (1.0, 1e-5),
    },
    (30, 3): {
        "typical": (3.1, 0.2),
        "smooth": (1.0, 1e-3),
        "the resolution of single precision": (2.0, 1e-7),
    },
    (100, 3): {"long": (2.0, 0.15)},
    (2, 1): {"two steps": (1.0, 0.1)},
    (1, 2): {"one step": (1.0, 0.1)},
}


@pytest.mark.parametrize("shape", CASES)
@pytest.mark.parametrize(("x64", "tolerance"), [(False, 3e-4), (True, 1e-5)])
def test_density_against_a_fine_grid(shape: tuple[int, int], x64: bool, tolerance: float):
    us = np.stack(
        [path(np.random.default_rng(7), shape, *case) for case in CASES[shape].values()]
    ).astype(np.float32)
    truth = [reference(u.astype(np.float64)) for u in us]
    with jax.enable_x64(x64):
        log_prob = jax.jit(jax.vmap(AR1(shape[0], space(shape[1])).log_prob))
        log_q = log_prob(jnp.asarray(us, jnp.float64 if x64 else jnp.float32))
        for value, expected, case in zip(np.asarray(log_q), truth, CASES[shape], strict=True):
            assert abs(value - expected) <= tolerance, f"{case}: {value} is not {expected}"


def test_density_of_a_narrow_range_is_the_multivariate_normal():
    """With σ and ρ all but fixed, scipy's density of N(0, σ² K_ρ) is a reference that shares no
    formula with ours.
    """
    T, sigma, rho, width = 6, 1.4, 0.8, 1e-4
    us = path(np.random.default_rng(2), (T, 2), 1.0, 0.3)
    covariance = sigma**2 * rho ** np.abs(np.subtract.outer(np.arange(T), np.arange(T)))
    truth = stats.multivariate_normal.logpdf(us.T, cov=covariance).sum()
    with jax.enable_x64(True):
        sampler = AR1(
            T,
            space(2),
            low=sigma - width,
            high=sigma + width,
            rho_low=rho - width,
            rho_high=rho + width,
        )
        np.testing.assert_allclose(jax.jit(sampler.log_prob)(jnp.asarray(us)), truth, atol=1e-5)


def test_covariance_is_that_of_the_random_scale_and_correlation():
    """E u_s u_t = E σ² E ρ^{|s−t|}, none between coordinates. ρ drawn from U(0.65, 1) would miss
    lag 4 by 7%, a process that does not start in its stationary law the variance.
    """
    N, T = 200_000, 5
    sampler = AR1(T, space(2))
    us = np.asarray(jax.jit(jax.vmap(lambda key: sampler.sample(key=key)))(jr.split(jr.key(3), N)))
    variance = (5.0**3 - 0.2**3) / (3 * (5.0 - 0.2))
    for s in range(T):
        for t in range(s, T):
            correlation = (1 - 0.7 ** (t - s + 1)) / ((t - s + 1) * 0.3)
            products = us[:, s, 0] * us[:, t, 0]
            sem = products.std() / math.sqrt(N)
            assert abs(products.mean() - variance * correlation) <= 4.892 * sem <= 0.03 * variance
        products = us[:, s, 0] * us[:, 0, 1]
        assert abs(products.mean()) <= 4.892 * products.std() / math.sqrt(N)


def test_steps_stay_of_the_right_size_as_the_correlation_goes_to_one():
    """With 1 − ρ within 0.1% of δ the steps have variance 2σ²δ. Single precision knows ρ² only to
    6e-8: formed from it, 1 − ρ² would be wrong by up to 30% at δ = 1e-7.
    """
    delta = 1e-7
    sampler = AR1(
        3, space(2), low=1.0, high=1.001, rho_low=1 - 1.001 * delta, rho_high=1 - 0.999 * delta
    )
    us = jax.jit(jax.vmap(lambda key: sampler.sample(key=key)))(jr.split(jr.key(4), 1200))
    ratios = (np.diff(np.asarray(us, np.float64), axis=1) ** 2).ravel() / (2 * 1.001 * delta)
    assert abs(ratios.mean() - 1) <= 4.892 * ratios.std() / math.sqrt(ratios.size) <= 0.15


def test_score_is_accurate_in_single_precision_and_finite_for_equal_designs():
    """From rough to nearly constant designs, and where all are equal and the true density
    diverges.
    """
    us = np.stack(
        [path(np.random.default_rng(1), (30, 2), 1.0, delta) for delta in (0.3, 1e-2, 1e-4)]
    ).astype(np.float32)
    us = np.concatenate([us, np.ones((1, 30, 2), np.float32), np.zeros((1, 30, 2), np.float32)])
    sampler = AR1(30, space(2))
    single = np.asarray(jax.jit(jax.vmap(jax.grad(sampler.log_prob)))(jnp.asarray(us)))
    with jax.enable_x64(True):
        double = np.asarray(
            jax.jit(jax.vmap(jax.grad(sampler.log_prob)))(jnp.asarray(us, jnp.float64))
        )
    assert np.isfinite(single).all()
    errors, sizes = np.abs(single - double).max((1, 2)), np.abs(double).max((1, 2))
    assert (errors <= 1e-4 * sizes + 1e-6).all()


@pytest.mark.parametrize(("rho_low", "rho_high"), [(-0.1, 1.0), (0.9, 0.8), (0.5, 1.1), (1.0, 1.0)])
def test_bad_correlations_are_refused(rho_low: float, rho_high: float):
    with pytest.raises(InvalidValueError, match=r"range of a correlation, got .*Fix"):
        AR1(3, space(1), rho_low=rho_low, rho_high=rho_high)
