"""Static designs from several starts: evenly spread ones climb to the best pair on a line."""

import functools

import jax.random as jr
import numpy as np

from scorebed.estimators.pce import pce
from scorebed.policies import POLICIES
from scorebed.samplers.spaced import spaced_designs
from scorebed.tasks.library.location import LocationFinding
from scorebed.tasks.library.pendulum import Pendulum
from scorebed.training.policy import static_starts, train_policies

LINE = LocationFinding(dim=1, sources=1, horizon=2)


def information(xis):
    """EIG of two designs, by sums over θ and both outcomes."""
    theta, y = np.linspace(-5, 5, 401), np.arange(-4.5, 11.5, 0.25)
    weights = np.exp(-0.5 * theta**2)
    weights /= weights.sum()

    def density(xi):
        mean = np.log(0.1 + 1 / (1e-4 + (theta - xi) ** 2))
        z = (y - mean[:, None]) / 0.5
        return np.exp(-0.5 * z**2) / (0.5 * np.sqrt(2 * np.pi))

    joint = (weights[:, None] * density(xis[0])).T @ density(xis[1])
    entropy = -(joint * np.log(joint + 1e-300)).sum() * 0.25**2
    return entropy - np.log(2 * np.pi * np.e * 0.25)


def test_the_first_start_is_evenly_spread():
    batch = static_starts(POLICIES["static"], LINE, 2, key=jr.key(0))
    np.testing.assert_allclose(batch.us[0], spaced_designs(LINE), rtol=1e-6)
    assert np.abs(np.asarray(batch.us[1] - batch.us[0])).max() > 0.01


def test_within_limits_it_starts_where_the_gradient_is_alive():
    task = Pendulum(horizon=3)
    batch = static_starts(POLICIES["static"], task, 1, key=jr.key(0))
    xis = np.asarray(task.designs.normalise(task.designs.constrain(batch.us[0])))
    assert np.abs(xis).max() < 0.95


def test_it_finds_the_best_pair_of_designs():
    """±0.4 have 2.282 nats."""
    starts = static_starts(POLICIES["static"], LINE, 1, key=jr.key(0))
    trained = train_policies(
        LINE,
        functools.partial(pce, inner=31),
        starts,
        steps=150,
        batch=256,
        learning_rate=0.03,
        key=jr.key(1),
    )
    xis = np.asarray(LINE.designs.constrain(trained.policies.us[0]))[:, 0]
    assert information(np.asarray([-0.4, 0.4])) > 2.27
    assert information(xis) > 2.27
