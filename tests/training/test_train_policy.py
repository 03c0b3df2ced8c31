"""Stage 2 with the exact score reaches the optimum that is known."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import optax
import pytest

from scorebed.errors import ScorebedError
from scorebed.policies.dad import DAD
from scorebed.policies.gru import GRUPolicy
from scorebed.policies.static import Static
from scorebed.rollout import simulate
from scorebed.scores.exact import ExactScore
from scorebed.tasks.oracles.linear_gaussian import LinearGaussian
from scorebed.training.policy import best_policy, faster_noise, train_policies

TASK = LinearGaussian()


def static(key):
    return Static.random(TASK.horizon, TASK.designs, key=key)


def dad(key):
    return DAD(TASK, hidden=(16,), encoding=4, key=key)


def test_only_the_noise_of_a_policy_takes_larger_steps():
    policy = GRUPolicy(
        TASK, encoder_hidden=(2,), encoding=2, state=2, layers=1, emitter_hidden=(2,), key=jr.key(0)
    )
    ones = jax.tree.map(jnp.ones_like, eqx.filter(policy, eqx.is_inexact_array))
    quicker, _ = faster_noise(20.0).update(ones, optax.EmptyState())
    assert bool((quicker.log_std == 20).all())
    others = eqx.tree_at(lambda p: p.log_std, quicker, ones.log_std)
    assert eqx.tree_equal(others, ones)


@pytest.mark.parametrize("make", [static, pytest.param(dad, marks=pytest.mark.slow)])
def test_policies_reach_the_optimum_from_the_exact_score(make):
    # The edge of the box is best at every step, with either sign: |ξ| > 0.986 of the bound gives
    # 99% of the EIG.
    policies = eqx.filter_vmap(make)(jr.split(jr.key(0), 2))
    trained = train_policies(
        TASK, ExactScore(TASK), policies, steps=200, batch=32, learning_rate=0.05, key=jr.key(1)
    )

    @eqx.filter_jit
    def eig(policies):
        """The information gain of a trajectory is known exactly; its mean over trajectories is the
        EIG.
        """

        def one(policy):
            runs = jax.vmap(lambda k: simulate(TASK, policy, key=k))(jr.split(jr.key(2), 512))
            return jax.vmap(TASK.information_gain)(runs.ys, runs.xis).mean()

        return eqx.filter_vmap(one)(policies)

    before, after = eig(policies), eig(trained.policies)
    assert (before < 0.95 * TASK.optimal_eig()).all()
    assert (after > 0.99 * TASK.optimal_eig()).all(), after


def test_a_false_claim_of_additive_noise_stops_the_training():
    class Loud(LinearGaussian):
        def scale(self, theta, state, xi):
            del theta, state
            return (jnp.exp(xi[0]),)

    policies = eqx.filter_vmap(static)(jr.split(jr.key(0), 2))
    with pytest.raises(ScorebedError, match="additive"):
        train_policies(Loud(), ExactScore(TASK), policies, steps=1, key=jr.key(1))


def test_policies_without_a_finite_bound_are_compared_in_silence():
    """NumPy warns of a maximum of nothing but NaN; the first policy with a number wins."""
    policies, seen = [static(jr.key(i)) for i in range(3)], []
    values = iter([math.nan, math.nan, 1.5])
    found = best_policy(
        TASK,
        policies,
        estimate=lambda _: next(values),
        on_policy=lambda *said: seen.append(said),
        key=jr.key(0),
    )
    assert found.number == 2
    assert seen == [(1, -math.inf), (2, -math.inf), (3, 1.5)]
