"""Gaussians at the modes of a posterior as a proposal: the posterior itself on linear models, tight
bounds on narrow ones.
"""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from scorebed.bounds.importance import importance_bounds
from scorebed.inference.blocks import canonical
from scorebed.inference.laplace import SEARCH, laplace_posterior
from scorebed.policies.random import RandomDesigns
from scorebed.rollout import simulate
from scorebed.samplers.paper import reference_sampler
from scorebed.tasks.library.location import LocationFinding
from scorebed.tasks.library.pendulum import Pendulum
from scorebed.tasks.oracles.linear_gaussian import LinearGaussian


def experiment(task, seed=0):
    return simulate(task, RandomDesigns(reference_sampler(task)[0]), key=jr.key(seed))


def test_on_a_linear_model_it_is_the_posterior():
    task = LinearGaussian(
        mean=(0.0, 0.0), covariance=((1.0, 0.0), (0.0, 1.0)), noise=0.7, horizon=4
    )
    run = experiment(task)
    mixture = jax.jit(lambda ys, xis: laplace_posterior(task, ys, xis))(
        run.ys, run.xis
    ).density.base.base
    posterior = task.posterior(run.ys, run.xis)
    covariance = mixture.factors @ jnp.swapaxes(mixture.factors, 1, 2)
    # Every start ends at the one mode, and the 32 share its weight.
    np.testing.assert_allclose(
        mixture.means, jnp.broadcast_to(posterior.mean, mixture.means.shape), atol=1e-3
    )
    np.testing.assert_allclose(
        covariance, jnp.broadcast_to(posterior.covariance, covariance.shape), rtol=1e-3, atol=1e-5
    )
    np.testing.assert_allclose(jnp.exp(mixture.log_weights), 1 / SEARCH[0], rtol=1e-2)


def test_modes_of_sources_count_once_in_any_order():
    # 32 starts find each order of the sources about 16 times. Together they weigh what the modes
    # weigh, and all are in order.
    task = LocationFinding(sources=2, horizon=12)
    run = experiment(task, 3)
    found = jax.jit(lambda ys, xis: laplace_posterior(task, ys, xis))(run.ys, run.xis)
    mixture = found.density.base.base
    np.testing.assert_allclose(jnp.exp(mixture.log_weights).sum(), 1, rtol=1e-5)
    np.testing.assert_array_equal(mixture.means, jax.vmap(lambda z: canonical(z, 2))(mixture.means))
    best = mixture.means[mixture.log_weights.argmax()]
    other = jnp.roll(best, 2)
    np.testing.assert_allclose(
        found.density.log_prob(best), found.density.log_prob(other), rtol=1e-5
    )
    assert int(found.histories) == SEARCH[0] * (2 * SEARCH[1] + 1)


@pytest.mark.slow
def test_bounds_meet_on_a_driven_system():
    # 64 draws: of the prior they would leave a gap of a nat and more.
    task = Pendulum(horizon=10)
    policy = RandomDesigns(reference_sampler(task)[0])
    found = importance_bounds(
        task, policy, outer=32, inner=64, propose=laplace_posterior, key=jr.key(0)
    )
    assert 0 <= found.upper - found.lower < 0.02
    assert found.ceiling > found.lower + 1
