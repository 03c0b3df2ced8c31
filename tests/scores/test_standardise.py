"""Statistics of the inputs: by step where steps differ, shared where they can be exchanged."""

import functools

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from scorebed._jit import jit_once
from scorebed.rollout import pilot_runs
from scorebed.samplers.paper import paper_sampler
from scorebed.scores.standardise import Standardiser, stepwise_standardiser, with_parameters
from scorebed.tasks.library.pendulum import Pendulum
from scorebed.tasks.oracles.linear_gaussian import LinearGaussian


@functools.cache
def stepwise(task):
    return jit_once(lambda key: stepwise_standardiser(task, paper_sampler(task), key=key))(
        jr.key(0)
    )


def test_every_step_of_a_dynamical_task_is_of_order_one():
    """Statistics shared by all steps would leave the first ones of a pendulum that starts at rest
    with a tenth of the spread of the last.
    """
    task = Pendulum(horizon=20)
    standardise = stepwise(task)
    runs = jit_once(lambda key: pilot_runs(task, paper_sampler(task), key=key))(jr.key(1))
    for values in (standardise.y(runs.ys), standardise.xi(runs.xis)):
        values = np.asarray(values, np.float64)
        assert values.shape[1] == 20
        np.testing.assert_allclose(values.mean(0), 0, atol=0.25)
        np.testing.assert_allclose(values.std(0), 1, atol=0.15)
    shared = np.asarray(runs.ys).std((0, 1))
    assert (np.asarray(standardise.scale_y)[0] < 0.3 * shared).all()


def test_exchangeable_steps_share_theirs():
    standardise = stepwise(LinearGaussian())
    assert standardise.scale_y.shape == standardise.mean_y.shape == (1,)
    assert standardise.sizes == (1, 1)


def test_a_coordinate_that_never_varies_has_the_spread_of_all_steps():
    class Fixed(type(paper_sampler(Pendulum()))):
        def sample(self, *, key):
            return super().sample(key=key).at[0].set(0.5)

    task = Pendulum(horizon=3)
    plain = paper_sampler(task)
    sampler = Fixed(plain.components, plain.weights)
    found = jit_once(lambda key: stepwise_standardiser(task, sampler, key=key))(jr.key(0))
    assert found.scale_xi[0, 0] > 0.1
    assert np.isfinite(np.asarray(found.xi(jnp.ones((3, 1))))).all()


def test_parameters_are_appended_to_every_step():
    shape = jnp.zeros((4, 2))
    plain = Standardiser(shape, shape + 1, shape[0] + 1, shape, shape + 1)
    thetas = jax.random.normal(jr.key(0), (1000, 3)) * jnp.array([1.0, 2.0, 3.0])
    found = with_parameters(plain, thetas)
    assert found.sizes == (2, 5)
    assert found.mean_xi.shape == (4, 5)
    np.testing.assert_allclose(found.scale_xi[:, 2:], np.tile([1.0, 2.0, 3.0], (4, 1)), rtol=0.1)
