"""Modes of a posterior: the closed form where there is one, descent everywhere, and their
derivative.
"""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import numpyro.distributions as dist
import pytest

from scorebed.errors import InvalidValueError
from scorebed.inference.modes import (
    DAMPING,
    Data,
    descend,
    gaussian_task,
    log_mass,
    point,
    starts,
    value,
)
from scorebed.policies.informative_designs import anchors
from scorebed.tasks.base import IID
from scorebed.tasks.declare import measured, parameters, ranges
from scorebed.tasks.library.location import LocationFinding
from scorebed.tasks.library.pendulum import Pendulum
from scorebed.tasks.oracles.linear_gaussian import LinearGaussian

LINEAR = LinearGaussian(mean=(0.5, -1.0), covariance=((1.0, 0.3), (0.3, 0.5)), noise=0.7, horizon=4)


class Skewed(IID):
    horizon = 2
    prior = parameters({"rate": dist.LogNormal(0.0, 1.0)})
    designs = ranges({"time": (0.0, 1.0)})
    outcomes = measured("wait")
    additive_noise = False

    def outcome(self, theta, state, xi, noise):
        del state
        return jnp.exp(theta * xi + noise)

    def log_prob(self, y, theta, state, xi):
        del state
        return dist.LogNormal(theta[0] * xi[0], 1.0).log_prob(y[0])


@pytest.fixture(scope="module", autouse=True)
def double_precision():
    with jax.enable_x64(True):
        yield


def history(task, taken):
    rng = np.random.default_rng(3)
    ys = jnp.asarray(rng.normal(size=(task.horizon, task.outcome_dim)))
    xis = task.designs.constrain(jnp.asarray(rng.normal(size=(task.horizon, task.designs.dim))))
    return Data(ys, task.states_before(ys), xis, jnp.arange(task.horizon) < taken)


def found(task, data, count, iterations):
    first = jnp.asarray(starts(count, task.prior.dim), data.ys.dtype)
    damping = jnp.full(count, DAMPING)
    return jax.jit(lambda: descend(task, first, damping, data, iterations=iterations)[0])()


@pytest.mark.parametrize("taken", [pytest.param(0, marks=pytest.mark.slow), 3])
def test_the_mode_and_curvature_of_a_linear_model_are_its_posterior(taken):
    data = history(LINEAR, taken)
    root = np.asarray(LINEAR.prior.cholesky)
    x, y = np.asarray(data.xis)[:taken], np.asarray(data.ys)[:taken, 0]
    precision = np.linalg.inv(root @ root.T) + x.T @ x / LINEAR.noise**2
    mean = np.asarray(LINEAR.prior.mean)
    mean = mean + np.linalg.solve(precision, x.T @ (y - x @ mean) / LINEAR.noise**2)
    for z in found(LINEAR, data, 3, 12):
        np.testing.assert_allclose(LINEAR.prior.from_latent(z), mean, rtol=1e-6)
        np.testing.assert_allclose(
            point(LINEAR, z, data).curvature, root.T @ precision @ root, rtol=1e-6, atol=1e-12
        )


def test_the_mass_of_the_one_mode_is_the_evidence():
    # ∫ exp(−½|r|² − ½|z|²) dz over (2π)^(k/2) is what is left of p(y) without the constants of the
    # noise.
    data = history(LINEAR, 4)
    mass = log_mass(point(LINEAR, found(LINEAR, data, 1, 12)[0], data))
    root, x, y = np.asarray(LINEAR.prior.cholesky), np.asarray(data.xis), np.asarray(data.ys)[:, 0]
    covariance = x @ root @ root.T @ x.T + LINEAR.noise**2 * np.eye(4)
    error = y - x @ np.asarray(LINEAR.prior.mean)
    log_p = (
        -0.5 * error @ np.linalg.solve(covariance, error) - 0.5 * np.linalg.slogdet(covariance)[1]
    )
    np.testing.assert_allclose(mass, log_p + 4 * np.log(LINEAR.noise), rtol=1e-6)


@pytest.mark.parametrize(
    "task", [LocationFinding(horizon=5), Pendulum(horizon=5)], ids=["iid", "markov"]
)
def test_no_iteration_goes_uphill_and_the_end_is_a_mode(task):
    data = history(task, 4)
    level_and_slope = jax.jit(jax.vmap(jax.value_and_grad(lambda z: value(task, z, data))))
    early, late = found(task, data, 4, 2), found(task, data, 4, 60)
    (first, _), (last, slopes) = level_and_slope(early), level_and_slope(late)
    assert (last <= first + 1e-12).all()
    best = int(last.argmin())
    np.testing.assert_allclose(slopes[best], 0, atol=1e-5)
    own = jax.jit(lambda z: point(task, z, data))(early[0])
    np.testing.assert_allclose(own.gradient, level_and_slope(early)[1][0], rtol=1e-8, atol=1e-10)


def test_starts_are_many_and_fair():
    many = starts(512, 3)
    assert len(np.unique(many, axis=0)) == 512
    np.testing.assert_allclose(many.mean(0), 0, atol=0.02)
    np.testing.assert_allclose(np.cov(many.T), np.eye(3), atol=0.05)
    np.testing.assert_array_equal(starts(1, 2), np.zeros((1, 2)))


def test_a_model_that_is_not_gaussian_is_refused():
    with pytest.raises(InvalidValueError, match="Gaussian outcomes"):
        gaussian_task(Skewed(), "a test")


@pytest.mark.slow
def test_the_most_telling_designs_of_location_finding_are_the_sources():
    maps, shifts = jax.jit(lambda key: anchors(LocationFinding(), 4, key=key))(jr.key(0))
    whole = np.concatenate([maps, shifts[..., None]], axis=-1)
    for source in range(2):
        wanted = np.zeros((2, 5))
        wanted[0, 2 * source] = wanted[1, 2 * source + 1] = 1
        assert np.abs(whole - wanted).max((1, 2)).min() < 0.02
