"""Score matching against known scores. Expectations are exact, by quadrature in double precision,
wherever directions are not drawn at random.
"""

import math
from collections.abc import Callable
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest
from jaxtyping import Array, Float

from oracles import product_rule
from scorebed.errors import InvalidValueError
from scorebed.estimators.matching import (
    MatchingTerms,
    bias_penalty,
    conditional_score,
    marginal_score_matching,
    rescaled_score_matching,
    sliced_score_matching,
)
from scorebed.policies.random import RandomDesigns
from scorebed.rollout import Trajectory, log_likelihood, simulate, simulate_outcomes
from scorebed.samplers.base import Unconstrained
from scorebed.samplers.paper import paper_sampler
from scorebed.scores.base import Score, ScoreValue
from scorebed.scores.exact import ExactScore
from scorebed.scores.particles import LikelihoodParticles
from scorebed.scores.residual_scale import ResidualScale, SelfWeighingScore
from scorebed.scores.standardise import standardiser
from scorebed.tasks import ORACLE_TASKS, TASKS
from scorebed.tasks.oracles.closed_form import ClosedForm
from scorebed.tasks.oracles.linear_gaussian import LinearGaussian
from scorebed.tasks.oracles.sign import Sign
from scorebed.tasks.spaces import Real, Space


def ones():
    """Weights of one, in the precision that is switched on."""
    return {"lambda_y": jnp.ones(()), "lambda_xi": jnp.ones(())}


ALARM = 4.892  # standard errors: one false alarm in a million


class Tilted(Score):
    """(1 + a) s + b x + c of the exact score s, with x = y and x = ξ: right at a = b = c = 0, one
    number per part each.
    """

    exact: ExactScore
    a: Float[Array, " 2"]
    b: Float[Array, " 2"]
    c: Float[Array, " 2"]

    def __call__(self, ys, xis):
        s = self.exact(ys, xis)
        parts = [(1 + self.a[i]) * s[i] + self.b[i] * (ys, xis)[i] + self.c[i] for i in (0, 1)]
        return ScoreValue(*parts)

    @property
    def nle(self) -> int:
        return 0


def tilted(task: ClosedForm, tilts: Float[Array, "3 2"]) -> Tilted:
    return Tilted(ExactScore(task), *tilts)


def normal_grid(dim: int, nodes: int) -> tuple[Array, Array]:
    """The product Gauss–Hermite rule: exact for polynomials up to degree 2 · nodes − 1."""
    x, w = np.polynomial.hermite_e.hermegauss(nodes)
    return product_rule([(x, w / w.sum())] * dim)


# --- the target ----------------------------------------------------------------------------------


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("name", ["location-finding", "pendulum", "gravimetry", "fading-noise"])
def test_the_conditional_score_is_the_slope_of_the_likelihood(name):
    task = {**TASKS, **ORACLE_TASKS}[name](horizon=3)
    random = np.random.default_rng(0)
    sizes = (task.prior.dim,), (3, task.designs.dim), (3, task.outcome_dim)
    z, us, noise = (jnp.asarray(random.normal(size=size)) for size in sizes)

    @jax.jit
    def both() -> tuple[Array, Array]:
        theta, xis = task.prior.from_latent(z), task.designs.constrain(us)
        ys = simulate_outcomes(task, theta, xis, noise)
        flat, unravel = jax.flatten_util.ravel_pytree((ys, xis))

        def along(direction: Array) -> Array:
            at = jnp.stack([flat + 1e-5 * direction, flat - 1e-5 * direction])
            up, down = jax.lax.map(lambda point: log_likelihood(task, theta, *unravel(point)), at)
            return (up - down) / 2e-5

        score = conditional_score(task, Trajectory(theta, ys, xis))
        return jnp.concatenate([score.y.ravel(), score.xi.ravel()]), jax.lax.map(
            along, jnp.eye(flat.size)
        )

    score, slopes = both()
    np.testing.assert_allclose(score, slopes, rtol=1e-5, atol=1e-5 * np.abs(slopes).max())


# --- marginal score matching ---------------------------------------------------------------------


@pytest.mark.usefixtures("float64")
def test_the_loss_of_the_exact_score_is_the_irreducible_one():
    variance, noise, xi = 2.0, 0.7, 0.8
    task = LinearGaussian(covariance=((variance,),), noise=noise, horizon=1)
    points, weights = normal_grid(2, 4)
    xis = jnp.full((1, 1), xi)

    @jax.jit
    def loss(point: Array) -> MatchingTerms:
        theta = task.prior.from_latent(point[:1])
        run = Trajectory(theta, simulate_outcomes(task, theta, xis, point[1:, None]), xis)
        lambdas = {"lambda_y": jnp.asarray(3.0), "lambda_xi": jnp.asarray([0.5])}
        return marginal_score_matching(ExactScore(task), task, run, **lambdas, relative=0.0)

    terms = jax.vmap(loss)(points)
    v = noise**2 + variance * xi**2
    posterior = variance * noise**2 / v
    y = xi**2 * posterior / noise**4
    xi_part = (
        posterior * (noise**2 - variance * xi**2) ** 2 / v + 2 * xi**2 * posterior**2
    ) / noise**4
    np.testing.assert_allclose(weights @ terms.y, 3 * y, rtol=1e-10)
    np.testing.assert_allclose(weights @ terms.xi, 0.5 * xi_part, rtol=1e-10)


