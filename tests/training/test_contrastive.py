"""Policies trained on contrastive bounds: their losses are what they say, and reach an optimum that
is known.
"""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import optax
import pytest

from scorebed.policies.static import Static
from scorebed.tasks.oracles.linear_gaussian import LinearGaussian
from scorebed.training import contrastive as module
from scorebed.training.contrastive import mlmc_loss, nmc_loss, pce_loss
from scorebed.training.fit import fit, gradient_of, start

TASK = LinearGaussian(horizon=2)
LOSSES = {
    "pce": lambda rest: pce_loss(rest, TASK, batch=32, inner=15),
    "mlmc": lambda rest: mlmc_loss(rest, TASK, batch=32, base=4, cap=1),
}


@pytest.mark.parametrize("name", LOSSES)
def test_policies_reach_the_optimum(name):
    # The edge of the box is best at every step. Two restarts at once, as `fit` trains them.
    us = jnp.asarray([[[0.2], [-0.3]], [[0.4], [0.2]]])
    params, rest = eqx.partition(
        jax.vmap(lambda u: Static(u, TASK.designs))(us), eqx.is_inexact_array
    )
    optimiser = optax.adam(0.1)
    state, infos = jax.vmap(lambda p: start(p, optimiser))(params), []
    gradient = gradient_of(LOSSES[name](rest))
    state = fit(
        gradient,
        state,
        optimiser,
        steps=60,
        block=20,
        on_step=infos.append,
        key=jr.split(jr.key(1), 2),
    )
    eig = jax.vmap(lambda us: TASK.eig(TASK.designs.constrain(us)))
    assert (eig(us) < 0.5 * TASK.optimal_eig()).all()
    assert (eig(state.params.us) > 0.95 * TASK.optimal_eig()).all()
    # What is logged is minus the value of the bound; that of NMC with few inner samples lies half a
    # nat above the optimum.
    assert -2.2 < infos[-1].terms[name].mean() < -0.8


@pytest.mark.parametrize("probe", ["alone", "with θ"])
def test_contrastive_draws_are_independent_of_the_trajectories_and_of_each_other(probe):
    # A mean over trajectories: with draws that are shared it is one draw, with draws that repeat θ
    # it is one.
    def estimator(task, policy, theta, noise, *, inner, key):
        del task, policy, noise
        draw = jr.normal(key, (inner,))[0]
        return draw if probe == "alone" else draw * theta[0]

    policy = Static(jnp.ones((2, 1)), TASK.designs)
    params, rest = eqx.partition(policy, eqx.is_inexact_array)
    loss = module._mean_of(estimator, "probe", rest, TASK, batch=4096, inner=1)
    assert abs(jax.jit(loss)(params, jr.key(0))["probe"]) < 4.892 / math.sqrt(4096)


def test_pce_and_nmc_share_their_draws_and_differ_in_one_term():
    # One trajectory and one contrastive parameter, of likelihoods p and q: log 2p/(p + q) is a
    # function of log p/q.
    params, rest = eqx.partition(Static(jnp.ones((2, 1)), TASK.designs), eqx.is_inexact_array)
    lower = -jax.jit(pce_loss(rest, TASK, batch=1, inner=1))(params, jr.key(0))["pce"]
    upper = -jax.jit(nmc_loss(rest, TASK, batch=1, inner=1))(params, jr.key(0))["nmc"]
    assert upper != 0
    assert math.isclose(lower, math.log(2) - math.log1p(math.exp(-upper)), rel_tol=1e-4)
