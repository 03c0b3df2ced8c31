"""Static designs."""

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from scorebed.errors import InvalidValueError
from scorebed.policies.static import Static
from scorebed.tasks.library.double_link import DoubleLink
from scorebed.tasks.library.gravimetry import Gravimetry


@pytest.mark.parametrize("task", [Gravimetry(), DoubleLink()], ids=["scaled", "box"])
def test_given_designs_are_the_ones_carried_out_whatever_the_data(task):
    rng = np.random.default_rng(0)
    xis = jnp.asarray(rng.uniform(-1.9, 1.9, size=(3, task.designs.dim)))
    policy, memory = (
        Static.from_designs(xis, task.designs),
        Static.from_designs(xis, task.designs).init(),
    )
    for xi in (*xis, xis[-1]):  # past its horizon the last design is repeated
        np.testing.assert_allclose(policy.design(memory, jnp.zeros(0)), xi, rtol=1e-9)
        memory = policy.update(memory, xi, jnp.asarray(rng.normal(size=task.outcome_dim)))


def test_random_designs_have_the_scale_in_unconstrained_coordinates():
    """Catches a scale of 0.22 for 0.2 with N = 4,000 (standard error of the variance:
    0.04/√2000).
    """
    us = np.asarray(Static.random(4000, Gravimetry().designs, 0.2, key=jr.key(0)).us)
    assert abs(us.mean()) <= 4.892 * 0.2 / np.sqrt(4000)
    assert abs(us.var() - 0.04) <= 4.892 * 0.04 / np.sqrt(2000)


def test_a_longer_experiment_is_refused_before_it_starts():
    policy = Static(jnp.zeros((3, 1)), Gravimetry().designs)
    assert policy.sample_noise(3, key=jr.key(0)).shape == (3, 0)
    with pytest.raises(InvalidValueError, match=r"4 steps, expected at most 3\. Fix"):
        policy.sample_noise(4, key=jr.key(0))


def test_designs_of_another_dimension_are_refused():
    with pytest.raises(InvalidValueError, match="one row of 1 numbers"):
        Static(jnp.zeros((3, 2)), Gravimetry().designs)
