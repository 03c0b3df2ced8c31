"""Bounds by SMC from both sides: unbiased estimates of a known marginal likelihood, and of its
inverse.
"""

import functools
import json
import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from test_importance_bounds import ALARM, Normal, experiments, fixed, information, random_run  # noqa: F401

from scorebed.bounds import smc as module
from scorebed.bounds.contrastive import contrastive_sum
from scorebed.bounds.importance import Importance, importance_bounds
from scorebed.bounds.smc import (
    SMC,
    Annealing,
    Start,
    smc_bounds,
    smc_trajectory_bounds,
    usual_start,
)
from scorebed.cli._app import run as main
from scorebed.errors import InvalidValueError
from scorebed.estimators.log_ratios import lower_log_ratio, upper_log_ratio
from scorebed.inference.gaussian_mixture import Proposal
from scorebed.policies.random import RandomDesigns
from scorebed.rollout import log_likelihood
from scorebed.runs.evaluation import tighter
from scorebed.samplers.paper import reference_sampler
from scorebed.tasks import make_task
from scorebed.tasks.library.location import LocationFinding
from scorebed.tasks.oracles.linear_gaussian import LinearGaussian

XIS = ((1.5, 0.5), (-0.5, 1.0), (0.5, -2.0))
PAIR = LinearGaussian(mean=(0.0, 0.0), covariance=((1.0, 0.0), (0.0, 1.0)))
SHIFTED = Normal(jnp.asarray([0.8]), 1.3)  # neither the prior nor the posterior of a part


def experiment(key: Any) -> tuple[Any, Any, Any]:
    key_z, key_noise = jr.split(key)
    z, xis = jr.normal(key_z, (2,)), jnp.asarray(XIS)
    return z, (xis @ z + jr.normal(key_noise, (3,)))[:, None], xis


def test_a_run_that_keeps_a_path_has_the_law_that_the_lower_bound_needs(monkeypatch):
    # With r = Ẑ/p(y|ξ), E[r] = 1 without a path, and E[f(r)] with one is E[r f(r)] without; f(r) =
    # 1/(1+r) keeps both below one. Three particles, and resampling at nearly every level: whatever
    # is wrong with moves, weights or the path shows.
    for name, value in (("UNEVEN", 0.95), ("DRAWS", 0.5), ("OCTAVES", 1.0)):
        monkeypatch.setattr(module, name, value)

    def one(key: Any) -> tuple[Any, Any, Any]:
        key_run, *keys = jr.split(key, 4)
        z, ys, xis = experiment(key_run)
        annealing = Annealing(PAIR, ys, xis, SHIFTED, 2, 4, 2)
        free = annealing.run(3, None, key=keys[0])
        kept = annealing.run(3, annealing.path_to(z, key=keys[1]), key=keys[2])
        truth = PAIR.marginal_log_prob(ys, xis)
        return free.log_evidence - truth, kept.log_evidence - truth, kept.log_evidence - kept.alone

    found = jax.jit(jax.vmap(one))(jr.split(jr.key(7), 60_000))
    log_free, log_kept, below_ceiling = (np.asarray(each, np.float64) for each in found)
    free, kept = np.exp(log_free), np.exp(log_kept)
    for difference, precise in ((free - 1, 0.05), (1 / (1 + kept) - free / (1 + free), 0.01)):
        slack = ALARM * difference.std() / math.sqrt(len(difference))
        assert slack < precise
        assert abs(difference.mean()) < slack
    assert free.std() > 0.3  # so that unbiased says something
    # What follows: the upper bound is too high on average and the lower one too low, by far more
    # than the error here.
    assert log_free.mean() < -0.1 < 0.1 < log_kept.mean()
    assert below_ceiling.min() > -1e-4


