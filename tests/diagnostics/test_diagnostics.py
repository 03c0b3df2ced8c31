"""Planted faults of a score are found with the size that they have."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jaxtyping import Array, Float, PRNGKeyArray

from oracles import Affine
from scorebed.diagnostics import (
    Agreement,
    Coverage,
    Direction,
    Estimate,
    GradientError,
    Quality,
    Tails,
    conditioning,
    coverage,
    effective_draws,
    gradient_error,
    relative_bias,
    score_error,
    verdict,
)
from scorebed.diagnostics.groups import squared_norm
from scorebed.errors import InvalidValueError
from scorebed.policies.random import RandomDesigns
from scorebed.policies.static import Static
from scorebed.rollout import simulate
from scorebed.samplers.bounded import UniformBox
from scorebed.scores.base import Score, ScoreValue
from scorebed.scores.exact import ExactScore
from scorebed.scores.reference import ExactTruth, ImportanceTruth, SMCTruth
from scorebed.tasks.oracles.fading_noise import FadingNoise
from scorebed.tasks.oracles.linear_gaussian import LinearGaussian
from scorebed.tasks.oracles.projection import Projection

T = 2
TASK = LinearGaussian(mean=(0.7,), noise=0.8, horizon=T)
TRUTH = ExactTruth(TASK)
LIMIT = 4.892  # standard errors: a false alarm in a million


class Faulty(Score):
    """factor · truth + constant."""

    truth: ExactScore
    # Arrays, so that all faults share one compiled program.
    y: Float[Array, ""] = eqx.field(converter=jnp.asarray, default=0.0)
    xi: Float[Array, ""] = eqx.field(converter=jnp.asarray, default=0.0)
    factor: Float[Array, ""] = eqx.field(converter=jnp.asarray, default=1.0)

    def __call__(self, ys, xis):
        s = self.truth(ys, xis)
        return ScoreValue(self.factor * s.y + self.y, self.factor * s.xi + self.xi)

    @property
    def nle(self):
        return 0


POLICY = Affine(jnp.array([[0.9], [-0.4]]), jnp.array(0.3))
EXACT = ExactScore(TASK)


def errors(score, policy=POLICY, *, task=TASK, truth=TRUTH, **options):
    return gradient_error(task, score, truth, policy, key=jr.key(3), **options)


def test_the_exact_score_has_no_bias_and_the_true_gradient_is_that_of_the_closed_form():
    found = errors(
        Faulty(EXACT), Static.from_designs(jnp.array([[0.9], [-0.4]]), TASK.designs), outer=4096
    ).score
    assert abs(found.squared_bias.value) < 1e-10
    # Through ξ = bound · tanh(u). A wrong sign, a lost factor 1/n or a missing part of the vjp
    # shows here.
    xis = jnp.array([[0.9], [-0.4]])
    truth = TASK.eig_gradient(xis) * (TASK.bound - xis**2 / TASK.bound)
    assert abs(found.squared_norm.value - float((truth**2).sum())) < LIMIT * found.squared_norm.se
    assert found.squared_norm.se < 0.3 * found.squared_norm.value


@pytest.mark.parametrize(("c_y", "c_xi"), [(0.5, 0.0), (0.0, 0.5), (0.3, -0.4)])
def test_a_constant_added_to_the_score_is_found_with_its_size(c_y, c_xi):
    # ξ₁ = φ₁, y₁ = θξ₁ + σε₁, ξ₂ = φ₂ + κy₁, y₂ = θξ₂ + σε₂, by hand: with E θ = m and E θ² = q,
    # Σ E ∂y/∂(φ₁, φ₂, κ) = (m + κq, m, E θy₁) and Σ E ∂ξ/∂(φ₁, φ₂, κ) = (1 + κm, 1, E y₁).
    m, q, kappa, phi = 0.7, 0.7**2 + 1, 0.3, 0.9
    outcomes = np.array([m + kappa * q, m, phi * q])
    designs = np.array([1 + kappa * m, 1, phi * m])
    expected = np.square(c_y * outcomes + c_xi * designs).sum()
    found = errors(Faulty(EXACT, y=c_y, xi=c_xi), outer=8192).score.squared_bias
    assert (
        abs(found.value - expected) < LIMIT * found.se
    )  # one part left out or doubled is off by half or more
    assert found.se < 0.05 * expected


def test_static_designs_are_blind_to_an_error_of_the_design_part_as_is_their_training():
    policy = Static.from_designs(jnp.array([[0.9], [-0.4]]), TASK.designs)
    assert errors(
        Faulty(EXACT, xi=0.5), policy, outer=4096
    ).score.squared_bias.value == pytest.approx(0, abs=1e-10)
    assert errors(Faulty(EXACT, y=0.5), policy, outer=4096).score.squared_bias.value > 0.01


def test_variance_is_that_of_one_sample_and_the_mse_falls_to_the_bias():
    error = errors(Faulty(EXACT, y=0.5), outer=8192).score

    def one(key):
        def value(policy):
            theta = TASK.prior.sample(key=jr.fold_in(key, 0))
            eps = TASK.noise * jr.normal(jr.fold_in(key, 1), (T,))
            first = theta[0] * policy.phi[0, 0] + eps[0]
            second = policy.phi[1, 0] + policy.kappa * first
            xis = jnp.stack([policy.phi[0, 0], second])[:, None]
            ys = jnp.stack([first, theta[0] * second + eps[1]])[:, None]
            s = jax.lax.stop_gradient(EXACT(ys, xis))
            return -((s.y + 0.5) * ys).sum() - (s.xi * xis).sum()

        gradient = jax.grad(value)(POLICY)
        return jnp.append(gradient.phi, gradient.kappa)

    samples = np.asarray(jax.jit(jax.vmap(one))(jr.split(jr.key(8), 20_000)))
    # 31 groups' degrees of freedom in at least one direction: a relative error of √(2/31) at most.
    assert error.variance == pytest.approx(
        samples.var(0).sum(), rel=LIMIT * math.sqrt(2 / 31) * 0.8
    )
    assert error.mse(10) - error.mse(20) == pytest.approx(error.variance / 20)
    assert error.mse(10**12) == pytest.approx(error.squared_bias.value, rel=1e-4)
    assert error.mse(round(error.crossover)) == pytest.approx(2 * error.squared_bias.value, rel=0.1)


class Noisy(Score):
    """The truth plus noise of variance ¼ that its key has made, hardly alike on any two
    histories.
    """

    truth: ExactScore
    key: PRNGKeyArray

    def __call__(self, ys, xis):
        s = self.truth(ys, xis)
        frequency, phase = jr.uniform(self.key, (2,))
        noise = jnp.sin(100 * (1 + frequency) * ys + 2 * jnp.pi * phase) / jnp.sqrt(2.0)
        return ScoreValue(s.y + noise, s.xi + noise)

    @property
    def nle(self):
        return 0


def test_noise_of_a_monte_carlo_truth_is_no_error_of_the_score():
    # One truth squared would show its variance, ¼ a coordinate, as error of the score: many times
    # the limit.
    found = score_error(
        TASK, EXACT, lambda key: Noisy(EXACT, key), POLICY, outer=2048, key=jr.key(1)
    )
    plain = score_error(
        TASK, Faulty(EXACT, y=0.5, xi=0.5), TRUTH, POLICY, outer=2048, key=jr.key(1)
    )
    for part, squared in ((found.y, plain.y), (found.xi, plain.xi)):
        assert abs(part.value) < LIMIT * part.se
        assert LIMIT * part.se < 0.5 * squared.value


def test_a_squared_norm_has_none_of_the_noise_of_its_groups_in_it():
    # With g = h among the pairs it would be off by 2000/31, thirty standard errors.
    groups, size = 32, 2000
    means = np.random.default_rng(0).normal(size=(groups, size))
    found = squared_norm(means)
    assert abs(found.value) < LIMIT * math.sqrt(2 * size) / groups
    # Without a mean, the jackknife's variance is twice too large.
    assert found.se == pytest.approx(2 * math.sqrt(size) / groups, rel=0.5)
    assert squared_norm(means + 0.3).value == pytest.approx(0.09 * size, rel=0.1)


def test_the_likelihood_term_enters_the_true_gradient_where_noise_is_not_additive():
    task = FadingNoise(horizon=1)
    xis = jnp.array([[0.8]])
    policy = Static.from_designs(xis, task.designs)
    found = errors(ExactScore(task), policy, task=task, truth=ExactTruth(task), outer=8192).score
    slope = jax.grad(lambda u: task.designs.constrain(u).sum())(policy.us)
    truth = float(((task.eig_gradient(xis) * slope) ** 2).sum())
    assert abs(found.squared_norm.value - truth) < LIMIT * found.squared_norm.se
    assert found.squared_norm.se < 0.2 * truth


def test_pce_loses_its_bias_with_more_contrastive_parameters():
    found = errors(EXACT, outer=2048, pce=(1, 64)).pce
    few, many = found[1].squared_bias, found[64].squared_bias
    assert few.value > LIMIT * few.se
    assert many.value < 0.1 * few.value


@pytest.mark.parametrize("designs", [POLICY, RandomDesigns(UniformBox(T, TASK.designs))])
def test_a_score_ten_per_cent_too_large_has_a_relative_error_of_a_hundredth(designs):
    found = score_error(TASK, Faulty(EXACT, factor=1.1), TRUTH, designs, outer=64, key=jr.key(2))
    assert found.y.value == pytest.approx(0.01, rel=1e-3)
    assert found.xi.value == pytest.approx(0.01, rel=1e-3)
    only_y = score_error(TASK, Faulty(EXACT, y=1.0), TRUTH, designs, outer=64, key=jr.key(2))
    assert only_y.y.value > 0.1
    assert abs(only_y.xi.value) < 1e-10


def test_coverage_flags_designs_beyond_the_sampler_and_passes_its_own():
    narrow = UniformBox(T, LinearGaussian(bound=0.5, horizon=T).designs)
    inside = coverage(TASK, narrow, RandomDesigns(narrow), outer=256, key=jr.key(5))
    assert inside.share < 0.01
    half = coverage(
        TASK, narrow, Static.from_designs(jnp.array([[0.2], [1.5]]), TASK.designs), key=jr.key(5)
    )
    assert half.outside.tolist() == [0.0, 1.0]
    assert half.share == 0.5


def test_conditioning_is_that_of_the_derivative():
    # The linear task's Jacobian is θ times the identity; the projection's is diagonal with −θ₁ sin
    # ξ + θ₂ cos ξ.
    np.testing.assert_allclose(conditioning(TASK, POLICY, outer=16, key=jr.key(0)), 1.0, rtol=1e-5)
    task = Projection()
    xis = jnp.array([[0.3], [1.1]])
    policy = Static.from_designs(xis, task.designs)
    numbers = conditioning(task, policy, outer=400, key=jr.key(0))
    # In a θ of uniform angle α both entries are |sin(α − ξ)|: the law of their ratio, by a grid of
    # angles.
    angles = np.linspace(0, np.pi, 100_001)[:-1]
    entries = np.abs(np.sin(angles[:, None] - np.asarray(xis[:, 0])))
    expected = entries.max(1) / entries.min(1)
    for q in (0.25, 0.5, 0.75):
        share = float(np.mean(numbers <= np.quantile(expected, q)))
        assert abs(share - q) < LIMIT * math.sqrt(q * (1 - q) / 400)
    flat = conditioning(
        task, Static(jnp.array([[0.3], [0.3]]), task.designs), outer=4, key=jr.key(0)
    )
    np.testing.assert_allclose(flat, 1.0, rtol=1e-5)


def test_effective_draws_grow_with_the_draws():
    few, many = (effective_draws(TASK, POLICY, inner=m, outer=4, key=jr.key(1)) for m in (1, 2000))
    assert few == pytest.approx(1)  # one draw is one effective draw
    assert ((many > 20) & (many < 2000)).all()


@pytest.mark.parametrize(
    "truth",
    [ImportanceTruth(TASK, 2048), pytest.param(SMCTruth(TASK, 256), marks=pytest.mark.slow)],
    ids=["importance", "smc"],
)
def test_a_monte_carlo_truth_finds_the_exact_score_faultless_and_a_fault_of_its_size(truth):
    # Two truths of one key would show their own variance as error, and the factor 1.1 without a
    # truth's noise is 0.01.
    fine, faulty = (
        score_error(TASK, Faulty(EXACT, factor=f), truth, POLICY, outer=512, key=jr.key(4))
        for f in (1, 1.1)
    )
    for part, planted in ((fine.y, faulty.y), (fine.xi, faulty.xi)):
        assert abs(part.value) < LIMIT * part.se
        assert part.se < 2e-4
        assert abs(planted.value - 0.01) < LIMIT * planted.se
        assert planted.se < 2e-3
    if isinstance(truth, SMCTruth):
        score, passes = truth(jr.key(0)), fine.nle / (256 * T * 512)
        assert fine.nle % (256 * T) == 0
        assert (
            2 * (2 + score.moves) <= passes < 6 * (2 + score.moves)
        )  # two truths of one to three levels each


@pytest.mark.slow
def test_every_likelihood_is_counted():
    own, score = T, Faulty(EXACT)  # which costs nothing
    draws, outer = ImportanceTruth(TASK, 50), 64
    assert errors(score, truth=draws, outer=outer, pce=(3, 5)).nle == outer * (
        own + (4 + 6) * T + 50 * T
    )
    assert (
        score_error(TASK, score, draws, POLICY, outer=outer, key=jr.key(0)).nle
        == outer * 2 * 50 * T
    )
    assert (
        score_error(TASK, draws(jr.key(1)), TRUTH, POLICY, outer=outer, key=jr.key(0)).nle
        == outer * 50 * T
    )


@pytest.mark.slow
def test_the_ladder_of_a_tempered_truth_is_counted_as_it_was_climbed():
    truth = SMCTruth(TASK, 64)
    score, outer = truth(jr.key(0)), 32
    runs = jax.vmap(lambda k: simulate(TASK, POLICY, key=k))(jr.split(jr.key(1), outer))
    climb = eqx.filter_jit(score.posterior)
    counts = [climb(ys, xis).nle + 64 * T for ys, xis in zip(runs.ys, runs.xis, strict=True)]
    assert len(set(counts)) > 1  # the ladders differ
    found = eqx.filter_jit(score.evaluate)(runs.ys, runs.xis)
    assert int(found.passes) * score.pass_nle == sum(counts)


def test_bias_is_relative_to_the_larger_gradient():
    trained, start, flat = (
        GradientError(Estimate(0.09, 0.08), Estimate(n, 0.0), 1.0, 64) for n in (0.01, 100.0, -1.0)
    )
    assert relative_bias(trained, start) == pytest.approx((0.03, 0.05))
    assert relative_bias(trained).value == pytest.approx(3)
    assert math.isnan(relative_bias(flat).value)


def agree(cosine, se=0.01, length=1.0):
    return Agreement(Estimate(cosine, se), Estimate(length, 0.05), Estimate(1.0, 0.1))


@pytest.mark.parametrize(
    ("overall", "trained", "outside", "quality", "word", "number"),
    [
        (agree(0.99), 0.95, (0.0, 0.01), Quality(), "Good", "0.99 ± 0.01"),
        (agree(0.99, length=2.5), 0.95, (0.0, 0.0), Quality(), "Fair", "2.50 ± 0.05 times"),
        (agree(0.91), 0.95, (0.0, 0.0), Quality(), "Fair", "0.91"),
        (agree(0.3), 0.95, (0.0, 0.0), Quality(), "Poor", "train the score longer"),
        (agree(0.99, length=0.1), 0.95, (0.0, 0.0), Quality(), "Poor", "0.10 ± 0.05 times"),
        (agree(0.3), 0.95, (0.0, 1.0), Quality(), "Poor", "Fix: --method jointscore"),
        (agree(0.5, 0.1), 0.95, (0.0, 0.0), Quality(), "Undecided", "more --outer"),
        (agree(0.99), 0.95, (0.0, 1.0), Quality(), "Good", "50% of its policy's designs are not"),
        (agree(0.99), 0.3, (0.0, 1.0), Quality(), "Doubtful", "100% at step 2"),
        (agree(0.99), math.nan, (0.0, 1.0), Quality(), "Doubtful", "Fix: --method jointscore"),
        (agree(0.99), 0.95, (0.0, 0.0), Quality(0.8), "Undecided", "differ by 80%"),
        (agree(0.99), 0.95, (0.0, 0.0), Quality(missed=0.3), "Undecided", "miss 30%"),
        (agree(0.99), 0.95, (0.0, 0.0), Quality(math.inf, 12.0), "Undecided", "12 effective"),
        (agree(math.nan), 0.95, (0.0, 0.0), Quality(), "Undecided", "zero"),
    ],
)
def test_the_verdict_follows_the_numbers(overall, trained, outside, quality, word, number):
    at_end = Direction(agree(trained), agree(trained), Tails(0.1, 0.1, 0.1), 64, 0)
    text = verdict(overall, {"trained": at_end}, Coverage(np.array(outside)), quality)
    assert text.startswith(word + ":")
    assert number in text


def test_heavy_tails_are_told_and_a_gradient_of_zero_too():
    tails = Tails(0.93, 0.4, 51.0)
    places = {
        "untrained": Direction(agree(0.99), agree(0.9), Tails(0.1, 0.1, 0.1), 64, 0),
        "trained": Direction(agree(math.nan), agree(0.9), tails, 64, 0),
    }
    text = verdict(agree(0.99), places, Coverage(np.zeros(2)))
    assert "1% of the trajectories carry 93%" in text
    assert "untrained policy: 0.99 ± 0.01 and 1.00 ± 0.05" in text
    assert "trained policy: a gradient that cannot be told from zero" in text


def test_too_few_trajectories_are_refused():
    with pytest.raises(InvalidValueError, match="at least eight"):
        errors(EXACT, outer=4)
