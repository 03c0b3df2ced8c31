"""Ground truths against closed forms, and whether one that cannot be trusted says so."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from oracles import ORACLES, Affine
from scorebed.bounds.importance import latent_experiment
from scorebed.diagnostics.ground_truth import TRUTHS, Sizes, relative_noise
from scorebed.nle import Ledger
from scorebed.policies.static import Static
from scorebed.scores.exact import ExactScore
from scorebed.scores.reference import LaplaceTruth
from scorebed.tasks.library.location import LocationFinding

MARKOV = ORACLES["linear-markov"]
POLICY = Affine(jnp.array([[0.9], [-0.6]]), jnp.array(0.2))


def test_draws_around_the_modes_give_the_exact_score_of_a_markov_task():
    # The posterior is Gaussian, so the mode tells all: what is left is the noise of the weights. A
    # lost proposal density, prior or likelihood is off by far more.
    truth, exact = LaplaceTruth(MARKOV, 4096), ExactScore(MARKOV)
    zs, ys, xis = jax.vmap(lambda k: latent_experiment(MARKOV, POLICY, key=k))(
        jr.split(jr.key(0), 16)
    )
    found = jax.jit(lambda key, ys, xis: truth(key).evaluate(ys, xis).value)(jr.key(1), ys, xis)
    expected = jax.vmap(exact)(ys, xis)
    for a, b in zip(found, expected, strict=True):
        assert np.linalg.norm(a - b) < 0.05 * np.linalg.norm(b)
    quality = jax.jit(jax.vmap(truth(jr.key(1)).quality))(zs, ys, xis)
    assert (np.asarray(quality.ess) > 1000).all()
    assert not np.asarray(quality.missed).any()


@pytest.mark.parametrize("name", ["importance", "laplace-mixture", "smc"])
def test_a_truth_of_a_few_draws_is_doubted_and_one_of_many_is_not(name):
    sizes = [Sizes(inner=5, particles=4, draws=2), Sizes(inner=4096, particles=512, draws=512)]
    ledgers = [Ledger(), Ledger()]
    few, many = (
        TRUTHS[name](MARKOV, [POLICY], size, ledger, key=jr.key(2)).quality
        for size, ledger in zip(sizes, ledgers, strict=True)
    )
    assert few.doubt
    assert not many.doubt
    assert many.noise < 0.5 * min(few.noise, 1.0)
    assert 0 < ledgers[0].spent < ledgers[1].spent


def test_modes_that_are_not_found_show_as_missed():
    # Two sources of one task seen through few far designs: flat and curved posteriors, of which the
    # Gaussians at the modes tell too little with eight draws.
    task = LocationFinding(horizon=3)
    policy = Static.from_designs(jnp.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]), task.designs)
    few = TRUTHS["laplace-mixture"](task, [policy], Sizes(draws=8), Ledger(), key=jr.key(3)).quality
    assert few.missed > 0.1
    assert few.doubt


def test_relative_noise_is_that_of_one_truth():
    rng = np.random.default_rng(0)
    mean = np.full((2000, 4, 5), 3.0)
    first, second = (jnp.asarray(mean + 0.3 * rng.normal(size=mean.shape)) for _ in range(2))
    assert np.median(relative_noise(first, second)) == pytest.approx(0.1, rel=0.05)
    assert (relative_noise(first, first) == 0).all()
    assert np.isinf(relative_noise(first[:1], jnp.full((1, 4, 5), jnp.nan))).all()