@pytest.mark.slow
def test_one_level_is_importance_sampling():
    # The same exact proposal and the same experiments: both are the information, whatever else is
    # random.
    task, policy = LinearGaussian(), fixed(LinearGaussian(), 1.0, -0.5, 2.0)

    def exact(task: Any, ys: Any, xis: Any, *, key: Any) -> Normal:
        del key
        posterior = task.posterior(ys, xis)
        return Normal(posterior.mean, jnp.sqrt(posterior.covariance[0, 0]))

    begin = lambda *data, key: Start(exact(*data, key=key), 1, jnp.asarray(0))  # noqa: E731
    propose = lambda *data, key: Proposal(exact(*data, key=key), jnp.asarray(0))  # noqa: E731
    ours = smc_bounds(task, policy, outer=4, inner=2, levels=1, moves=1, begin=begin, key=jr.key(3))
    theirs = importance_bounds(task, policy, outer=4, inner=2, propose=propose, key=jr.key(3))
    np.testing.assert_allclose([ours.lower, ours.upper], [theirs.lower, theirs.upper], atol=1e-5)
    assert ours.nle == 4 * (2 * 2 + 1) * 2 * 3


@pytest.mark.slow
def test_many_sources_start_near_the_sensors_and_agree_with_contrastive_bounds():
    task, count = LocationFinding(sources=5, horizon=4, noise=1.0), 48
    z, ys, xis = experiments(task, RandomDesigns(reference_sampler(task)[0]), count, jr.key(5))
    run = functools.partial(
        smc_trajectory_bounds, task, begin=usual_start, particles=64, levels=32, moves=2
    )
    found = jax.jit(jax.vmap(lambda *given: run(*given[:3], key=given[3])))(
        z, ys, xis, jr.split(jr.key(6), count)
    )
    own = jax.vmap(lambda z, y, xi: log_likelihood(task, task.prior.from_latent(z), y, xi))(
        z, ys, xis
    )
    total = eqx.filter_jit(contrastive_sum)(task, ys, xis, 20_000, key=jr.key(6))
    for ours, theirs in zip(
        (found.lower, found.upper),
        (lower_log_ratio(own, own, total, 20_000), upper_log_ratio(own, total, 20_000)),
        strict=True,
    ):
        difference = np.asarray(ours, np.float64) - np.asarray(theirs, np.float64)
        allowed = ALARM * difference.std() / math.sqrt(count)
        assert allowed < 0.15
        assert abs(difference.mean()) <= allowed


@pytest.mark.parametrize("sizes", [{"outer": 1}, {"inner": 1}, {"levels": 0}, {"moves": 0}])
def test_sizes_that_make_no_bound_are_refused(sizes):
    with pytest.raises(InvalidValueError, match="the size of a bound by SMC"):
        smc_bounds(LinearGaussian(), fixed(LinearGaussian(), 1.0, 1.0, 1.0), **sizes, key=jr.key(0))


def test_evaluate_counts_what_it_cost_and_only_smc_has_levels(random_run, capsys, monkeypatch):  # noqa: F811
    monkeypatch.setattr(
        module, "usual_start", lambda *_, key: Start(SHIFTED, 1, key.size * jnp.asarray(7))
    )
    sizes = ["--outer", "16", "--inner", "8", "--levels", "2"]
    assert main(["evaluate", str(random_run), *sizes, "--bound", "smc", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["bound"], answer["outer"], answer["inner"]) == ("smc", 16, 8)
    assert answer["nle_evaluation"] == 16 * (7 + (2 * 8 + 1) * (1 + 2 * module.MOVES)) * 3
    assert main(["evaluate", str(random_run), *sizes, "--bound", "importance"]) == 2
    assert "expected --bound smc" in capsys.readouterr().err


def test_ten_sources_are_sent_to_smc():
    assert tighter({"task": "location-finding-3d"}, "run") == "scorebed evaluate run --bound tight"
    assert make_task("location-finding-3d").tight_bound == SMC.name
    assert make_task("location-finding").tight_bound == Importance.name
