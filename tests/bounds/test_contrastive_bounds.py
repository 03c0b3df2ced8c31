"""Bounds of the EIG against closed forms: where they must lie, how far off they are, and how sure
they may be.
"""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jaxtyping import Array

from scorebed.bounds import contrastive as module
from scorebed.bounds.contrastive import Bounds, contrastive_sum, eig_bounds
from scorebed.bounds.groups import mean_over_groups
from scorebed.errors import InvalidValueError
from scorebed.estimators.log_ratios import lower_log_ratio, upper_log_ratio
from scorebed.keys import named
from scorebed.policies.static import Static
from scorebed.rollout import log_likelihood, log_likelihoods, simulate
from scorebed.tasks import TASKS
from scorebed.tasks.base import Task
from scorebed.tasks.oracles.linear_gaussian import LinearGaussian
from scorebed.tasks.oracles.linear_markov import LinearMarkov
from scorebed.tasks.oracles.sign import Sign
from scorebed.tasks.priors import Prior
from scorebed.tasks.spaces import Quantity, Real

ALARM = 4.892  # standard errors: one false alarm in a million


def fixed(task: Task, *xis: float) -> Static:
    """The designs as they are, whatever the space."""
    return Static(jnp.asarray(xis, jnp.float32)[:, None], Real(task.designs.quantities))


# One small evaluation, in groups of 16 and of 15, which all tests of its bookkeeping share with the
# programs compiled for it.
STEP, OUTER, INNER = LinearGaussian(horizon=1), 250, 3


def small_bounds(xi: float, **options: Any) -> Bounds:
    return eig_bounds(STEP, fixed(STEP, xi), outer=OUTER, inner=INNER, key=jr.key(0), **options)


def small_groups(xi: float) -> list[tuple[Array, Array]]:
    sizes = [16] * 10 + [15] * 6
    return [
        module._group_bounds(STEP, fixed(STEP, xi), n, INNER, named(jr.key(0), g))
        for g, n in enumerate(sizes)
    ]


# --- the sum over contrastive parameters ---------------------------------------------------------