def residual_loss(relative: float) -> Callable[[Score, ClosedForm, Trajectory], Array]:
    def loss(score: Score, task: ClosedForm, run: Trajectory) -> Array:
        weights = {"lambda_y": jnp.asarray(0.8), "lambda_xi": jnp.asarray(1.5)}
        return sum(marginal_score_matching(score, task, run, **weights, relative=relative))

    return loss


def clipped_loss(score: Score, task: ClosedForm, run: Trajectory) -> Array:
    """What would be wrong: residuals beyond one count linearly."""
    residuals = jax.tree.map(jnp.subtract, score(run.ys, run.xis), conditional_score(task, run))
    return sum(jnp.where(jnp.abs(r) < 1, r**2, 2 * jnp.abs(r) - 1).sum() for r in residuals)


def slopes_at_the_exact_score(task: ClosedForm, kappa: float, loss: Callable[..., Array]) -> Array:
    """∂/∂(a, b, c) of the expected loss, with designs ξ_1 = 0.9 and ξ_2 = −0.6 + κ y_1."""
    # The trapezoidal rule: weights like 1/(1 + s²) have poles near the real axis, which
    # Gauss–Hermite does not like.
    sign = isinstance(task, Sign)
    axis = np.linspace(-6, 6, 301 if sign else 61)
    normal = axis, np.exp(-0.5 * axis**2) / np.exp(-0.5 * axis**2).sum()
    rules = [(np.asarray([-1.0, 1.0]), np.asarray([0.5, 0.5])) if sign else normal, normal, normal]
    points, weights = product_rule(rules)

    @jax.jit
    def slopes(points: Array) -> Array:
        def one(tilts: Array, point: Array) -> Array:
            theta = task.prior.from_latent(point[:1])
            xi1 = jnp.full(1, 0.9)
            y1 = task.outcome(theta, None, xi1, point[1:2])
            xi2 = -0.6 + kappa * y1
            run = Trajectory(
                theta,
                jnp.stack([y1, task.outcome(theta, None, xi2, point[2:])]),
                jnp.stack([jnp.full(1, 0.9), xi2]),
            )
            return loss(tilted(task, tilts), task, run)

        return weights @ jax.vmap(jax.grad(one), in_axes=(None, 0))(
            jnp.zeros((3, 2)), points
        ).reshape(len(weights), -1)

    return slopes(points)


TWO_STEPS = {
    "linear-gaussian": LinearGaussian(mean=(0.3,), noise=0.8, horizon=2),
    "sign": Sign(noise=1.2, horizon=2),
}


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("name", TWO_STEPS)
@pytest.mark.parametrize("kappa", [0.0, 0.5], ids=["sampler designs", "policy designs"])
def test_the_exact_score_is_the_minimiser_with_and_without_weights(name, kappa):
    # Weights that depend on the data leave it in place if no gradient flows through them, on the
    # designs of a policy too.
    for relative in (0.0, 0.5):
        found = slopes_at_the_exact_score(TWO_STEPS[name], kappa, residual_loss(relative))
        np.testing.assert_allclose(found, 0, atol=1e-5)


@pytest.mark.usefixtures("float64")
def test_clipped_residuals_would_move_the_minimiser():
    for task in TWO_STEPS.values():
        assert np.abs(slopes_at_the_exact_score(task, 0.5, clipped_loss)).max() > 0.02


# --- sliced score matching -----------------------------------------------------------------------


class Normal(Unconstrained):
    """u ~ N(0, I); `memory` is how much of its density it remembers."""

    space: Space = eqx.field(static=True)
    memory: Float[Array, ""]
    horizon: int = eqx.field(static=True, default=2)

    def sample_unconstrained(self, *, key):
        return jr.normal(key, (self.horizon, self.space.dim))

    def log_prob_unconstrained(self, us):
        return -0.5 * self.memory * (us**2).sum()


TASK = LinearGaussian(mean=(0.3,), noise=0.8, horizon=2)
SPACES = {"open": Real(TASK.designs.quantities, 0.7), "box": TASK.designs}


