"""The recurrent policy: its density, and its size."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy.stats import norm

from scorebed.policies.gru import GRUPolicy
from scorebed.tasks.library.double_link import DoubleLink
from scorebed.tasks.library.gravimetry import Gravimetry
from scorebed.tasks.library.pendulum import Pendulum


def small(task):
    return lambda key: GRUPolicy(
        task, encoder_hidden=(6,), encoding=4, state=3, layers=2, emitter_hidden=(6,), key=key
    )


def remembered():
    return jnp.asarray(np.random.default_rng(5).uniform(-1, 1, size=(2, 3)))


def test_density_integrates_to_one_over_the_box(filled):
    policy = filled(small(Pendulum()))
    nodes, weights = np.polynomial.legendre.leggauss(400)
    log_prob = jax.jit(jax.vmap(lambda xi: policy.log_prob(xi, remembered())))
    assert weights @ np.exp(log_prob(nodes[:, None])) == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("task", [Gravimetry(), DoubleLink()], ids=["scaled", "box-2d"])
def test_density_is_that_of_the_noise_over_the_jacobian_of_the_design(filled, task):
    """log π(ξ(ε)) = log N(ε) − log |dξ/dε|, with the Jacobian by automatic differentiation."""
    policy = filled(small(task))
    memory = remembered()

    @jax.jit
    def evaluate(noise):
        jacobian = jax.jacobian(lambda e: policy.design(memory, e))(noise)
        return policy.log_prob(policy.design(memory, noise), memory), jnp.linalg.slogdet(jacobian)[
            1
        ]

    for noise in np.random.default_rng(1).normal(size=(5, task.designs.dim)):
        got, log_det = evaluate(noise)
        assert float(got) == pytest.approx(norm.logpdf(noise).sum() - float(log_det), rel=1e-8)


def test_the_score_of_its_own_samples_averages_to_zero(filled):
    """E ∇ log π = 0 in u and in every parameter: catches a density whose mean, scale or Jacobian is
    not the sampler's.

    In log σ and in u the terms have standard deviations of about √2 and 1/σ: N = 4,000 sees an
    error of a tenth of that."""
    policy = filled(small(Pendulum()))
    memory, space, n = remembered(), policy.space, 4000

    def density(u, policy):
        return policy.log_prob(space.constrain(u), memory) + space.log_jacobian(u).sum()

    @jax.jit
    def scores(noise):
        us = jax.vmap(lambda e: space.unconstrain(policy.design(memory, e)))(noise)
        by_u, by_policy = jax.vmap(jax.grad(density, argnums=(0, 1)), in_axes=(0, None))(us, policy)
        return by_u, by_policy.log_std, by_policy.emitter.layers[-1].bias

    for terms in scores(np.random.default_rng(0).normal(size=(n, 1))):
        terms = np.asarray(terms)
        assert abs(terms.mean()) <= 4.892 * terms.std() / np.sqrt(n)
        assert terms.std() > 0.5


def test_the_state_and_the_logarithm_of_the_scale_start_at_zero():
    @jax.jit
    def start(key):
        policy = GRUPolicy(Pendulum(), key=key)
        return policy.init(), policy.log_std

    state, log_std = start(jr.key(0))
    assert state.shape == (2, 64)
    assert not np.asarray(state).any()
    assert not np.asarray(log_std).any()


def test_parameter_count_is_the_papers():
    policy = eqx.filter_eval_shape(lambda key: GRUPolicy(Pendulum(), key=key), jr.key(0))
    encoder = 4 * 256 + 257 * 256 + 257 * 64
    cells = 2 * (3 * 64 * (64 + 64) + 4 * 64)
    emitter = 65 * 256 + 257 * 256 + 257
    assert (
        sum(leaf.size for leaf in jax.tree.leaves(policy))
        == encoder + cells + emitter + 1
        == 215_618
    )
