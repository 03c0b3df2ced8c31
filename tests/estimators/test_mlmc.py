"""Multilevel Monte Carlo: levels and their weights, the telescoping sum, the coupling that makes it
work, and what it costs.
"""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from jaxtyping import Array

from scorebed.errors import InvalidValueError
from scorebed.estimators import mlmc as module
from scorebed.estimators.mlmc import (
    expected_nle,
    level_term,
    mlmc,
    mlmc_batch,
    padded_nle,
    stratify,
)
from scorebed.estimators.pce import nmc, prior_draws
from scorebed.keys import named
from scorebed.nle import MLMC, level_probabilities
from scorebed.policies.dad import DAD
from scorebed.policies.static import Static
from scorebed.rollout import Noise, Trajectory, draw_noise, log_likelihood, log_likelihoods, rollout
from scorebed.tasks.base import Task
from scorebed.tasks.oracles.linear_gaussian import LinearGaussian
from scorebed.tasks.oracles.linear_markov import LinearMarkov
from scorebed.tasks.spaces import Real

ALARM = 4.892  # standard errors: one false alarm in a million
STEP = LinearGaussian(horizon=1)
XI = 0.7
LEVELS = {"cap": 2, "tau": 1.1}


def at(xi: Array | float) -> Static:
    """One design as it is."""
    return Static(jnp.reshape(jnp.asarray(xi), (1, 1)), Real(STEP.designs.quantities))


def draw(task: Task, policy: Static | DAD, key: Array) -> tuple[Array, Noise]:
    return task.prior.sample(key=named(key, "theta")), draw_noise(
        task, policy, key=named(key, "noise")
    )


def batch_of(task: Task, policy: Static | DAD, size: int, key: Array) -> tuple[Array, Noise]:
    return jax.vmap(lambda k: draw(task, policy, k))(jr.split(key, size))


def same(size: int, noise: float) -> Noise:
    """A batch of equal noises of one step."""
    one = Noise(jnp.full((1, 1), noise), jnp.zeros((1, 0)))
    return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (size, *leaf.shape)), one)


def assert_mean(samples: Array, truth: Array | float) -> None:
    tolerance = ALARM * samples.std(0) / math.sqrt(len(samples))
    assert (abs(samples.mean(0) - truth) <= tolerance).all(), (samples.mean(0), truth, tolerance)


# --- levels and weights --------------------------------------------------------------------------


def only(task: Task, run: Trajectory, level: int, *, base: int, key: Array) -> Array:
    """A term that is one at level θ, with a gradient of one in the design, and zero at all
    others.
    """
    del task, base, key
    return jnp.where(
        run.theta[0] == level, 1 + run.xis.sum() - jax.lax.stop_gradient(run.xis.sum()), 0.0
    )


def test_probability_times_weight_is_one_at_every_level(monkeypatch):
    # Weights of levels before they are clipped would give 1/(1 − 2^−τ) = 1.87 at the highest, in
    # value and gradient.
    monkeypatch.setattr(module, "level_term", only)
    options = {"base": 1, **LEVELS}

    def single(xi: Array, level: Array, key: Array) -> Array:
        return mlmc(
            STEP,
            at(xi),
            level[None],
            Noise(jnp.zeros((1, 1)), jnp.zeros((1, 0))),
            key=key,
            **options,
        )

    def batch(xi: Array, level: Array, key: Array) -> Array:
        return mlmc_batch(
            STEP, at(xi), jnp.full((10, 1), level), same(10, 0.0), key=key, **options
        ).mean()

    levels = jnp.arange(LEVELS["cap"] + 1.0)
    for estimate, count in ((single, 30_000), (batch, 10_000)):
        each = jax.vmap(
            jax.vmap(jax.value_and_grad(estimate), in_axes=(None, 0, None)), in_axes=(None, None, 0)
        )
        values, slopes = jax.jit(each)(jnp.asarray(XI), levels, jr.split(jr.key(0), count))
        np.testing.assert_allclose(values, slopes, rtol=1e-6)
        assert_mean(values, 1.0)
        assert (ALARM * values.std(0) / math.sqrt(count) < 0.1).all()


