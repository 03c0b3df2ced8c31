"""The myopic designer, against closed forms: its gain, its choice, its posterior and its cost."""

import functools
import math
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from scorebed.baselines.myopic import Myopic, ParticleBelief
from scorebed.bounds.contrastive import eig_bounds
from scorebed.errors import InvalidValueError
from scorebed.rollout import draw_noise, rollout
from scorebed.tasks import TASKS
from scorebed.tasks.base import IID, Gaussian, History, Markov
from scorebed.tasks.oracles.linear_gaussian import LinearGaussian
from scorebed.tasks.oracles.projection import Projection
from scorebed.tasks.priors import Prior, standard_normal
from scorebed.tasks.spaces import Box, Quantity

# At this size a program runs in no time, and what is left is compiling it.
SMALL = {"particles": 16, "outer": 4, "candidates": 6, "rounds": 1, "moves": 1, "levels": 2}


def assert_mean(samples, truth, slack=0.0):
    """|mean − truth| ≤ 4.892 standard errors: a false alarm in a million. `slack` is a bias that is
    known and allowed.
    """
    samples = np.asarray(samples, np.float64)
    error = np.abs(samples.mean(0) - np.asarray(truth))
    limit = 4.892 * samples.std(0, ddof=1) / math.sqrt(len(samples)) + slack
    assert np.all(error <= limit), f"off by {error}, allowed {limit}"


class Amplifier(Markov, Gaussian):
    """y_t = θ y_{t−1} ξ_t + σ ε_t from y_0 = 1: how much a step can tell depends on the state
    before it.
    """

    prior: Prior
    designs: Box = eqx.field(static=True)
    outcomes: tuple[Quantity, ...] = eqx.field(static=True, default=(Quantity("state"),))
    horizon: int = eqx.field(static=True, default=2)
    additive_noise: bool = eqx.field(static=True, default=True)

    def __init__(self):
        self.prior = standard_normal((Quantity("gain"),))
        self.designs = Box((Quantity("input"),), (-1.0,), (1.0,))

    def start(self):
        return jnp.ones(1)

    def mean(self, theta, state, xi):
        return theta * state * xi

    def scale(self, theta, state, xi):
        del theta, state, xi
        return (1.0,)


# --- the gain -----------------------------------------------------------------------------------


@functools.cache
def gains():
    """Estimated gain at ξ = 1 of independent designers: before any data, and with weights for y_1 =
    1.5 at ξ_1 = 0.5.
    """
    task = Amplifier()

    def run(key):
        key_policy, key_before, key_after = jr.split(key, 3)
        policy = Myopic(task, particles=256, outer=64, key=key_policy)
        before, y = policy.init(), 1.5
        log_weights = -0.5 * (y - 0.5 * before.theta[:, 0]) ** 2
        data = (log_weights, before.ys.at[0].set(y), before.observed + 1)
        after = eqx.tree_at(lambda b: (b.log_weights, b.ys, b.observed), before, data)
        return policy.eig(before, jnp.ones(1), key=key_before), policy.eig(
            after, jnp.ones(1), key=key_after
        )

    return jax.jit(jax.vmap(run))(jr.split(jr.key(0), 256))


def test_gain_under_the_prior_is_the_closed_form():
    # The standard error is 0.005. Without the θ that made the outcome among the particles of its
    # marginal, or with natural logarithms mistaken, it is off by far more; the finite number of
    # particles takes (e^{2 EIG} − 1) / 2N = 0.002.
    before, _ = gains()
    assert_mean(before, 0.5 * math.log(2), 0.004)


def test_gain_under_weighted_particles_and_in_a_new_state_is_the_closed_form():
    # The standard error is 0.006. The state of the start would give 0.29 in place of 0.51, the
    # weights of the prior 0.59.
    _, after = gains()
    signal = 1.5**2 / (1 + 0.5**2)
    assert_mean(after, 0.5 * math.log(1 + signal), signal / 256)


# --- the choice ---------------------------------------------------------------------------------


