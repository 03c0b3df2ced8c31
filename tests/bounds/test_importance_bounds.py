"""Importance-sampled bounds against closed forms, against contrastive ones, and against proposals
that break the rules.
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
from jaxtyping import Array, Float

from records import some_record
from scorebed.bounds import importance as module
from scorebed.bounds.contrastive import contrastive_sum
from scorebed.bounds.importance import importance_bounds, latent_experiment, trajectory_bounds
from scorebed.cli._app import run as main
from scorebed.errors import InvalidValueError
from scorebed.estimators.log_ratios import lower_log_ratio, upper_log_ratio
from scorebed.inference.fitted import fitted_posterior
from scorebed.inference.gaussian_mixture import Density, Proposal, standard_normal_log_prob
from scorebed.keys import named
from scorebed.policies.random import RandomDesigns
from scorebed.policies.static import Static
from scorebed.rollout import log_likelihood, simulate
from scorebed.runs.config import from_values, to_toml
from scorebed.samplers.paper import reference_sampler
from scorebed.tasks.base import Task
from scorebed.tasks.library.location import LocationFinding
from scorebed.tasks.oracles.linear_gaussian import LinearGaussian
from scorebed.tasks.oracles.linear_markov import LinearMarkov
from scorebed.tasks.oracles.sign import Sign
from scorebed.tasks.spaces import Real

ALARM = 4.892  # standard errors: one false alarm in a million
XIS = (1.0, -0.5, 2.0)
small_fit = functools.partial(fitted_posterior, particles=64, moves=2, components=2)


def fixed(task: Task, *xis: float) -> Static:
    """The designs as they are, whatever the space."""
    return Static(jnp.asarray(xis, jnp.float32)[:, None], Real(task.designs.quantities))


class Normal(Density):
    """N(mean, scale² I)."""

    mean: Float[Array, " k"]
    scale: Float[Array, ""] | float

    def sample(self, *, key):
        return self.mean + self.scale * jr.normal(key, self.mean.shape)

    def log_prob(self, z):
        return standard_normal_log_prob((z - self.mean) / self.scale) - z.size * jnp.log(self.scale)


def exact(task, ys, xis, *, key):
    """The posterior of a scalar standard normal parameter, for a price of 7."""
    del key
    posterior = task.posterior(ys, xis)
    return Proposal(Normal(posterior.mean, jnp.sqrt(posterior.covariance[0, 0])), jnp.asarray(7))


def experiments(task: Task, policy: Any, count: int, key: Array) -> tuple[Array, Array, Array]:
    """Latents, outcomes and designs of the first trajectories of `importance_bounds` with
    this key.
    """
    keys = [named(jr.fold_in(key, n), "run") for n in range(count)]
    return eqx.filter_jit(
        lambda policy, keys: jax.vmap(lambda k: latent_experiment(task, policy, key=k))(keys)
    )(policy, jnp.stack(keys))


def information(task: Any, z: Array, ys: Array, xis: Array) -> Array:
    """log p(y|θ_0,ξ) / p(y|ξ) of one trajectory, whose mean over trajectories is the EIG."""
    return log_likelihood(task, task.prior.from_latent(z), ys, xis) - task.marginal_log_prob(
        ys, xis
    )


# --- the exact posterior -------------------------------------------------------------------------


@pytest.mark.parametrize("inner", [pytest.param(1, marks=pytest.mark.slow), 3])
def test_the_exact_posterior_makes_both_bounds_the_information_of_each_trajectory(
    monkeypatch, inner
):
    monkeypatch.setattr(module, "GROUP", 2)
    monkeypatch.setattr(module, "CHUNK", 2)
    task, seen, key = LinearGaussian(), [], jr.key(0)
    policy = fixed(task, *XIS)
    report = lambda *progress: seen.append(progress)  # noqa: E731
    found = importance_bounds(
        task, policy, outer=5, inner=inner, propose=exact, on_group=report, key=key
    )
    each = np.asarray(
        jax.vmap(functools.partial(information, task))(*experiments(task, policy, 5, key))
    )
    np.testing.assert_allclose([found.lower, found.upper], each.mean(), atol=2e-6)
    np.testing.assert_allclose(
        [found.lower_se, found.upper_se], each.std(ddof=1) / math.sqrt(5), rtol=1e-4
    )
    # Alone in the sum, z_0 would leave log(M+1) more.
    np.testing.assert_allclose(found.ceiling, each.mean() + math.log(inner + 1), atol=2e-6)
    assert found.saturated == 0 or inner == 1  # where it is just the half
    assert (
        found.nle == 5 * (inner + 1 + 7) * 3
    )  # the sixth trajectory, which fills the last group, is nobody's
    assert (found.outer, found.inner) == (5, inner)
    assert seen == [(1, 3), (2, 3), (3, 3)]


def test_its_experiments_are_those_of_simulate():
    task = LinearMarkov()
    policy = RandomDesigns(reference_sampler(task)[0])
    run = simulate(task, policy, key=jr.key(3))
    z, ys, xis = latent_experiment(task, policy, key=jr.key(3))
    for ours, theirs in ((task.prior.from_latent(z), run.theta), (ys, run.ys), (xis, run.xis)):
        np.testing.assert_array_equal(ours, theirs)


# --- proposals that are wrong --------------------------------------------------------------------


@functools.cache
def errors(inner: int, count: int) -> Any:
    """peeks → bounds less the information of their trajectory, on the scalar linear model of one
    step.

    The proposal is the posterior made twice as wide; or, if it peeks, a narrow one around the
    parameters themselves."""
    task = LinearGaussian(horizon=1)

    def one(key: Array, peeks: Array) -> tuple[Array, Array]:
        key_run, key_bounds = jr.split(key)
        z, ys, xis = latent_experiment(task, fixed(task, 1.5), key=key_run)
        posterior = task.posterior(ys, xis)
        scale = jnp.where(peeks, 0.1, 2 * jnp.sqrt(posterior.covariance[0, 0]))
        proposal = Proposal(Normal(jnp.where(peeks, z, posterior.mean), scale), jnp.asarray(0))
        found = trajectory_bounds(
            task, z, ys, xis, propose=lambda *_, **__: proposal, inner=inner, key=key_bounds
        )
        truth = information(task, z, ys, xis)
        return found.lower - truth, found.upper - truth

    run = jax.jit(lambda peeks: jax.vmap(lambda key: one(key, peeks))(jr.split(jr.key(1), count)))
    return lambda peeks: [np.asarray(error, np.float64) for error in run(jnp.asarray(peeks))]


def test_the_leading_bias_with_a_proposal_twice_too_wide():
    # With the ratio r of the widths, var(w / p(y)) = r²/√(2r² − 1) − 1 and the biases are ∓var/2M
    # up to O(1/M²). Leaving z_0 out of the lower bound, or M for M + 1, moves it by 1/M and more:
    # four times as much as the bias.
    inner, count = 20, 20_000
    bias = (4 / math.sqrt(7) - 1) / (2 * inner)
    for error, expected in zip(errors(inner, count)(peeks=False), (-bias, bias), strict=True):
        allowed = ALARM * error.std() / math.sqrt(count) + 0.15 * bias
        assert abs(error.mean() - expected) <= allowed, (error.mean(), expected, allowed)
        assert allowed < 0.7 * bias


def test_a_proposal_that_looks_at_the_parameters_breaks_the_lower_bound():
    # Why the rule is there: around z_0 and too narrow, it gives z_0 a small weight whatever the
    # posterior is.
    lower, _ = errors(20, 20_000)(peeks=True)
    assert lower.mean() - ALARM * lower.std() / math.sqrt(len(lower)) > 0.1


# --- the prior as proposal, and the ceiling ------------------------------------------------------


def test_the_prior_as_proposal_has_the_ceiling_of_contrastive_bounds():
    task = LinearGaussian()
    prior = lambda *_, **__: Proposal(Normal(jnp.zeros(1), 1.0), jnp.asarray(0))  # noqa: E731
    found = importance_bounds(
        task, fixed(task, 1e3, 1e3, 1e3), outer=32, inner=3, propose=prior, key=jr.key(0)
    )
    np.testing.assert_allclose(found.ceiling, math.log(4), rtol=1e-6)
    assert 0.99 * found.ceiling < found.lower <= found.ceiling + 1e-5
    assert found.saturated > 0.9
    assert "the trajectories are saturated" in str(found)
    assert "use more inner samples" in str(found)


def test_the_ceiling_of_a_better_proposal_is_not_called_that_of_the_prior():
    text = str(module.Bounds(5.0, 0.1, 6.0, 0.1, 100, 50, 7.25, 0.4, 100))
    assert "cannot exceed 7.25" in text
    assert "log" not in text
    assert text.endswith("use more inner samples")  # it is an importance bound already


def test_more_sources_than_can_be_exchanged_are_refused():
    task = LocationFinding(sources=5, horizon=2)
    with pytest.raises(InvalidValueError, match="--bound smc"):
        importance_bounds(
            task, RandomDesigns(reference_sampler(task)[0]), outer=2, inner=2, key=jr.key(0)
        )


@pytest.mark.parametrize(("outer", "inner"), [(1, 10), (10, 0)])
def test_sizes_that_make_no_bound_are_refused(outer, inner):
    task = LinearGaussian()
    with pytest.raises(InvalidValueError, match="the size of a bound"):
        importance_bounds(task, fixed(task, *XIS), outer=outer, inner=inner, key=jr.key(0))


# --- fitted posteriors ---------------------------------------------------------------------------


@functools.cache
def by_fit(task: Task, inner: int) -> Any:
    """(z, ys, xis) of many trajectories → their bounds by fitted posteriors."""
    one = functools.partial(trajectory_bounds, task, propose=small_fit, inner=inner)
    keys = lambda z: jr.split(jr.key(4), len(z))  # noqa: E731
    run = jax.jit(
        lambda z, ys, xis: jax.vmap(lambda *data: one(*data[:3], key=data[3]))(z, ys, xis, keys(z))
    )
    return lambda *data: jax.tree.map(lambda a: np.asarray(a, np.float64), run(*data))


LINEAR, COUNT = LinearGaussian(), 32


@pytest.mark.parametrize(
    "task",
    [
        LINEAR,
        pytest.param(LinearMarkov(), marks=pytest.mark.slow),
        pytest.param(Sign(noise=1.5), marks=pytest.mark.slow),
    ],
    ids=lambda task: type(task).__name__,
)
def test_bounds_by_fitted_posteriors_bracket_the_information(task):
    # Trajectory by trajectory, so that little noise is left: an error of 0.02 nats, of either
    # bound, would be seen.
    data = experiments(task, fixed(task, *XIS), COUNT, jr.key(2))
    found = by_fit(task, 256)(*data)
    truth = np.asarray(jax.vmap(functools.partial(information, task))(*data))
    low, high = found.lower - truth, found.upper - truth
    slack = [ALARM * error.std() / math.sqrt(COUNT) + 1e-5 for error in (low, high)]
    assert max(slack) < 0.05
    assert -0.02 < low.mean() <= slack[0]
    assert -slack[1] <= high.mean() < 0.02
    assert (found.upper - found.lower).mean() < 0.02
    assert ((found.histories - 257) % 64 == 0).all()
    assert (
        found.histories - 257 >= 64 * 3
    ).all()  # a first pass, and one level of two moves at least


def test_proposals_do_not_look_at_the_parameters():
    # The same data, said to come from the parameters of the next trajectory: what is made of p(y|ξ)
    # must be the same.
    z, ys, xis = experiments(LINEAR, fixed(LINEAR, *XIS), COUNT, jr.key(2))

    def evidence(z: Array) -> tuple[np.ndarray, np.ndarray]:
        own = jax.vmap(lambda z, y, xi: log_likelihood(LINEAR, LINEAR.prior.from_latent(z), y, xi))(
            z, ys, xis
        )
        found = by_fit(LINEAR, 256)(z, ys, xis)
        return np.asarray(own, np.float64) - found.upper, found.histories

    for honest, told in zip(evidence(z), evidence(jnp.roll(z, 1, 0)), strict=True):
        np.testing.assert_allclose(honest, told, atol=5e-5)


@pytest.mark.slow
def test_bounds_agree_with_contrastive_ones_on_exchangeable_sources():
    # Forgetting the K! orders of the sources would move both bounds by log K!, ten times what is
    # allowed and more.
    task, count = LocationFinding(horizon=4, noise=1.0), 48
    z, ys, xis = experiments(task, RandomDesigns(reference_sampler(task)[0]), count, jr.key(5))
    found = by_fit(task, 1024)(z, ys, xis)
    own = jax.vmap(lambda z, y, xi: log_likelihood(task, task.prior.from_latent(z), y, xi))(
        z, ys, xis
    )
    total = eqx.filter_jit(contrastive_sum)(task, ys, xis, 20_000, key=jr.key(6))
    for ours, theirs in zip(
        (found.lower, found.upper),
        (lower_log_ratio(own, own, total, 20_000), upper_log_ratio(own, total, 20_000)),
        strict=True,
    ):
        difference = ours - np.asarray(theirs, np.float64)
        allowed = ALARM * difference.std() / math.sqrt(count)
        assert allowed < 0.05
        assert abs(difference.mean()) <= allowed + 0.01
    assert (found.upper - found.lower).mean() < 0.05


# --- the command line ----------------------------------------------------------------------------


@pytest.fixture
def random_run(tmp_path):
    """A finished run of random designs, by hand."""
    run = {"task": "linear-gaussian", "method": "random", "preset": "quick", "policy": "random"}
    sizes = {"outer": 8, "inner": 9, "select_outer": 8, "select_inner": 9}
    config = from_values({**run, "evaluation": sizes})
    (tmp_path / "config.toml").write_text(to_toml(config))
    record = some_record(task="linear-gaussian", method="random", policy="random", nle=0)
    (tmp_path / "record.json").write_text(json.dumps(record.values()))
    return tmp_path


def test_evaluate_names_its_bound_and_counts_what_it_cost(random_run, capsys, monkeypatch):
    # The exact posterior in place of a fitted one, which would have to be compiled.
    monkeypatch.setattr(module, "usual_proposal", exact)
    assert (
        main(
            [
                "evaluate",
                str(random_run),
                "--outer",
                "16",
                "--inner",
                "50",
                "--bound",
                "importance",
                "--json",
            ]
        )
        == 0
    )
    answer = json.loads(capsys.readouterr().out)
    assert (answer["bound"], answer["task"], answer["outer"], answer["inner"]) == (
        "importance",
        "linear-gaussian",
        16,
        50,
    )
    assert answer["nle_evaluation"] == 16 * (51 + 7) * 3
    assert answer["upper"] - answer["lower"] < 1e-5
    assert answer["ceiling"] - answer["lower"] == pytest.approx(math.log(51), abs=1e-5)


def test_a_tight_bound_leads_one_at_its_ceiling(random_run, capsys):
    assert main(["evaluate", str(random_run), "--outer", "16", "--inner", "1"]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first.endswith("(by importance, N = 256)")
    assert second.startswith("contrastive bounds are loose here: ")
    assert "saturated: the lower bound cannot exceed log(M+1) = 0.69" in second


def test_evaluate_offers_the_nearest_bound(capsys):
    assert main(["evaluate", "no/such/run", "--bound", "importanse"]) == 2
    error = capsys.readouterr().err
    assert error.startswith(
        "error: unknown bound, got 'importanse', expected one of contrastive, importance, "
        "importance-laplace, posterior, smc, tight."
    )
    assert "did you mean 'importance'?" in error


def test_of_many_parameters_the_bounds_meet_at_the_exact_gain():
    """Thirty coefficients and four precise outcomes. A density fitted to particles leaves nats
    between the bounds. False alarm: one in a million, of the mean of 32 trajectories.
    """
    k = 30
    covariance = tuple(map(tuple, np.eye(k).tolist()))
    task = LinearGaussian(mean=(0.0,) * k, covariance=covariance, noise=0.1, horizon=4)
    xis = np.random.default_rng(0).uniform(-1, 1, (4, k))
    policy = Static.from_designs(jnp.asarray(xis, jnp.float32), task.designs)
    found = importance_bounds(task, policy, outer=32, inner=256, key=jr.key(0))
    exact = 0.5 * np.linalg.slogdet(np.eye(4) + xis @ xis.T / 0.1**2)[1]
    assert found.upper - found.lower < 0.1
    assert abs(found.lower - exact) < 4.892 * found.lower_se
