"""Exchangeable blocks of θ: their canonical order, and the density of one of many."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import numpyro.distributions as dist
import pytest

from scorebed.bounds import tight_bounds
from scorebed.bounds.importance import importance_bounds, usual_proposal
from scorebed.bounds.smc import usual_start
from scorebed.errors import InvalidValueError
from scorebed.inference.blocks import block_density, canonical, exchangeable_blocks
from scorebed.inference.gaussian_mixture import standard_normal_log_prob
from scorebed.policies.random import RandomDesigns
from scorebed.rollout import simulate
from scorebed.samplers.paper import reference_sampler
from scorebed.tasks.base import IID, Gaussian
from scorebed.tasks.conditioned import condition_on
from scorebed.tasks.continued import continued
from scorebed.tasks.library.gravimetry import Gravimetry
from scorebed.tasks.library.location import LocationFinding
from scorebed.tasks.library.pendulum import Pendulum
from scorebed.tasks.priors import Independent, Marginal
from scorebed.tasks.sample_prior import LatentMixture, fit_mixture
from scorebed.tasks.spaces import Quantity, Real


class Peaks(IID, Gaussian):
    """Identical peaks on a line, as a user would write them: `exchangeable` counts them."""

    horizon: int = eqx.field(static=True, default=4)
    peaks: int = eqx.field(static=True, default=2)
    designs: Real = eqx.field(static=True, default=Real((Quantity("position"),)))
    outcomes: tuple = eqx.field(static=True, default=(Quantity("height"),))
    additive_noise: bool = eqx.field(static=True, default=True)

    @property
    def exchangeable(self):
        return self.peaks

    @property
    def prior(self):
        names = tuple(Quantity(f"peak {i + 1}") for i in range(self.peaks))
        return Independent((Marginal(names, dist.Normal(0.5, 1.5)),))

    def mean(self, theta, state, xi):
        del state
        return sum(1 / (1 + (xi[0] - theta[i]) ** 2) for i in range(self.peaks))[None]

    def scale(self, theta, state, xi):
        del theta, state, xi
        return (0.05,)


def designs(task):
    return RandomDesigns(reference_sampler(task)[0])


def history(task):
    run = simulate(task, designs(task), key=jr.key(0))
    return run.ys, run.xis


def test_canonical_order_is_that_of_first_coordinates():
    z = jnp.asarray([3.0, 1.0, -1.0, 9.0, 0.5, 0.0])
    np.testing.assert_array_equal(canonical(z, 3), [-1.0, 9.0, 0.5, 0.0, 3.0, 1.0])
    np.testing.assert_array_equal(canonical(z, 1), z)


def test_the_blocks_of_built_in_tasks():
    assert LocationFinding(dim=3, sources=10).exchangeable == 10
    assert [task().exchangeable for task in (Pendulum, Gravimetry)] == [1, 1]
    assert [task().narrow_posterior for task in (LocationFinding, Pendulum, Gravimetry)] == [
        True,
        False,
        False,
    ]
    assert LocationFinding(sources=1).narrow_posterior  # one source, too, can be approached


def test_the_rest_of_an_experiment_tells_blocks_apart():
    # Its prior is a posterior, which a latent map describes coordinate by coordinate.
    task = LocationFinding(horizon=3)
    rest = continued(task, LatentMixture(task.prior, fit_mixture(np.eye(4))), [[0.0, 0.0]], [[1.0]])
    assert rest.exchangeable == 1
    assert condition_on(task, (0,)).exchangeable == 1
    assert rest.exchangeable_steps


def test_two_identical_peaks_of_a_user_get_tight_bounds_with_both_orders():
    # Each order has half of the posterior: a proposal with one of them alone would give the upper
    # bound log 2 too much on average, where the true parameters are in the other order.
    task = Peaks()
    density = jax.jit(lambda ys, xis: usual_proposal(task, ys, xis, key=jr.key(1)).density)(
        *history(task)
    )
    z = jr.normal(jr.key(2), (64, 2))
    log_prob = jax.jit(jax.vmap(density.log_prob))
    np.testing.assert_allclose(log_prob(z), log_prob(z[:, ::-1]), rtol=1e-4)
    found = tight_bounds(task, designs(task), outer=32, inner=512, key=jr.key(3))
    assert found.upper - found.lower < 0.2
    assert found.saturated < 0.05
    same = importance_bounds(task, designs(task), outer=32, inner=512, key=jr.key(3))
    assert (same.lower, same.upper) == (found.lower, found.upper)


def test_many_blocks_of_a_user_start_from_the_prior_of_each():
    task = Peaks(peaks=5)
    ys, xis = history(task)
    start = usual_start(task, ys, xis, key=jr.key(0))
    assert (start.parts, int(start.histories)) == (5, 0)
    z = jr.normal(jr.key(1), (16, 1))
    np.testing.assert_allclose(
        jax.vmap(start.density.log_prob)(z), jax.vmap(standard_normal_log_prob)(z), atol=1e-5
    )
    assert np.isfinite(start.density.sample(key=jr.key(2))).all()


def test_sources_start_near_the_sensors():
    # One sensor reads the intensity of a source a tenth away, so g is high at that distance.
    task = LocationFinding(sources=5, horizon=2)
    xis = jnp.asarray([[2.0, 2.0], [-2.0, 0.0]])
    near = jnp.log(task.background + task.strength / 0.1**2)
    g = block_density(task, jnp.stack([near, jnp.log(task.background)])[:, None], xis)
    np.testing.assert_allclose(g.scales, [1.0, 0.1 / np.sqrt(2), 1.0], rtol=1e-5)
    np.testing.assert_allclose(g.weights, [0.7, 0.15, 0.15], rtol=1e-6)
    assert g.log_prob(xis[0] + 0.07) > standard_normal_log_prob(xis[0] + 0.07) + 3


def test_parameters_that_do_not_divide_into_blocks_are_refused():
    task = type("Uneven", (LocationFinding,), {"exchangeable": 3})(sources=2)
    with pytest.raises(InvalidValueError, match="3 blocks of 4 parameters"):
        exchangeable_blocks(task)