def test_chooses_the_limits_of_a_box():
    policy = Myopic(LinearGaussian(bound=1.5), particles=64, outer=32, candidates=8, key=jr.key(0))
    rows = policy.sample_noise(32, key=jr.key(1))
    xis = np.asarray(
        eqx.filter_jit(lambda p, rows: jax.vmap(lambda row: p.design(p.init(), row))(rows))(
            policy, rows
        )
    )
    np.testing.assert_array_equal(np.abs(xis), 1.5)
    assert 0.2 < np.mean(xis > 0) < 0.8  # both sides are equally good


@pytest.mark.slow
def test_bounds_of_its_designs_are_those_of_the_optimum():
    # The information gain of a trajectory is the same for all here, so the standard error is that
    # of the bounds alone, about 0.04. Designs uniform in the box lose 0.36 nats.
    task = LinearGaussian(bound=1.5, horizon=2)
    policy = Myopic(task, particles=64, outer=32, candidates=8, moves=2, levels=4, key=jr.key(0))
    bounds = eig_bounds(task, policy, outer=256, inner=2000, key=jr.key(2))
    assert bounds.lower_se < 0.06
    assert abs(bounds.lower - task.optimal_eig()) < 4.892 * bounds.lower_se
    assert abs(bounds.upper - task.optimal_eig()) < 4.892 * bounds.upper_se


REPEATS, PARTICLES = 128, 128

design, update = (jax.jit(jax.vmap(method)) for method in (Myopic.design, Myopic.update))


class Experiments(NamedTuple):
    """Independent designers at the bench, each with an experiment of its own: everything has
    `REPEATS` in front.
    """

    task: Projection
    policies: Myopic
    beliefs: list[ParticleBelief]
    ys: np.ndarray
    xis: np.ndarray


@functools.cache
def experiments():
    """Directions one after the other, step by step."""
    task = Projection(noise=0.5, horizon=4)
    sizes = {"particles": PARTICLES, "outer": 64, "candidates": 8, "moves": 1, "levels": 8}
    policies = jax.jit(jax.vmap(lambda key: Myopic(task, **sizes, key=key)))(
        jr.split(jr.key(3), REPEATS)
    )
    random = np.random.default_rng(4)
    theta = random.normal(size=(REPEATS, 2)).astype(np.float32)
    rows = random.uniform(size=(4, REPEATS, 2)).astype(np.float32)
    beliefs = [jax.vmap(Myopic.init)(policies)]
    for row in rows:
        xi = design(policies, beliefs[-1], row)
        a = np.concatenate([np.cos(xi), np.sin(xi)], 1)
        y = (a * theta).sum(1, keepdims=True) + 0.5 * random.normal(size=(REPEATS, 1))
        beliefs.append(update(policies, beliefs[-1], xi, jnp.asarray(y, jnp.float32)))
    return Experiments(
        task, policies, beliefs, np.asarray(beliefs[-1].ys), np.asarray(beliefs[-1].xis)
    )


@pytest.mark.slow
def test_second_direction_is_orthogonal_to_the_first():
    """An optimum in the interior, which moves with the history."""
    run = experiments()
    turned = np.sin(run.xis[:, 0, 0] - run.xis[:, 1, 0]) ** 2
    # A direction at random has a mean of 1/2, and loses 0.3 nats.
    assert turned.mean() > 0.9, turned
    rho = 0.5**-2
    gained = 0.5 * np.log(1 + 2 * rho + rho**2 * turned)
    assert gained.mean() > math.log1p(rho) - 0.05


# --- the posterior ------------------------------------------------------------------------------