@eqx.filter_jit
def sliced_slopes(sampler: Unconstrained) -> tuple[Array, Array]:
    """First and second derivatives of the loss in (a, b, c) at the exact score, sample by
    sample.
    """

    def one(key: Array) -> tuple[Array, Array]:
        key_run, key_direction = jr.split(key)
        run = simulate(TASK, RandomDesigns(sampler), key=key_run)
        us = sampler.space.unconstrain(run.xis)

        def loss(tilts: Array) -> Array:
            score = tilted(TASK, tilts.reshape(3, 2))
            return sliced_score_matching(score, sampler, run.ys, us, key=key_direction)

        # The loss is quadratic in the tilts, so that a unit step in one of them changes its slope
        # by the curvature.
        slopes = jax.vmap(jax.grad(loss))(jnp.concatenate([jnp.zeros((1, 6)), jnp.eye(6)]))
        return slopes[0], jnp.diag(slopes[1:] - slopes[0])

    return jax.vmap(one)(jr.split(jr.key(0), 60_000))


@pytest.mark.parametrize("space", SPACES)
def test_sliced_matching_has_its_minimum_at_the_exact_score(space):
    slope, curvature = map(np.asarray, sliced_slopes(Normal(SPACES[space], jnp.ones(()))))
    error = ALARM * slope.std(0) / math.sqrt(len(slope))
    assert (np.abs(slope.mean(0)) <= error).all(), (slope.mean(0), error)
    # A minimum more than 0.1 from zero in any direction would be caught.
    assert (curvature.mean(0) > 10 * error).all(), (curvature.mean(0), error)
    # Forgetting the density of the designs would be, by far.
    slope, _ = map(np.asarray, sliced_slopes(Normal(SPACES[space], jnp.zeros(()))))
    assert (np.abs(slope.mean(0)) / error).max() > 3


# --- learned weights -----------------------------------------------------------------------------


def weighed_terms():
    """Terms of a batch as a function of the parameters, those parameters, what they belong to, and
    the batch.
    """
    sampler = paper_sampler(TASK)
    standardise = standardiser(TASK, sampler, key=jr.key(0))
    score = LikelihoodParticles(
        TASK, standardise, particles=2, cloud=2, width=4, features=2, key=jr.key(1)
    )
    weigher = ResidualScale(TASK, standardise, width=4, key=jr.key(2))
    runs = jax.vmap(lambda k: simulate(TASK, RandomDesigns(sampler), key=k))(
        jr.split(jr.key(3), 16)
    )
    params, rest = eqx.partition(SelfWeighingScore(score, weigher), eqx.is_inexact_array)

    def terms(params):
        found, own = jax.vmap(
            lambda run: rescaled_score_matching(eqx.combine(params, rest), TASK, run, **ones())
        )(runs)
        return {"matching": (found.y + found.xi).mean(), "weigher": own.mean()}

    return terms, params, eqx.combine(params, rest), runs


class Slope(Score):
    """s_y = a y, s_ξ = a ξ, and the logs of its squared residuals taken as ℓ = b: the smallest pair
    that trains together.
    """

    rescales_residuals: ClassVar[bool] = True
    a: Float[Array, ""]
    b: Float[Array, ""]

    def __call__(self, ys, xis):
        return ScoreValue(self.a * ys, self.a * xis)

    def log_residual_scale(self, ys, xis):
        del xis
        return jnp.full((len(ys), 2), self.b)

    @property
    def nle(self):
        return 0


def test_a_score_and_the_scale_of_its_residuals_do_not_see_each_other():
    """Of the two terms each moves its own part alone, by the derivative that its formula has. A
    stop-gradient that is missing on either side fails.
    """
    pair = Slope(jnp.float32(0.3), jnp.float32(0.7))
    run = Trajectory(jnp.zeros(1), jnp.asarray([[0.5], [-1.0]]), jnp.asarray([[0.2], [0.8]]))

    def terms(pair):
        found, own = rescaled_score_matching(pair, TASK, run, **ones())
        return jnp.stack([found.y + found.xi, own])

    slopes, target = jax.jit(jax.jacrev(terms))(pair), conditional_score(TASK, run)
    residuals = [(0.3 * run.ys - target.y, run.ys), (0.3 * run.xis - target.xi, run.xis)]
    by_a = sum(float((2 * r * x).sum()) for r, x in residuals) * math.exp(-0.7)
    by_b = sum(float(1 - len(run.ys) * (r**2).mean() * math.exp(-0.7)) for r, _ in residuals)
    np.testing.assert_allclose(slopes.a, [by_a, 0], rtol=1e-4)
    np.testing.assert_allclose(slopes.b, [0, by_b], rtol=1e-4)