@pytest.mark.parametrize("size", [7, 2000])
def test_a_batch_has_the_expected_share_of_every_level_or_one_more_or_less(size):
    options = {"cap": 12, "tau": 1.1}
    plans = jax.jit(jax.vmap(lambda k: stratify(size, key=k, **options).first))(
        jr.split(jr.key(0), 20_000)
    )
    counts = np.diff(np.asarray(plans), axis=1)
    shares = size * np.asarray(level_probabilities(tau=1.1, max_level=12))
    assert (plans[:, 0] == 0).all()
    assert (plans[:, -1] == size).all()
    assert ((counts == np.floor(shares)) | (counts == np.ceil(shares))).all()
    # The rarest level has a fifth of a trajectory in a batch of 2000.
    assert_mean(counts[:, shares > 1e-2].astype(float), shares[shares > 1e-2])


# --- the sum -------------------------------------------------------------------------------------


@pytest.mark.usefixtures("float64")
def test_a_term_is_nested_monte_carlo_less_the_mean_of_that_on_its_halves():
    task = LinearMarkov(noise=0.2)  # contrasts of hundreds of nats
    ys, xis = jr.normal(jr.key(0), (3, 1)), jr.normal(jr.key(1), (3, 1))
    theta, key, base, level = jnp.ones(1), jr.key(2), 3, 2
    thetas = prior_draws(task, base * 2**level, key=key)

    def direct(ys: Array, xis: Array) -> Array:
        log_p0, each = log_likelihood(task, theta, ys, xis), log_likelihoods(task, thetas, ys, xis)
        bounds = [
            log_p0 - jax.nn.logsumexp(part) + math.log(len(part))
            for part in (each, each[:6], each[6:])
        ]
        return bounds[0] - 0.5 * (bounds[1] + bounds[2])

    def found(ys: Array, xis: Array) -> Array:
        return level_term(task, Trajectory(theta, ys, xis), level, base=base, key=key)

    for a, b in zip(
        *(
            jax.tree.leaves(jax.jit(jax.value_and_grad(f, (0, 1)))(ys, xis))
            for f in (found, direct)
        ),
        strict=True,
    ):
        np.testing.assert_allclose(a, b, rtol=1e-9)


def test_the_mean_is_nested_monte_carlo_at_the_highest_level():
    # The gradients of NMC with 2, 4 and 8 inner samples differ by 0.22 and 0.09: a level left out
    # or weighted wrongly, or a sign, is seen. Both sides have the same trajectories, and
    # independent inner samples.
    size, count = 400, 300

    def errors(xi: Array, key: Array) -> Array:
        thetas, noises = batch_of(STEP, at(xi), size, named(key, "outer"))

        def both(theta: Array, noise: Noise, key: Array) -> Array:
            single = mlmc(STEP, at(xi), theta, noise, base=2, key=named(key, "mlmc"), **LEVELS)
            truth = nmc(STEP, at(xi), theta, noise, inner=8, key=named(key, "nmc"))
            return jnp.stack([single - truth, truth])

        single, truth = jax.vmap(both)(thetas, noises, jr.split(named(key, "inner"), size)).mean(0)
        grouped = mlmc_batch(
            STEP, at(xi), thetas, noises, base=2, key=named(key, "batch"), **LEVELS
        ).mean()
        return jnp.stack([single, grouped - truth])

    @jax.jit
    def values_and_slopes(keys: Array) -> tuple[Array, Array]:
        one = jnp.ones(())
        return jax.lax.map(lambda k: jax.jvp(lambda xi: errors(xi, k), (XI * one,), (one,)), keys)

    for samples in values_and_slopes(jr.split(jr.key(0), count)):
        assert_mean(samples, 0.0)
        assert (ALARM * samples.std(0) / math.sqrt(count) < 0.04).all()


@pytest.mark.usefixtures("float64")
def test_antithetic_halves_make_the_variance_fall_faster_than_the_probabilities():
    # Given a trajectory variances fall by 2^−2 a level, with one half in place of both by 2^−1:
    # over three levels 1/64 and 1/8. Weights grow by 2^1.1 a level, so that the latter is too slow.
    def term(xi: Array, level: int, key: Array) -> Array:
        run = rollout(
            STEP, at(xi), jnp.full(1, 0.8), Noise(jnp.full((1, 1), 0.5), jnp.zeros((1, 0)))
        )
        return level_term(STEP, run, level, base=4, key=key)

    def variance(level: int) -> Array:
        each = jax.vmap(jax.grad(term), in_axes=(None, None, 0))
        return each(jnp.asarray(XI), level, jr.split(jr.key(0), 4000)).var()

    low, high = jax.jit(lambda: (variance(2), variance(5)))()
    assert 2**-7 < high / low < 2**-5