def test_the_streamed_sum_is_the_direct_one(monkeypatch):
    monkeypatch.setattr(module, "CHUNK", 8)
    inner = 37
    task = LinearMarkov(
        noise=0.1
    )  # log-likelihoods down to −1000, so that most terms are negligible
    key = jr.key(0)
    runs = jax.jit(jax.vmap(lambda k: simulate(task, fixed(task, 2.0, -1.0, 0.5), key=k)))(
        jr.split(jr.key(1), 5)
    )
    # The draws, as they are made chunk by chunk; the last chunk is cut short.
    chunks = [jr.split(jr.fold_in(key, i), min(8, inner)) for i in range(-(-inner // 8))]
    thetas = jax.vmap(lambda k: task.prior.sample(key=k))(jnp.concatenate(chunks)[:inner])
    each = np.asarray(
        jax.vmap(lambda y, xi: log_likelihoods(task, thetas, y, xi))(runs.ys, runs.xis), np.float64
    )
    found = contrastive_sum(task, runs.ys, runs.xis, inner, key=key)
    np.testing.assert_allclose(found, np.logaddexp.reduce(each, axis=1), rtol=3e-7)


class Impossible(Prior):
    """θ so far from the data that its likelihood is zero."""

    quantities: tuple = eqx.field(static=True, default=(Quantity("coefficient"),))

    def from_latent(self, z):
        return z + 1e30

    def log_prob(self, theta):
        del theta
        return jnp.zeros(())


def test_likelihoods_of_zero_give_a_sum_of_zero():
    task = LinearGaussian(horizon=1)
    strange = eqx.tree_at(
        lambda t: t.prior, task, Impossible(), is_leaf=lambda x: isinstance(x, Prior)
    )
    total = contrastive_sum(strange, jnp.zeros((2, 1, 1)), jnp.ones((2, 1, 1)), 5000, key=jr.key(0))
    np.testing.assert_array_equal(total, -np.inf)


def test_an_infinite_upper_bound_has_no_standard_error():
    mean, error = mean_over_groups([2, 2], [np.inf, 3.0])
    assert mean == math.inf
    assert math.isnan(error)


# --- where the bounds lie ------------------------------------------------------------------------


def test_the_bounds_bracket_the_eig_closely():
    task = Sign(noise=1.5)
    xis = (0.5, -0.8, 0.3)
    found = eig_bounds(task, fixed(task, *xis), outer=4000, inner=1000, key=jr.key(0))
    eig = float(task.eig(jnp.asarray(xis)[:, None]))
    assert found.lower - ALARM * found.lower_se <= eig <= found.upper + ALARM * found.upper_se
    assert found.upper - found.lower < 0.03
    assert found.lower_se < 0.02
    assert found.nle == 4000 * 1001 * 3


def test_the_leading_bias_of_both_bounds():
    # T = 1, ξ = τ = σ = 1: EIG = ½ log 2 and the biases are ∓(e^{2 EIG} − 1)/(2M) = ∓1/400, up to
    # O(1/M²). Leaving out θ_0 in the lower bound, or dividing by M where M + 1 belongs, moves it by
    # more than twice as much.
    task, inner, count = LinearGaussian(horizon=1), 200, 40_000

    def errors(key: Array) -> tuple[Array, Array]:
        """Per trajectory, less a control variate: the relative error of the sum, which has mean
        zero given the outcomes.
        """
        run = simulate(task, fixed(task, 1.0), key=named(key, "run"))
        own = log_likelihood(task, run.theta, run.ys, run.xis)
        marginal = task.marginal_log_prob(run.ys, run.xis)
        total = contrastive_sum(task, run.ys[None], run.xis[None], inner, key=named(key, "inner"))[
            0
        ]
        excess = jnp.exp(total - marginal - math.log(inner)) - 1
        lower = lower_log_ratio(own, own, total, inner)
        upper = upper_log_ratio(own, total, inner)
        return lower - (own - marginal) + excess * inner / (inner + 1), upper - (
            own - marginal
        ) + excess

    lower, upper = (
        np.asarray(e, np.float64) for e in jax.jit(jax.vmap(errors))(jr.split(jr.key(0), count))
    )
    for error, bias in ((lower, -1 / (2 * inner)), (upper, 1 / (2 * inner))):
        allowed = ALARM * error.std() / math.sqrt(count) + 0.1 / (2 * inner)
        assert abs(error.mean() - bias) <= allowed, (error.mean(), bias, allowed)
        assert allowed < 0.5 / (2 * inner)


# --- the ceiling ---------------------------------------------------------------------------------


def test_no_trajectory_passes_the_ceiling_and_saturated_ones_are_counted():
    found = small_bounds(1e3)
    assert found.ceiling == math.log(INNER + 1)
    assert 0.99 * found.ceiling < found.lower <= found.ceiling
    assert found.saturated > 0.98
    assert "use more inner samples or tight_bounds" in str(found)
    easy = small_bounds(0.1)
    assert easy.saturated == 0
    assert "cannot exceed" not in str(easy)


def test_saturated_means_that_the_own_parameter_is_half_of_the_sum():
    lowers = np.concatenate([np.asarray(group[0]) for group in small_groups(2.0)])
    assert (lowers <= np.float32(math.log(INNER + 1))).all()
    share = np.exp(lowers) / (INNER + 1)
    assert 0 < small_bounds(2.0).saturated < 1
    assert small_bounds(2.0).saturated == np.mean(share > 0.5)


def test_the_text_of_a_bound():
    bound = Bounds(1.23456, 0.01, 1.3, 0.02, 100, 50, math.log(51), 0.04, 100)
    assert str(bound) == "1.235 ± 0.010 ≤ EIG ≤ 1.300 ± 0.020 nats"
    saturated = str(Bounds(1.23456, 0.01, 1.3, 0.02, 100, 50, math.log(51), 0.4, 100))
    assert "40% of the trajectories" in saturated
    assert "log(M+1) = 3.93" in saturated


# --- how sure ------------------------------------------------------------------------------------


def test_the_standard_error_is_right_in_spite_of_shared_draws():
    # Sixteen groups of 128 trajectories with M = 2: the shared draws dominate. 80 evaluations, all
    # groups at once.
    task, size, repeats = LinearGaussian(horizon=1), 128, 80
    policy = fixed(task, 1.5)
    keys = jr.split(jr.key(0), repeats)
    one = lambda k, g: module._group_bounds(task, policy, size, 2, jr.fold_in(k, g))  # noqa: E731
    every = jax.jit(jax.vmap(jax.vmap(one, in_axes=(None, 0)), in_axes=(0, None)))
    for values in map(np.asarray, every(keys, jnp.arange(16))):
        means, errors = np.transpose(
            [mean_over_groups([size] * 16, v.astype(np.float64).sum(1).tolist()) for v in values]
        )
        spread = means.std(ddof=1)
        naive = (values.reshape(repeats, -1).std(axis=1) / math.sqrt(16 * size)).mean()
        # The spread of 80 is itself known to 8%; the mean of the reported ones falls short by 2% of
        # 15 degrees of freedom.
        assert abs(errors.mean() / spread - 1) < 0.25
        assert naive < 0.6 * spread


def test_eig_bounds_is_the_mean_of_its_groups():
    seen = []
    found = small_bounds(1.5, on_group=lambda *progress: seen.append(progress))
    assert seen == [(g + 1, 16) for g in range(16)]
    groups = small_groups(1.5)
    for part, (mean, error) in enumerate(
        [(found.lower, found.lower_se), (found.upper, found.upper_se)]
    ):
        each = [np.asarray(group[part], np.float64) for group in groups]
        flat = np.concatenate(each)
        assert len(flat) == OUTER
        np.testing.assert_allclose(mean, flat.mean(), rtol=1e-6)
        sums = np.asarray([e.sum() - len(e) * flat.mean() for e in each])
        np.testing.assert_allclose(error, math.sqrt(16 / 15 * (sums**2).sum()) / OUTER, rtol=1e-5)


def test_large_evaluations_have_more_groups_and_not_larger_ones(monkeypatch):
    sizes = []

    def pretend(
        task: Task, policy: Static, size: int, inner: int, key: Array
    ) -> tuple[np.ndarray, np.ndarray]:
        del task, policy, inner, key
        sizes.append(size)
        return np.zeros(size), np.zeros(size)

    monkeypatch.setattr(module, "_group_bounds", pretend)
    for outer in (3, 2048, 4097, 100_000):
        sizes.clear()
        eig_bounds(STEP, fixed(STEP, 1.0), outer=outer, inner=10, key=jr.key(0))
        assert sum(sizes) == outer
        assert max(sizes) <= module.LARGEST_GROUP
        assert len(sizes) >= min(16, outer)


@pytest.mark.parametrize("sizes", [{"outer": 1}, {"inner": 0}])
def test_two_trajectories_are_the_least(sizes):
    with pytest.raises(InvalidValueError, match="the size of a bound"):
        eig_bounds(STEP, fixed(STEP, 1.5), **({"outer": 4, "inner": 4} | sizes), key=jr.key(0))


# --- memory --------------------------------------------------------------------------------------


def test_memory_does_not_grow_with_the_number_of_contrastive_parameters():
    # The paper's largest evaluation, 5·10⁶ parameters: a chunk of them by the largest group, twice
    # over, is 8 MB.
    task = TASKS["location-finding"]()
    policy = Static.random(task.horizon, task.designs, key=jr.key(0))
    program = module._group_bounds.lower(
        task, policy, module.LARGEST_GROUP, 5_000_000, jr.key(0)
    ).lowered
    memory = program.compile(
        {"xla_backend_optimization_level": 0}
    ).memory_analysis()  # buffers are assigned before that
    assert memory.temp_size_in_bytes < 30e6