def test_particles_are_the_exact_posterior_after_every_outcome():
    # In units of the exact posterior, the standard errors are about 0.014, and the bias of few
    # particles is 1/N. Forgetting an outcome or weighting by one twice is off by a tenth and more,
    # even where a move follows that repairs half of it.
    run = experiments()
    renewed = np.stack(
        [np.asarray(belief.known) == t for t, belief in enumerate(run.beliefs[1:], 1)]
    )
    assert 0.1 < renewed.mean() < 0.9, "both kinds of update should occur"
    for t in range(1, 5):
        exact = jax.jit(jax.vmap(run.task.posterior))(run.ys[:, :t], run.xis[:, :t])
        whiten = np.linalg.inv(np.linalg.cholesky(np.asarray(exact.covariance, np.float64)))
        away = np.asarray(run.beliefs[t].theta) - np.asarray(exact.mean)[:, None]
        away = np.einsum("rij,rnj->rni", whiten, away)
        weights = np.asarray(jax.vmap(lambda belief: belief.weights)(run.beliefs[t]))
        assert_mean(np.einsum("rn,rni->ri", weights, away), 0.0, 2 / PARTICLES)
        second = np.einsum("rn,rni,rnj->rij", weights, away, away)
        assert_mean(second, np.eye(2), 4 / PARTICLES)
        assert_mean(second.trace(axis1=1, axis2=2) / 2, 1.0, 2 / PARTICLES)


# --- the protocol -------------------------------------------------------------------------------


def test_belief_holds_the_history_in_arrays_of_fixed_shapes():
    run = experiments()
    for belief in run.beliefs[1:]:
        same = jax.tree.map(
            lambda a, b: a.shape == b.shape and a.dtype == b.dtype, run.beliefs[0], belief
        )
        assert jax.tree.all(same)
    for t, belief in enumerate(run.beliefs):
        assert np.all(np.asarray(belief.observed) == t)
        np.testing.assert_array_equal(np.asarray(belief.xis)[:, :t], run.xis[:, :t])
        np.testing.assert_array_equal(np.asarray(belief.ys)[:, :t], run.ys[:, :t])


def test_noise_decides_the_search_and_nothing_else_does():
    run = experiments()
    first, (one, two) = (
        jax.tree.map(lambda leaf: leaf[:1], (run.policies, run.beliefs[0])),
        jr.uniform(jr.key(8), (2, 2)),
    )
    policies, beliefs = jax.tree.map(lambda leaf: jnp.repeat(leaf, REPEATS, axis=0), first)
    rows = jnp.stack([one, one, two, one.at[0].set(two[0]), one.at[1].set(two[1])])
    xis = np.asarray(design(policies, beliefs, jnp.resize(rows, (REPEATS, 2))))[:, 0]
    assert xis[0] == xis[1]
    assert len(set(xis[1:5].tolist())) == 4


@pytest.mark.parametrize("name", TASKS)
def test_every_task_of_the_library_in_either_precision(name):
    """Traced, not run: shapes, types and the runtime checks of every signature."""
    task = TASKS[name](horizon=2)

    def act(key):
        policy = Myopic(task, **SMALL, key=key)
        memory, xi = policy.init(), policy.design(policy.init(), policy.sample_noise(2, key=key)[0])
        return xi, memory, policy.update(memory, xi, jnp.zeros(task.outcome_dim))

    with jax.enable_x64(name in ("pendulum", "gravimetry")):
        xi, memory, after = jax.eval_shape(act, jr.key(0))
        assert xi.shape == (task.designs.dim,)
        assert xi.dtype == (jnp.float64 if name in ("pendulum", "gravimetry") else jnp.float32)
        assert jax.tree.all(jax.tree.map(lambda a, b: a == b, memory, after))


def test_gradients_pass_by():
    """They are zero, not an error, although there are loops in which nothing can be differentiated
    backwards.
    """
    task = Projection()
    policy = Myopic(task, **SMALL, key=jr.key(0))
    noise = draw_noise(task, policy, key=jr.key(1))
    jax.eval_shape(
        jax.grad(lambda theta: rollout(task, policy, theta, noise).ys.sum()), jnp.ones(2)
    )


# --- errors -------------------------------------------------------------------------------------


@pytest.mark.parametrize("outcome", [1e30, math.nan, -math.inf])
def test_an_impossible_outcome_is_an_error(outcome):
    """In one experiment of many."""
    run = experiments()
    ys = run.ys[:, 0].copy()
    ys[5] = outcome
    with pytest.raises(Exception, match=r"no particle of its posterior can have made.*Fix:"):
        jax.block_until_ready(update(run.policies, run.beliefs[0], run.xis[:, 0], ys))


