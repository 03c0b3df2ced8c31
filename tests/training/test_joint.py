"""A score and its policy in one loop: the gradient of each is that of its own loss, with the other
held fixed.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest

from scorebed.keys import named
from scorebed.policies.static import Static
from scorebed.rollout import simulate
from scorebed.samplers.gaussian import IsotropicGaussian
from scorebed.scores.base import Score, ScoreValue
from scorebed.tasks.oracles.linear_gaussian import LinearGaussian
from scorebed.training.clipping import clip_per_trajectory
from scorebed.training.fit import fit_batch, gradient_of
from scorebed.training.joint import Pair, joint_gradient, joint_optimiser, pairs
from scorebed.training.policy import policy_gradient, policy_loss
from scorebed.training.score import Weights, matching_terms, score_loss

TASK = LinearGaussian()
SAMPLER = IsotropicGaussian(TASK.horizon, TASK.designs)
WEIGHTS = Weights(jnp.ones(1), jnp.ones(1), 1.0)


class Scaled(Score):
    """The exact score times a number that is learned: 1 is right."""

    size: jax.Array

    def __call__(self, ys, xis):
        return ScoreValue(*jax.tree.map(lambda s: self.size * s, tuple(TASK.score(ys, xis))))

    @property
    def nle(self):
        return 0


def static(key):
    return Static.random(TASK.horizon, TASK.designs, key=key)


BOTH = Pair(Scaled(jnp.asarray(0.5)), static(jr.key(0)))
PARAMS, STATIC = eqx.partition(BOTH, eqx.is_inexact_array)


def close(found, truth):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-4, atol=1e-6), found, truth)


@pytest.mark.parametrize("limit", [0.0, 0.5])
def test_the_gradient_of_each_is_its_own_with_the_other_fixed(limit):
    gradient = joint_gradient(
        STATIC, TASK, SAMPLER, WEIGHTS, batch=Pair(8, 4), trajectory_clip=limit
    )
    terms, found = jax.jit(gradient)(PARAMS, jr.key(1))
    of_score = gradient_of(
        score_loss(STATIC.score, TASK, SAMPLER, WEIGHTS, batch=8, policy=BOTH.policy)
    )
    of_policy = policy_gradient(STATIC.policy, TASK, BOTH.score, batch=4, trajectory_clip=limit)
    terms_score, truth_score = jax.jit(of_score)(PARAMS.score, named(jr.key(1), "score"))
    terms_policy, truth_policy = jax.jit(of_policy)(PARAMS.policy, named(jr.key(1), "policy"))
    close(terms, terms_score | terms_policy)
    close(found, Pair(truth_score, truth_policy))


def test_half_of_the_experiments_of_a_score_are_the_policys():
    loss = score_loss(STATIC.score, TASK, SAMPLER, WEIGHTS, batch=8, policy=BOTH.policy)
    runs = jax.jit(jax.vmap(lambda k: simulate(TASK, BOTH.policy, key=k)))(
        jr.split(named(jr.key(3), "runs", 1), 4)
    )
    alone = score_loss(STATIC.score, TASK, SAMPLER, WEIGHTS, batch=4)(PARAMS.score, jr.key(3))
    policys = matching_terms(BOTH.score, TASK, runs, WEIGHTS)
    mixed = jax.jit(loss)(PARAMS.score, jr.key(3))
    for part in ("y", "xi"):
        np.testing.assert_allclose(mixed[part], (alone[part] + policys[part]) / 2, rtol=1e-5)


@pytest.mark.slow
def test_a_limit_far_above_every_length_gives_the_direction_of_the_mean():
    one = policy_loss(STATIC.policy, TASK, BOTH.score, batch=1)
    each = jax.vmap(lambda k: gradient_of(one)(PARAMS.policy, k)[1])(jr.split(jr.key(4), 8))
    truth = jax.tree.map(lambda g: g.mean(0), each)
    _, found = jax.jit(clip_per_trajectory(one, batch=8, limit=1e4))(PARAMS.policy, jr.key(4))
    unit = optax.tree.norm(found)
    close(
        jax.tree.map(lambda g: g / unit, found),
        jax.tree.map(lambda g: g / optax.tree.norm(truth), truth),
    )


@pytest.mark.slow
def test_a_small_limit_gives_every_trajectory_the_same_say():
    # 130 = 65 chunks of 2: chunks are of whole numbers of trajectories.
    one = policy_loss(STATIC.policy, TASK, BOTH.score, batch=1)
    grads = jax.vmap(lambda k: gradient_of(one)(PARAMS.policy, k)[1])(jr.split(jr.key(5), 130))
    lengths = jax.vmap(optax.tree.norm)(grads)
    assert lengths.max() > 3 * jnp.median(lengths)
    truth = jax.tree.map(lambda g: jnp.tensordot(1 / lengths, g, 1) / 130, grads)
    _, found = jax.jit(clip_per_trajectory(one, batch=130, limit=1e-4))(PARAMS.policy, jr.key(5))
    close(found, truth)


def test_the_longest_gradients_are_shortened_to_the_limit():
    def loss(params, key):
        return {"line": params["x"] * jnp.exp(3 * jr.normal(key))}

    lengths = jnp.exp(3 * jax.vmap(jr.normal)(jr.split(jr.key(6), 64)))
    _, found = clip_per_trajectory(loss, batch=64, limit=2.0)({"x": jnp.asarray(1.0)}, jr.key(6))
    longest = 2 * jnp.median(lengths)
    np.testing.assert_allclose(
        found["x"], (jnp.minimum(lengths, longest) / longest).mean(), rtol=1e-5
    )


def test_a_trajectory_without_a_gradient_does_no_harm():
    _, found = clip_per_trajectory(lambda p, _: {"flat": 0 * p["x"]}, batch=4, limit=0.1)(
        {"x": jnp.asarray(1.0)}, jr.key(0)
    )
    assert found["x"] == 0


@pytest.mark.slow
def test_both_learn_and_pairs_are_separate():
    both = pairs(Scaled(jnp.asarray(0.5)), eqx.filter_vmap(static)(jr.split(jr.key(7), 2)))
    trained = fit_batch(
        lambda rest: joint_gradient(rest, TASK, SAMPLER, WEIGHTS, batch=Pair(64, 16)),
        both,
        steps=60,
        block=20,
        optimiser=joint_optimiser(optax.adam(0.03), optax.adam(0.02)),
        key=jr.key(8),
    )
    np.testing.assert_allclose(trained.score.size, 1, atol=0.1)
    assert trained.score.size[0] != trained.score.size[1]

    def eig(policies):
        def one(policy):
            runs = jax.vmap(lambda k: simulate(TASK, policy, key=k))(jr.split(jr.key(9), 256))
            return jax.vmap(TASK.information_gain)(runs.ys, runs.xis).mean()

        return eqx.filter_vmap(one)(policies)

    before, after = eqx.filter_jit(eig)(both.policy), eqx.filter_jit(eig)(trained.policy)
    assert (after > before + 0.1).all(), (before, after)