def test_the_weights_of_a_sliced_loss_scale_its_directions():
    """The mean over all directions ±1 is Σ_i λ_i (∂S_i/∂x_i + S_i²/2), by its definition, with the
    weight of its own part on each: λ_y left out, or on the wrong part, fails.
    """
    sampler = Normal(Real(TASK.designs.quantities, 1.0), jnp.ones(()))
    ys, us = jnp.asarray([[0.5], [-1.0]]), jnp.asarray([[0.2], [0.8]])
    score = Slope(jnp.float32(0.3), jnp.float32(0.0))
    weights = {"lambda_y": jnp.asarray([4.0]), "lambda_u": jnp.asarray([0.25])}
    found = jax.jit(lambda key: sliced_score_matching(score, sampler, ys, us, **weights, key=key))(
        jr.key(0)
    )
    # The Jacobian of this score is diagonal, so that every direction gives the same.
    of_y = 4.0 * (0.3 * 2 + 0.5 * ((0.3 * ys) ** 2).sum())
    of_u = 0.25 * ((0.3 - 1) * 2 + 0.5 * (((0.3 - 1) * us) ** 2).sum())
    assert float(found) == pytest.approx(float(of_y + of_u), rel=1e-4)


@pytest.mark.slow
def test_a_score_and_its_weigher_do_not_see_each_other():
    terms, params, _, _ = weighed_terms()
    slopes = jax.jit(jax.jacrev(terms))(params)
    assert optax.tree.norm(slopes["matching"].score) > 0
    assert optax.tree.norm(slopes["matching"].weigher) == 0
    assert optax.tree.norm(slopes["weigher"].score) == 0
    assert optax.tree.norm(slopes["weigher"].weigher) > 0


@pytest.mark.slow
def test_learned_weights_divide_the_squared_residuals_and_are_fitted_to_them():
    terms, params, weighed, runs = weighed_terms()
    target = jax.vmap(lambda run: conditional_score(TASK, run))(runs)
    value, log_size = (
        jax.vmap(weighed)(runs.ys, runs.xis),
        jax.vmap(weighed.weigher)(runs.ys, runs.xis),
    )
    squares = np.concatenate([(value.y - target.y) ** 2, (value.xi - target.xi) ** 2], axis=-1)
    found = terms(params)
    np.testing.assert_allclose(
        found["matching"], (squares * np.exp(-log_size)).sum((1, 2)).mean(), rtol=1e-4
    )
    fitted = TASK.horizon * squares * np.exp(-log_size) + log_size
    np.testing.assert_allclose(found["weigher"], fitted.mean(1).sum(-1).mean(), rtol=1e-4)


# --- the bias penalty ----------------------------------------------------------------------------


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("m", [2, 3])
def test_the_penalty_is_the_unbiased_square_of_the_mean(m):
    task = LinearGaussian(mean=(0.3,), noise=0.8, horizon=1)
    xis = jnp.full((1, 1), 0.9)
    # θ and ε of m outcomes. The score is a quadratic in them, and so its squares are integrated
    # exactly.
    points, weights = normal_grid(2 * m, 3)

    @jax.jit
    def penalty(shift: Array) -> Array:
        def one(point: Array) -> Array:
            ys = jax.vmap(
                lambda p: simulate_outcomes(task, task.prior.from_latent(p[:1]), xis, p[1:, None])
            )(point.reshape(m, 2))
            tilts = jnp.zeros((3, 2)).at[2].set(shift)
            return jnp.stack(bias_penalty(tilted(task, tilts), ys, xis, **ones()))

        return weights @ jax.vmap(one)(points)

    np.testing.assert_allclose(penalty(jnp.zeros(2)), 0, atol=1e-12)
    np.testing.assert_allclose(penalty(jnp.asarray([0.7, -1.1])), [0.49, 1.21], rtol=1e-10)


def test_the_penalty_is_the_double_loop():
    ys, xis = jr.normal(jr.key(0), (5, 3, 2)), jr.normal(jr.key(1), (3, 1))

    class Waves(Score):
        def __call__(self, ys, xis):
            return ScoreValue(jnp.sin(3 * ys) + xis, jnp.cos(ys[:, :1]) * xis)

        @property
        def nle(self) -> int:
            return 0

    scales = (np.asarray([2.0, 3.0], np.float32), np.asarray([5.0], np.float32))
    found = bias_penalty(
        Waves(), ys, xis, lambda_y=jnp.asarray(scales[0]), lambda_xi=jnp.asarray(scales[1])
    )
    each = jax.tree.map(np.asarray, jax.vmap(Waves(), in_axes=(0, None))(ys, xis))
    for part in (0, 1):
        pairs = [
            (scales[part] * each[part][i] * each[part][j]).sum()
            for i in range(5)
            for j in range(5)
            if i != j
        ]
        np.testing.assert_allclose(found[part], np.mean(pairs), rtol=1e-5)


def test_one_outcome_is_not_enough():
    with pytest.raises(InvalidValueError, match="at least two"):
        bias_penalty(ExactScore(TASK), jnp.zeros((1, 2, 1)), jnp.ones((2, 1)), **ones())
