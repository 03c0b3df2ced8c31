"""Looking ahead to answers: expected gains, designs and whole experiments against enumeration."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import numpyro.distributions as dist
import pytest

import scorebed as sb
from scorebed.densities.predictive import all_histories
from scorebed.errors import InvalidValueError
from scorebed.estimators.predictive import designs_along
from scorebed.inference.resample_move import Cloud, prior_points
from scorebed.policies.lookahead import Lookahead, ordered_noise
from scorebed.policies.lookahead_everywhere import (
    LookaheadEverywhere,
    expected_gain,
    predicted_gain,
)
from scorebed.tasks.spaces import Space

SMALL = {"particles": 64, "levels": 2, "moves": 3, "candidates": 8, "rounds": 2}
NODES = np.linspace(-5, 5, 2001)
WEIGHTS = np.exp(-0.5 * NODES**2) / np.exp(-0.5 * NODES**2).sum()


class Threshold(sb.IID, sb.Discrete):
    """Is a stimulus seen, and how surely? With slips; its second design is how loud it is."""

    horizon: int = eqx.field(static=True, default=2)
    designs: Space = eqx.field(static=True, default=sb.ranges({"stimulus": (-3.0, 3.0)}))
    prior = sb.parameters({"threshold": dist.Normal(0.0, 1.0)})
    outcomes = sb.categories("seen", ("no", "perhaps", "yes"))

    def probabilities(self, theta, state, xi):
        del state
        slope = 4.0 if len(xi) == 1 else 1 + xi[1]
        yes, no = (0.94 * jax.nn.sigmoid(slope * s * (xi[0] - theta[0]) - 1) for s in (1, -1))
        return jnp.stack([no + 0.02, 0.96 - yes - no, yes + 0.02])


def chances(xi):
    """p(y | θ, ξ) at all nodes."""
    task = Threshold()
    found = jax.vmap(lambda theta: task.log_probs(theta, None, jnp.asarray([xi])))(NODES[:, None])
    return np.exp(np.asarray(found))


def exact_gain(weights, xi):
    p = chances(xi)
    marginal = weights @ p
    return -(marginal * np.log(marginal)).sum() + weights @ (p * np.log(p)).sum(1)


@pytest.fixture(scope="module")
def policy():
    return LookaheadEverywhere(Threshold(), particles=512, key=jr.key(0))


@pytest.fixture(scope="module")
def along(policy):
    return jax.jit(lambda ys: designs_along(policy, ys, jnp.zeros((2, 0))))


def test_the_expected_gain_is_exact_for_weighted_particles():
    """It is I(θ; y), here as the mean of log-ratios over the joint distribution."""
    z, w = jnp.asarray([[-1.0, 0.2, 0.4, 0.9]]), np.asarray([0.1, 0.2, 0.3, 0.4])
    for xi in (-0.5, 0.3):
        p = np.exp([Threshold().log_probs(jnp.asarray([x]), None, jnp.asarray([xi])) for x in z[0]])
        truth = (w[:, None] * p * np.log(p / (w @ p))).sum()
        found = expected_gain(Threshold(), z, jnp.asarray(w), jnp.asarray([xi]))
        assert float(found) == pytest.approx(truth, rel=1e-6)


def test_the_designs_are_the_best_one_step_ahead(along):
    """By quadrature over θ, after every answer to the first design. Catches particles that forget
    the first answer, or a search that is too coarse.
    """
    grid = np.linspace(-3, 3, 241)
    for y in (0.0, 1.0, 2.0):
        first, second = np.asarray(along(jnp.asarray([[y], [0.0]])))[:, 0]
        assert exact_gain(WEIGHTS, first) > max(exact_gain(WEIGHTS, x) for x in grid) - 2e-3
        after = WEIGHTS * chances(first)[:, int(y)]
        after /= after.sum()
        assert exact_gain(after, second) > max(exact_gain(after, x) for x in grid[::4]) - 5e-3


def test_all_designs_of_short_lists_are_compared():
    space = sb.ranges({"stimulus": [-2, -0.5, 0.25, 2], "loud": ["a", "b", "c"]})
    policy = LookaheadEverywhere(Threshold(designs=space), **SMALL, key=jr.key(0))
    z, even = jnp.asarray([[0.1, 0.4, 0.5, 0.3]]), jnp.zeros(4)
    found = policy.search(Cloud(z, even, even), jnp.zeros(space.free_dim))
    each = {
        (x, loud): float(
            expected_gain(Threshold(), z, jnp.full(4, 0.25), jnp.asarray([x, float(loud)]))
        )
        for x in (-2, -0.5, 0.25, 2)
        for loud in range(3)
    }
    assert tuple(np.asarray(found)) == max(each, key=each.get)
    assert policy.design_nle == 2 * 64 * 12 + 64 * (2 + 2 * 3 * 3)


def test_designs_that_are_names_and_numbers_are_searched():
    """A name that carries more information is found beside the best number."""
    space = sb.ranges({"stimulus": (-3.0, 3.0), "loud": ["a", "b", "c", "d", "e"]})
    policy = LookaheadEverywhere(Threshold(designs=space), particles=64, key=jr.key(0))
    found = policy.design(policy.init(), jnp.zeros(0))
    assert found[1] == 4
    assert abs(float(found[0])) < 0.3


def test_rows_that_were_not_measured_change_nothing():
    policy = LookaheadEverywhere(Threshold(3), **SMALL, key=jr.key(0))
    memory = policy.update(policy.init(), jnp.asarray([0.2]), jnp.asarray([1.0]))
    poisoned = eqx.tree_at(
        lambda m: (m.ys, m.xis),
        memory,
        (memory.ys.at[1:].set(jnp.nan), memory.xis.at[1:].set(jnp.nan)),
    )
    clean, other = (
        policy.update(m, jnp.asarray([0.4]), jnp.asarray([2.0])) for m in (memory, poisoned)
    )
    np.testing.assert_array_equal(clean.cloud.z, other.cloud.z)
    np.testing.assert_array_equal(
        policy.design(clean, jnp.zeros(0)), policy.design(other, jnp.zeros(0))
    )


def test_an_experiment_gains_what_enumeration_says(along):
    """Σ_h p(h) over all nine histories, θ by quadrature: within 0.01 of greed with quadrature in
    place of particles.
    """
    grid = np.linspace(-3, 3, 121)
    best = max(grid, key=lambda x: exact_gain(WEIGHTS, x))
    shares = WEIGHTS @ chances(best)
    greedy = exact_gain(WEIGHTS, best)
    for y, share in enumerate(shares):
        after = WEIGHTS * chances(best)[:, y] / share
        greedy += share * max(exact_gain(after, x) for x in grid[::2])
    ys = all_histories(Threshold())
    xis = np.asarray(jax.vmap(along)(jnp.asarray(ys)))
    joint = np.stack(
        [
            chances(xi[0, 0])[:, int(y[0, 0])] * chances(xi[1, 0])[:, int(y[1, 0])]
            for y, xi in zip(ys, xis, strict=True)
        ]
    )
    marginal = joint @ WEIGHTS
    found = (joint * WEIGHTS * np.log(joint / marginal[:, None])).sum()
    assert found == pytest.approx(greedy, abs=0.01)


class Heavy(sb.IID):
    """Where is a bell? With logistic noise, half as much of it in the second mode of measuring."""

    horizon = 2
    prior = sb.parameters({"place": dist.Normal(0.0, 1.0)})
    designs = sb.ranges({"position": (-3.0, 3.0), "mode": ["fast", "slow"]})
    outcomes = sb.measured("height")
    additive_noise = False

    def outcome(self, theta, state, xi, noise):
        del state
        p = jax.scipy.special.ndtr(noise)
        return 3 * jnp.exp(-((xi[0] - theta[0]) ** 2)) + self.scale(xi) * jax.scipy.special.logit(p)

    def log_prob(self, y, theta, state, xi):
        del state
        z = (y[0] - 3 * jnp.exp(-((xi[0] - theta[0]) ** 2))) / self.scale(xi)
        return -jnp.log(self.scale(xi)) - z - 2 * jnp.logaddexp(0.0, -z)

    def scale(self, xi):
        return 0.4 - 0.2 * xi[1]


def heavy_gain(xi):
    """By quadrature over θ and y."""
    ys = np.linspace(-6, 9, 1501)
    z = (ys - 3 * np.exp(-((xi[0] - NODES[:, None]) ** 2))) / (scale := 0.4 - 0.2 * xi[1])
    p = np.exp(-z - 2 * np.logaddexp(0, -z)) / scale
    marginal = WEIGHTS @ p
    entropy = -(marginal * np.log(marginal + 1e-300)).sum() * (ys[1] - ys[0])
    return entropy - 2 - np.log(scale)


def test_of_other_outcomes_some_are_predicted():
    """The expected gain by 512 particles of the prior, and by 32 outcomes, against quadrature."""
    task = Heavy()
    theta = jnp.asarray(prior_points(task, 512))
    noise, even = ordered_noise(task, 32), jnp.full(512, 1 / 512)
    gain = jax.jit(lambda xi: predicted_gain(task, theta, even, xi, noise))
    for xi in ([0.0, 1.0], [0.7, 0.0], [0.7, 1.0], [2.5, 1.0]):
        assert float(gain(jnp.asarray(xi))) == pytest.approx(heavy_gain(xi), abs=0.08)


def test_designs_for_other_outcomes_are_the_best_one_step_ahead():
    policy = sb.make_policy("lookahead", Heavy(), key=jr.key(0))
    assert isinstance(policy, LookaheadEverywhere)
    assert policy.base.shape == (1, 256)
    found = np.asarray(policy.design(policy.init(), jnp.zeros(0)))
    best = max(heavy_gain((x, 1.0)) for x in np.linspace(-3, 3, 61))
    assert found[1] == 1
    assert heavy_gain(found) > best - 0.03


def test_the_name_lookahead_serves_outcomes_of_any_kind():
    for task, kind in (
        (Threshold(), LookaheadEverywhere),
        (sb.make_task("linear-gaussian"), Lookahead),
    ):
        made = eqx.filter_eval_shape(sb.make_policy, "lookahead", task, key=jr.key(0))
        assert isinstance(made, kind)


def test_other_tasks_and_sizes_are_refused():
    with pytest.raises(InvalidValueError, match="independent steps with a density"):
        LookaheadEverywhere(sb.make_task("pendulum"), key=jr.key(0))
    with pytest.raises(InvalidValueError, match="at least 8 particles"):
        LookaheadEverywhere(Threshold(), particles=4, key=jr.key(0))
