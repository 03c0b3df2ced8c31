"""Uniform and switching designs: moments, and densities against enumeration."""

import itertools
import math

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy import integrate, stats

from scorebed.errors import InvalidValueError
from scorebed.samplers import Switching, UniformBox
from scorebed.tasks.spaces import Box, Quantity

SQUARE = Box((Quantity("x"), Quantity("y")), (-1.0, 2.0), (1.0, 5.0))


def test_uniform_density_is_one_over_the_volume_and_flat():
    sampler = UniformBox(4, SQUARE)
    xis = jnp.asarray([[-0.9, 2.1], [0.0, 3.0], [0.99, 4.9], [0.3, 3.3]])
    log_q, gradient = jax.jit(jax.value_and_grad(sampler.log_prob))(xis)
    np.testing.assert_allclose(log_q, -4 * math.log(2 * 3), rtol=1e-6)
    np.testing.assert_array_equal(gradient, jnp.zeros((4, 2)))


def test_uniform_draws_are_uniform():
    """A Kolmogorov–Smirnov distance of 1.5% would be seen."""
    xis = np.asarray(
        jax.jit(jax.vmap(lambda key: UniformBox(2, SQUARE).sample(key=key)))(
            jr.split(jr.key(1), 20_000)
        )
    )
    for i, (low, width) in enumerate(((-1.0, 2.0), (2.0, 3.0))):
        assert stats.kstest(xis[:, 1, i], "uniform", args=(low, width)).pvalue > 1e-6


def switching_reference(
    us: np.ndarray, low: float, high: float, level: float, jitter: float
) -> float:
    """q(u), coordinate by coordinate, by summing over all sign sequences and adaptive quadrature
    over the rate.
    """
    T = us.shape[0]

    def given_rate(rate: float, u: np.ndarray) -> float:
        p, total = 1 - math.exp(-rate), 0.0
        for signs in itertools.product((-1, 1), repeat=T):
            flips = sum(a != b for a, b in itertools.pairwise(signs))
            weight = 0.5 * p**flips * (1 - p) ** (T - 1 - flips)
            total += weight * stats.norm.pdf(u, level * np.array(signs), jitter).prod()
        return total

    def of_coordinate(u: np.ndarray) -> float:
        scale = given_rate(0.5 * (low + high), u)
        mean, _ = integrate.quad(lambda rate: given_rate(rate, u) / scale, low, high, epsrel=1e-9)
        return math.log(mean / (high - low) * scale)

    return sum(of_coordinate(u) for u in us.T)


@pytest.mark.parametrize(
    ("low", "high", "level", "jitter"), [(0.02, 0.1, 3.0, 1.5), (0.05, 2.5, 1.0, 0.7)]
)
def test_switching_density_against_all_sign_sequences(
    low: float, high: float, level: float, jitter: float
):
    """With one λ for both coordinates the second case would be off by far more than the
    tolerance.
    """
    sampler = Switching(4, SQUARE, rate_low=low, rate_high=high, level=level, jitter=jitter)
    us = np.random.default_rng(2).normal(size=(2, 4, 2))
    us[0] += level * np.array([[1, -1], [1, 1], [-1, 1], [-1, 1]])
    us[1, 2, 0] = 0.0
    truth = [switching_reference(u, low, high, level, jitter) for u in us]
    with jax.enable_x64(True):
        double = jax.jit(jax.vmap(sampler.log_prob_unconstrained))(jnp.asarray(us))
        np.testing.assert_allclose(double, truth, atol=1e-8)


def test_switching_density_and_score_over_fifty_steps():
    """Single against double precision and the score against finite differences: on a typical
    sequence, on one that switches at every step, where λ is pressed to its limit, in the middle of
    the box, and far outside of what is drawn.
    """
    alternating = np.tile(np.array([[3.0, -3.0], [-3.0, 3.0]]), (25, 1))
    us = np.stack(
        [
            3.0 + np.random.default_rng(3).normal(size=(50, 2)),
            alternating,
            np.zeros((50, 2)),
            4 * alternating,
        ]
    )
    us[0, 20] = us[1, 20] = 0.0  # where the likelier sign changes
    us = us.astype(np.float32)
    sampler = Switching(50, SQUARE, level=3.0, jitter=1.0)
    single = jax.jit(jax.vmap(sampler.log_prob_unconstrained))(jnp.asarray(us))
    with jax.enable_x64(True):
        density = jax.jit(jax.vmap(jax.value_and_grad(sampler.log_prob_unconstrained)))
        double, score = (np.asarray(a) for a in density(jnp.asarray(us, jnp.float64)))
        shift = np.zeros((50, 2))
        shift[20, 0] = 1e-6
        above, below = (np.asarray(density(jnp.asarray(us + sign * shift))[0]) for sign in (1, -1))
    np.testing.assert_allclose(single, double, atol=3e-4, rtol=1e-7)
    np.testing.assert_allclose(score[:, 20, 0], (above - below) / 2e-6, rtol=1e-4, atol=1e-5)
    assert abs(score[0, 20, 0]) > 1


LOW, HIGH = 0.01, 3.0


@pytest.fixture(scope="module")
def switching() -> np.ndarray:
    """u with rates so different that it shows whether the coordinates share them."""
    sampler = Switching(3, SQUARE, rate_low=LOW, rate_high=HIGH)
    sample = jax.jit(jax.vmap(lambda key: sampler.sample_unconstrained(key=key)))
    return np.asarray(sample(jr.split(jr.key(5), 40_000)))


def mean_persistence(power: int) -> float:
    """E[c^power] with c = 1 − 2 P(flip) = 2e^{−λ} − 1, the correlation of the signs of two steps in
    a row.
    """
    rates = np.linspace(LOW, HIGH, 2001)
    return integrate.simpson((2 * np.exp(-rates) - 1) ** power, x=rates) / (HIGH - LOW)


def assert_mean(values: np.ndarray, truth: float, *, within: float) -> None:
    assert abs(values.mean() - truth) <= 4.892 * values.std() / math.sqrt(len(values)) <= within


def test_switching_moments(switching: np.ndarray):
    """E u_t = 0, E u_t² = jitter² + u_B², E u_s u_t = u_B² E[c^{|s−t|}]. A start that is not fair
    moves the first, a standard jitter the second; a flip probability of 1 − e^{−λ/2} in place of
    1 − e^{−λ} would add 10 to the last, for two steps in a row.
    """
    for t in range(3):
        assert_mean(switching[:, t, 0], 0.0, within=0.2)
        truth = 1.5**2 + 25.0 if t == 0 else 25 * mean_persistence(t)
        assert_mean(switching[:, 0, 1] * switching[:, t, 1], truth, within=0.9)


def test_coordinates_switch_independently_each_at_its_own_rate(switching: np.ndarray):
    """The product of all u of two steps and coordinates is u_B⁴ E[c]² on average, 0.14 u_B⁴; one
    rate for both gives u_B⁴ E[c²], 0.40 u_B⁴, common signs 1.2 u_B⁴.
    """
    assert_mean(switching[:, :2].prod((1, 2)), 625 * mean_persistence(1) ** 2, within=25.0)
    assert_mean(switching[:, 0].prod(1), 0.0, within=0.9)


@pytest.mark.parametrize(
    "options",
    [{"rate_low": 0.0}, {"rate_low": 0.2}, {"level": 0.0}, {"level": math.inf}, {"jitter": 0.0}],
)
def test_bad_settings_are_refused(options: dict[str, float]):
    with pytest.raises(InvalidValueError, match="Fix: leave"):
        Switching(3, SQUARE, **options)
