"""The direction of a score's gradient as training uses it: faults that turn it are found, and those
that only stretch it are told apart.
"""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jaxtyping import Array, Float

from oracles import Affine
from scorebed.diagnostics import Clipping, gradient_direction, gradient_error
from scorebed.diagnostics.direction import group_size, tails
from scorebed.diagnostics.gradient_groups import PLAIN, clipped_mean, gradient_group
from scorebed.diagnostics.groups import agreement, products
from scorebed.diagnostics.verdict import is_clear
from scorebed.estimators.pce import pce
from scorebed.scores.base import Score, ScoreValue
from scorebed.scores.exact import ExactScore
from scorebed.scores.reference import ExactTruth
from scorebed.tasks.oracles.linear_gaussian import LinearGaussian
from scorebed.training.clipping import clip_per_trajectory

LIMIT = 4.892  # standard errors: a false alarm in a million
TASK = LinearGaussian(mean=(0.0,), noise=1.0, horizon=2)
TRUTH, EXACT = ExactTruth(TASK), ExactScore(TASK)
# The golden policy of two steps: ξ₁ = φ₁, ξ₂ = φ₂ + κ y₁.
POLICY = Affine(jnp.array([[1.0], [0.5]]), jnp.array(0.5))
GOLDEN = np.array([0.4627018366, 0.1491926537, 0.2674006933])
CLIPPED = Clipping(32, 0.5)


class Weighted(Score):
    """The exact score with a factor on each part."""

    y: Float[Array, ""]
    xi: Float[Array, ""]

    def __call__(self, ys, xis):
        s = EXACT(ys, xis)
        return ScoreValue(self.y * s.y, self.xi * s.xi)

    @property
    def nle(self):
        return 0


def weighted(y, xi):
    return Weighted(jnp.asarray(y), jnp.asarray(xi))


def test_the_true_gradient_is_the_golden_one():
    # Without the Fisher term ∂φ₁ is 0.5296, fifteen standard errors away; with the wrong sign of
    # the y-part every entry is.
    size = 65_536
    group = gradient_group(TASK, EXACT, TRUTH, POLICY, size, PLAIN, (), jr.key(0))
    scale = np.sqrt(float(group.squared_lengths.mean()) / size)
    found = np.asarray(group.truth)
    assert np.abs(found - GOLDEN).max() < LIMIT * scale
    assert LIMIT * scale < 0.0668501733
    assert float(group.squared_errors.max()) < 1e-9  # rounding, of lengths near one


def direction(score, clipping=CLIPPED, outer=1024):
    return gradient_direction(
        TASK, score, TRUTH, POLICY, clipping=clipping, outer=outer, key=jr.key(5)
    ).direction


@pytest.mark.parametrize(("clipping", "length"), [(PLAIN, 1.5), (CLIPPED, 1.0)])
def test_a_stretched_score_points_right_and_clipping_forgives_its_length(clipping, length):
    found = direction(weighted(1.5, 1.5), clipping).used
    assert found.cosine.value == pytest.approx(1, abs=1e-4)
    assert found.length.value == pytest.approx(length, rel=1e-4)
    assert found.cosine.se < 1e-3


def test_faults_that_turn_the_gradient_are_found():
    reversed_, no_fisher = (direction(weighted(*factors)) for factors in ((-1.0, -1.0), (1.0, 0.0)))
    assert reversed_.used.cosine.value == pytest.approx(-1, abs=1e-4)
    wrong_sign = direction(weighted(-1.0, 1.0), PLAIN, outer=8192)
    assert wrong_sign.used.cosine.value < 0
    assert is_clear(wrong_sign.used)
    # Clipped, its trajectories cancel each other: what is left is short.
    assert direction(weighted(-1.0, 1.0)).used.length.value < 0.25
    # Without the Fisher term, a control variate, trajectories cancel: half of the length.
    assert no_fisher.used.length.value < 1 - LIMIT * no_fisher.used.length.se
    assert no_fisher.tails.mean > 0.1


