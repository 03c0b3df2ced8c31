"""The score from posterior modes: exact on linear models, close to Monte Carlo on others, and its
likelihood evaluations.
"""

import equinox as eqx
import jax
import jax.random as jr
import numpy as np
import pytest

from scorebed.errors import InvalidValueError
from scorebed.policies.random import RandomDesigns
from scorebed.rollout import simulate
from scorebed.samplers.paper import reference_sampler
from scorebed.scores.exact import ExactScore
from scorebed.scores.laplace import LaplaceScore
from scorebed.scores.monte_carlo import ImportanceScore
from scorebed.tasks.library.location import LocationFinding
from scorebed.tasks.library.pendulum import Pendulum
from scorebed.tasks.oracles.linear_gaussian import LinearGaussian


def experiments(task, count, seed=0):
    policy = RandomDesigns(reference_sampler(task)[0])
    return jax.jit(jax.vmap(lambda k: simulate(task, policy, key=k)))(jr.split(jr.key(seed), count))


@pytest.mark.parametrize("particles", [pytest.param(1, marks=pytest.mark.slow), 5])
def test_it_is_exact_on_linear_models(particles):
    # ∇ log p is at most quadratic in θ there, and a cloud has the mean and covariance of the
    # posterior; modes found five times must not count five times.
    task = LinearGaussian(
        mean=(0.5, -1.0), covariance=((1.0, 0.3), (0.3, 0.5)), noise=0.7, horizon=4
    )
    runs = experiments(task, 8)
    score, exact = LaplaceScore(task, particles=particles, cloud=4, iterations=12), ExactScore(task)
    got, wanted = (jax.jit(jax.vmap(s))(runs.ys, runs.xis) for s in (score, exact))
    np.testing.assert_allclose(got.y, wanted.y, rtol=2e-3, atol=2e-3)
    np.testing.assert_allclose(got.xi, wanted.xi, rtol=2e-3, atol=2e-3)


def test_it_agrees_with_importance_sampling():
    # 2·10⁴ draws of the prior are a good truth for two parameters; a score that left out the prior,
    # the cloud or the density q would be off by tens of per cent.
    task = Pendulum(horizon=6)
    runs = experiments(task, 8)
    score = LaplaceScore(task, particles=2, cloud=8, iterations=8)
    got = jax.jit(jax.vmap(score))(runs.ys, runs.xis)
    truth = ImportanceScore(task, inner=20_000, key=jr.key(1))
    wanted = jax.jit(lambda ys, xis: jax.lax.map(lambda run: truth(*run), (ys, xis)))(
        runs.ys, runs.xis
    )
    for part in ("y", "xi"):
        a, b = getattr(got, part), getattr(wanted, part)
        assert float(((a - b) ** 2).sum() / (b**2).sum()) < 0.01


def test_its_cost_and_its_refusals():
    score = LaplaceScore(LocationFinding(), particles=16, cloud=8, iterations=16)
    assert score.nle == 16 * (2 * 16 + 1 + 8) * 30
    assert not [
        leaf for leaf in jax.tree.leaves(eqx.filter(score, eqx.is_inexact_array)) if leaf.size > 1
    ]
    with pytest.raises(InvalidValueError, match="even cloud"):
        LaplaceScore(LocationFinding(), cloud=3)