@pytest.mark.usefixtures("float64")
@pytest.mark.slow
def test_the_gradient_of_an_adaptive_policy_is_that_of_the_value():
    # Of fourteen trajectories ten or eleven are at level 0, in one block, and the others in a loop.
    # Weights tell them apart.
    task, size = LinearMarkov(horizon=2), 14
    params, rest = eqx.partition(
        DAD(task, hidden=(8,), encoding=4, emitter_bound=0.5, key=jr.key(3)), eqx.is_array
    )
    flat, unravel = ravel_pytree(params)

    @jax.jit
    @jax.value_and_grad
    def value(flat: Array) -> Array:
        policy = eqx.combine(unravel(flat), rest)
        thetas, noises = batch_of(task, policy, size, jr.key(4))
        each = mlmc_batch(task, policy, thetas, noises, base=2, cap=1, tau=2.0, key=jr.key(5))
        return each @ jnp.linspace(1.0, 2.0, size)

    gradient = value(flat)[1]
    for key in jr.split(jr.key(7), 3):
        direction = jr.normal(key, flat.shape)
        above, below = value(flat + 1e-6 * direction)[0], value(flat - 1e-6 * direction)[0]
        np.testing.assert_allclose(gradient @ direction, (above - below) / 2e-6, rtol=1e-6)


def test_no_two_trajectories_of_a_batch_share_their_draws():
    # The same θ and noise a hundred times over: but for the inner samples they would be equal.
    policy, noises = at(XI), same(100, 1.0)
    values = jax.jit(
        lambda: mlmc_batch(
            STEP, policy, jnp.ones((100, 1)), noises, base=2, cap=0, tau=1.1, key=jr.key(0)
        )
    )()
    assert len(np.unique(values)) == 100


# --- the cost ------------------------------------------------------------------------------------


def test_the_cost_is_that_of_the_ledger():
    task, options = LinearGaussian(horizon=30), {"base": 3, "cap": 12, "tau": 1.1}
    ledger = MLMC(T=30, K_P=1, N=2000, M0=3, tau=1.1, max_level=12)
    np.testing.assert_allclose(expected_nle(task, **options) / 30, 4.93 * 3, rtol=1e-3)
    assert expected_nle(task, batch=2000, **options) == pytest.approx(
        ledger.bill()["nle_expected_capped"], rel=1e-12
    )
    assert padded_nle(task, batch=2000, **options) == ledger.padded == 2000 * 30 * 3 * 4096


def test_a_batch_evaluates_hardly_more_than_is_expected(monkeypatch):
    spent = []

    def counting(task: Task, run: Trajectory, level: int, *, base: int, key: Array) -> Array:
        del task, key
        jax.debug.callback(lambda _: spent.append(base * 2**level), run.ys[0, 0])
        return run.ys.sum()

    monkeypatch.setattr(module, "level_term", counting)
    size, options = 60, {"base": 3, "cap": 3, "tau": 1.1}
    policy = at(XI)
    thetas, noises = batch_of(STEP, policy, size, jr.key(0))
    run = jax.jit(lambda key: mlmc_batch(STEP, policy, thetas, noises, key=key, **options).sum())
    repeats = 20
    jax.block_until_ready([run(key) for key in jr.split(jr.key(1), repeats)])
    jax.effects_barrier()
    expected = expected_nle(STEP, batch=size, **options)
    # At most one trajectory too many in a block of nine or more; the rest is the randomness of the
    # levels.
    assert 0.9 < sum(spent) / repeats / expected < 1.15
    assert sum(spent) / repeats < 0.35 * padded_nle(STEP, batch=size, **options)


@pytest.mark.parametrize(
    ("change", "message"), [({"tau": 0.0}, "the rate τ"), ({"cap": -1}, "the highest level")]
)
def test_bad_levels_are_refused(change, message):
    with pytest.raises(InvalidValueError, match=message):
        stratify(10, key=jr.key(0), **(LEVELS | change))