def test_the_plain_cosine_is_that_of_the_golden_gradient_and_the_bias():
    # B of a score without its Fisher part is the Fisher contribution, (−0.0669, 0, 0), less.
    biased = GOLDEN + np.array([0.0668501733, 0, 0])
    expected = biased @ GOLDEN / np.linalg.norm(biased) / np.linalg.norm(GOLDEN)
    found = direction(weighted(1.0, 0.0), PLAIN, outer=8192).plain
    assert abs(found.cosine.value - expected) < LIMIT * found.cosine.se
    length = np.linalg.norm(biased) / np.linalg.norm(GOLDEN)
    assert abs(found.length.value - length) < LIMIT * found.length.se
    assert LIMIT * found.length.se < length - 0.9


def test_common_noise_is_no_agreement():
    # Two orthogonal means in noise that both share: pairs of one group would give a cosine of 0.99.
    noise = 10 * np.random.default_rng(1).normal(size=(64, 3))
    a, b = noise + np.array([1.0, 0, 0]), noise + np.array([0, 1.0, 0])
    found = agreement(products(a, b), products(a, b))
    assert not is_clear(found)
    many = 0.05 * noise
    clear = agreement(products(many + np.array([1.0, 0, 0]), many + np.array([0, 1.0, 0])))
    assert abs(clear.cosine.value) < LIMIT * clear.cosine.se
    assert clear.cosine.se < 0.1


def test_parts_count_by_their_size():
    # Right where the gradient is ten times as large, wrong where it is small.
    rng = np.random.default_rng(2)
    noise = 1e-3 * rng.normal(size=(16, 2))
    large, small = np.array([10.0, 0]), np.array([1.0, 0])
    found = agreement(
        products(large + noise, large + noise), products(noise - small, noise + small)
    )
    assert found.cosine.value == pytest.approx(99 / 101, abs=1e-3)


def test_a_group_clips_as_a_batch_of_training_does():
    batch, limit = 96, 0.7

    def loss(params, key):
        return {"one": params @ (jr.normal(key, (3,)) * jnp.exp(jr.normal(jr.fold_in(key, 1))))}

    key, params = jr.key(3), jnp.ones(3)
    _, expected = clip_per_trajectory(loss, batch=batch, limit=limit)(params, key)
    rows = jax.vmap(lambda k: jax.grad(lambda p: loss(p, k)["one"])(params))(jr.split(key, batch))
    np.testing.assert_allclose(
        clipped_mean(rows, Clipping(batch, limit)), expected, rtol=1e-5, atol=1e-7
    )


def test_an_estimator_is_compared_like_a_score():
    # PCE with one contrastive parameter, as an estimator and by its name: the same bias.
    def estimate(task, policy, theta, noise, *, key):
        return pce(task, policy, theta, noise, inner=1, key=key)

    found = gradient_error(TASK, estimate, TRUTH, POLICY, outer=4096, pce=(1,), key=jr.key(9))
    one, other = found.score.squared_bias, found.pce[1].squared_bias
    assert abs(one.value - other.value) < LIMIT * (one.se + other.se)
    assert one.value > LIMIT * one.se


def test_tails_tell_one_wild_trajectory_from_a_common_error():
    sizes = np.ones(200)
    even = tails(np.full(200, 0.04), sizes)
    assert even == pytest.approx((0.01, 0.2, 0.2))
    wild = np.full(200, 0.04)
    wild[0] = 1e6
    found = tails(wild, sizes)
    assert found.worst > 0.99
    assert found.median == pytest.approx(0.2)
    assert found.mean > 50


def test_groups_are_chunks_of_training_unless_there_are_few_trajectories():
    assert group_size(Clipping(256, 0.1), 2048) == 64
    assert group_size(Clipping(48, 0.1), 2048) == 64
    assert group_size(Clipping(48, 0.1), 200) == 16
    assert group_size(Clipping(256, 0.1), 16) == 2
