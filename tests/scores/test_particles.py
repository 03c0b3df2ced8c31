"""Likelihood particles: the weighted sum that they are, their symmetries, and that they learn a
known score.
"""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jaxtyping import Array

from oracles import Accumulation
from scorebed.errors import InvalidValueError
from scorebed.estimators.matching import conditional_score
from scorebed.policies.random import RandomDesigns
from scorebed.rollout import Trajectory, log_likelihood, simulate
from scorebed.samplers.gaussian import IsotropicGaussian
from scorebed.scores.base import ScoreValue
from scorebed.scores.exact import ExactScore
from scorebed.scores.particles import LikelihoodParticles, sign_patterns
from scorebed.scores.standardise import Standardiser
from scorebed.tasks.base import IID, Gaussian, Markov
from scorebed.tasks.library.location import LocationFinding
from scorebed.tasks.library.pendulum import Pendulum
from scorebed.tasks.oracles.linear_gaussian import LinearGaussian
from scorebed.tasks.priors import standard_normal
from scorebed.tasks.spaces import Quantity, Real
from scorebed.training.score import Weights, train_score

T = 4
TASKS = {"iid": LocationFinding(horizon=T), "markov": Pendulum(horizon=T)}


def particles(task: IID | Markov, **options) -> LikelihoodParticles:
    y, xi = jnp.ones(task.outcome_dim), jnp.ones(task.designs.dim)
    sizes = {"particles": 3, "cloud": 4, "width": 16, "features": 8} | options
    return LikelihoodParticles(
        task, Standardiser(0.1 * y, 2 * y, y, 0.2 * xi, 1.5 * xi), **sizes, key=jr.key(1)
    )


@functools.cache
def example(kind: str) -> tuple[LikelihoodParticles, Trajectory]:
    task = TASKS[kind]
    run = jax.jit(
        lambda key: simulate(task, RandomDesigns(IsotropicGaussian(T, task.designs)), key=key)
    )(jr.key(2))
    return particles(task), run


@eqx.filter_jit
def evaluate(
    score: LikelihoodParticles, ys: Array, xis: Array
) -> tuple[tuple[Array, Array, Array], ScoreValue]:
    return score.posterior(ys, xis), score(ys, xis)