def test_an_outcome_past_the_horizon_is_an_error():
    run = experiments()
    with pytest.raises(Exception, match=r"after the last step.*Fix:"):
        jax.block_until_ready(update(run.policies, run.beliefs[-1], run.xis[:, 0], run.ys[:, 0]))


def test_gains_that_are_no_numbers_are_an_error():
    run = experiments()
    lost = eqx.tree_at(
        lambda b: b.theta, run.beliefs[0], jnp.full_like(run.beliefs[0].theta, jnp.nan)
    )
    with pytest.raises(Exception, match=r"NaN as the information gain.*Fix:"):
        jax.block_until_ready(design(run.policies, lost, jnp.zeros((REPEATS, 2))))


class Remembering(History, Gaussian):
    """A state that does not follow from the last outcome."""

    prior: Prior
    designs: Box = eqx.field(static=True)
    outcomes: tuple[Quantity, ...] = eqx.field(static=True, default=(Quantity("y"),))
    horizon: int = eqx.field(static=True, default=2)
    additive_noise: bool = eqx.field(static=True, default=True)

    def initial(self, theta):
        return theta

    def advance(self, theta, state, xi, y):
        del theta, xi
        return state + y

    def mean(self, theta, state, xi):
        return theta + state + xi

    def scale(self, theta, state, xi):
        del theta, state, xi
        return (1.0,)


def test_refuses_what_it_cannot_do():
    amplifier = Amplifier()
    with pytest.raises(InvalidValueError, match=r"got Remembering.*Fix:"):
        Myopic(Remembering(amplifier.prior, amplifier.designs), key=jr.key(0))
    for wrong in (
        {"particles": 1},
        {"outer": 0},
        {"candidates": 1},
        {"rounds": -1},
        {"moves": 0},
        {"levels": 0},
    ):
        with pytest.raises(InvalidValueError, match="Fix:"):
            Myopic(amplifier, **wrong, key=jr.key(0))


# --- cost ---------------------------------------------------------------------------------------


class Counted(IID):
    """y = θ ξ + noise, which counts every likelihood that is evaluated."""

    prior: Prior
    designs: Box = eqx.field(static=True)
    count: list[int] = eqx.field(static=True)
    outcomes: tuple[Quantity, ...] = eqx.field(static=True, default=(Quantity("y"),))
    horizon: int = eqx.field(static=True, default=1)
    additive_noise: bool = eqx.field(static=True, default=True)

    def outcome(self, theta, state, xi, noise):
        del state
        return theta * xi + 0.1 * noise

    def log_prob(self, y, theta, state, xi):
        del state
        away = (y - theta * xi)[0] / 0.1
        jax.debug.callback(lambda _: self.count.append(1), away)
        return -0.5 * away**2


def test_every_likelihood_is_counted():
    task = Counted(Amplifier().prior, Amplifier().designs, [])
    policy = Myopic(
        task, particles=5, outer=3, candidates=4, rounds=1, moves=2, levels=3, key=jr.key(9)
    )

    @jax.jit
    def step(row):
        memory = policy.init()
        return policy.update(memory, policy.design(memory, row), jnp.asarray([0.5]))

    memory = step(jnp.asarray([0.3, 0.4]))
    jax.effects_barrier()
    assert int(memory.known) == 1, "the particles should have been renewed"
    assert policy.nle(memory) == len(task.count)
    assert policy.nle_lower == 5 * (2 * 4 * 3 + 1)
    assert policy.nle_upper == policy.nle_lower + 5 * (1 + 2 * 3)
    assert policy.nle_lower < len(task.count) <= policy.nle_upper


def test_cost_without_renewals_is_the_lower_figure():
    policy = Myopic(LinearGaussian(horizon=4), **SMALL, key=jr.key(0))
    assert policy.nle_lower == 4 * 16 * (6 * 2 * 4 + 1)
    assert policy.nle_upper == policy.nle_lower + 16 * (1 + 2 + 3 + 4) * (1 + 2 * 1)