# --- the cloud -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("count", "dim"), [(2, 1), (8, 1), (8, 3), (8, 4), (8, 30), (16, 8), (6, 5)]
)
def test_sign_patterns_come_in_opposite_pairs_of_unit_size(count, dim):
    patterns = sign_patterns(count, dim)
    assert patterns.shape == (count, dim)
    np.testing.assert_allclose((patterns**2).mean(0), 1)  # second moments of one
    assert len(np.unique(patterns, axis=0)) == count
    np.testing.assert_array_equal(
        patterns[: count // 2], -patterns[count // 2 :]
    )  # and a mean of zero


@pytest.mark.parametrize(("count", "dim"), [(2, 1), (8, 2), (8, 3), (8, 4), (16, 8)])
def test_enough_patterns_have_no_correlations(count, dim):
    patterns = sign_patterns(count, dim)
    np.testing.assert_allclose(patterns.T @ patterns / count, np.eye(dim), atol=1e-12)


@pytest.mark.parametrize(("count", "dim"), [(8, 4), (8, 32), (16, 8)])
def test_patterns_are_orthogonal_where_they_can_be(count, dim):
    half = sign_patterns(count, dim)[: count // 2]
    np.testing.assert_array_equal(half @ half.T, dim * np.eye(count // 2))


class Amplifier(IID, Gaussian):
    """A model that holds an array: y = gain · θ ξ + ε."""

    gain: Array
    horizon: int = eqx.field(static=True, default=T)
    prior: eqx.Module = standard_normal((Quantity("effect"),))
    designs: Real = eqx.field(static=True, default=Real((Quantity("dose"),)))
    outcomes: tuple = eqx.field(static=True, default=(Quantity("response"),))
    additive_noise: bool = eqx.field(static=True, default=True)

    def mean(self, theta, state, xi):
        del state
        return (self.gain * theta[0] * xi[0],)

    def scale(self, theta, state, xi):
        del theta, state, xi
        return (1.0,)


@pytest.mark.slow
def test_the_arrays_of_a_task_are_not_trained():
    score = particles(Amplifier(jnp.asarray(2.0)))
    ys, xis = jr.normal(jr.key(0), (2, T, 1))
    slopes = eqx.filter_grad(lambda score: sum(s.sum() for s in score(ys, xis)))(score)
    assert slopes.task.gain == 0
    assert jnp.abs(slopes.head.layers[0].weight).max() > 0


# --- the sum -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", TASKS)
def test_the_score_is_the_weighted_sum_of_conditional_scores(kind):
    task = TASKS[kind]
    score, run = example(kind)
    (points, log_weight, beta), found = evaluate(score, run.ys, run.xis)

    @jax.jit
    def conditional_at(point):
        theta = task.prior.from_latent(point)
        return log_likelihood(task, theta, run.ys, run.xis), conditional_score(
            task, Trajectory(theta, run.ys, run.xis)
        )

    log_liks, each = zip(*[conditional_at(point) for point in points], strict=True)
    weights = np.exp(np.asarray(log_weight + beta * jnp.stack(log_liks), np.float64))
    weights /= weights.sum()
    for part in (0, 1):
        truth = sum(w * np.asarray(e[part], np.float64) for w, e in zip(weights, each, strict=True))
        np.testing.assert_allclose(found[part], truth, rtol=1e-3, atol=1e-4 * np.abs(truth).max())
    assert score.nle == len(points) * T == 3 * 4 * T


def test_the_centres_carry_their_clouds():
    score, run = example("iid")
    points, log_weight, beta = evaluate(score, run.ys, run.xis)[0]
    clouds = points.reshape(3, 4, -1)
    offsets = clouds - clouds.mean(1, keepdims=True)
    np.testing.assert_allclose(
        offsets / np.abs(offsets), np.broadcast_to(score.patterns, offsets.shape), rtol=1e-4
    )
    weights = np.exp(log_weight).reshape(3, 4)
    np.testing.assert_allclose(
        weights, weights[:, :1] * np.ones(4), rtol=1e-6
    )  # the centre's, until the data speak
    np.testing.assert_allclose(weights[:, 0].sum(), 1, rtol=1e-5)
    assert 0 < beta < 0.1  # starts cold


# --- symmetries ----------------------------------------------------------------------------------


def test_exchangeable_steps_permute_the_score():
    score, run = example("iid")
    order = jnp.asarray([2, 0, 3, 1])
    here, there = (
        evaluate(score, run.ys, run.xis)[1],
        evaluate(score, run.ys[order], run.xis[order])[1],
    )
    for a, b in zip(here, there, strict=True):
        np.testing.assert_allclose(a[order], b, rtol=1e-3, atol=1e-4 * np.abs(a).max())


def test_the_order_of_transitions_does_not_matter():
    # Two loops through the first state, walked in either order: the same transitions.
    score = example("markov")[0]
    a, b, home = jnp.asarray([0.3, -0.2]), jnp.asarray([-0.1, 0.4]), TASKS["markov"].start()
    xis = jr.normal(jr.key(0), (T, 1))
    one = evaluate(score, jnp.stack([a, home, b, home]), xis)[0]
    other = evaluate(score, jnp.stack([b, home, a, home]), xis[jnp.asarray([2, 3, 0, 1])])[0]
    turned = evaluate(score, jnp.stack([b, home, a, home]), xis)[0]
    for x, y in zip(one, other, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5)
    assert np.abs(one[0] - turned[0]).max() > 1e-3  # other transitions are another summary


# --- what it is made for -------------------------------------------------------------------------


def test_other_tasks_and_odd_clouds_are_refused():
    with pytest.raises(InvalidValueError, match="transformer"):
        particles(Accumulation())
    with pytest.raises(InvalidValueError, match="an even cloud"):
        particles(TASKS["iid"], cloud=3)


@pytest.mark.slow
def test_it_learns_a_known_score():
    task = LinearGaussian()
    sampler = IsotropicGaussian(task.horizon, task.designs)
    score = particles(task, particles=4, cloud=2)
    weights = Weights(jnp.ones(()), jnp.ones(()), 0.2)  # of order one in this task
    trained = train_score(
        task,
        score,
        sampler,
        steps=2000,
        batch=128,
        learning_rate=2e-2,
        decay=0.99,
        weights=weights,
        key=jr.key(4),
    )
    runs = jax.jit(jax.vmap(lambda k: simulate(task, RandomDesigns(sampler), key=k)))(
        jr.split(jr.key(5), 4096)
    )

    @eqx.filter_jit
    def relative(score):
        found, truth = (
            jax.vmap(score)(runs.ys, runs.xis),
            jax.vmap(ExactScore(task))(runs.ys, runs.xis),
        )
        return jax.tree.map(lambda a, b: ((a - b) ** 2).sum() / (b**2).sum(), found, truth)

    before, after = relative(score), relative(trained)
    assert min(before) > 0.05
    assert max(after) < 0.01, after
