"""Models without a density, on tasks whose density is known and hidden: the linear-Gaussian one,
where noise is additive, and the one with fading noise, where it is not.
"""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest
from jaxtyping import Array, Float, Scalar

from scorebed._jit import jit_once
from scorebed.bounds.contrastive import eig_bounds
from scorebed.bounds.posterior import posterior_bound
from scorebed.check import check_task
from scorebed.densities.mixture_posterior import PosteriorDensity
from scorebed.errors import InvalidValueError, NoDensityError, ScorebedError
from scorebed.estimators.matching import sliced_score_matching
from scorebed.estimators.score import adaptive, check_additive_noise
from scorebed.policies.static import Static
from scorebed.rollout import draw_noise, simulate, simulate_outcomes
from scorebed.samplers.gaussian import RandomScaleGaussian
from scorebed.samplers.paper import paper_sampler
from scorebed.scores import make_score, score_kind
from scorebed.scores.base import Score, ScoreValue
from scorebed.scores.conditional import ScorePair
from scorebed.scores.exact import ExactScore
from scorebed.scores.standardise import standardiser
from scorebed.tasks.base import IID, Gaussian, Implicit
from scorebed.tasks.declare import measured, ranges
from scorebed.tasks.nuisance import needs_conditional_score
from scorebed.tasks.oracles.fading_noise import FadingNoise
from scorebed.tasks.oracles.linear_gaussian import LinearGaussian
from scorebed.tasks.priors import standard_normal
from scorebed.tasks.spaces import Quantity
from scorebed.training.policy import train_policies
from scorebed.training.score import Weights, score_loss, train_score

ALARM = 4.892  # standard errors: one false alarm in a million
SIZES = {"particles": 2, "cloud": 2, "width": 16, "blocks": 1, "heads": 2}


class Hidden(IID, Implicit):
    """The sampler of a closed form, and nothing else of it."""

    oracle: LinearGaussian | FadingNoise

    @property
    def horizon(self):
        return self.oracle.horizon

    @property
    def prior(self):
        return self.oracle.prior

    @property
    def designs(self):
        return self.oracle.designs

    @property
    def outcomes(self):
        return self.oracle.outcomes

    @property
    def additive_noise(self):
        return self.oracle.additive_noise

    def outcome(self, theta, state, xi, noise):
        return self.oracle.outcome(theta, state, xi, noise)


P1, P4 = (
    Hidden(LinearGaussian(horizon=2, bound=2.0)),
    Hidden(FadingNoise(horizon=2, prior_scale=1.5, bound=1.0)),
)


class Scattered(IID, Implicit):
    """A mean behind a random effect: two numbers of noise for one outcome, and no density that is
    written down.
    """

    horizon = 2
    prior = standard_normal((Quantity("rate"),))
    designs = ranges({"time": (0.1, 2.0)})
    outcomes = measured("amount")
    additive_noise = False
    extra_noise = 1

    def outcome(self, theta, state, xi, noise):
        del state
        return (jnp.exp(-jnp.exp(0.3 * theta[0] + 0.2 * noise[1]) * xi[0]) + 0.1 * noise[0])[None]


def fixed(task, *xis: float) -> Static:
    return Static.from_designs(jnp.asarray(xis)[:, None], task.designs)


def shape_of(kind: str, task: Hidden) -> Score:
    """A score without its numbers."""
    return eqx.filter_eval_shape(
        lambda key: make_score(
            score_kind(kind, SIZES), task, standardiser(task, paper_sampler(task), key=key), key=key
        ),
        jr.key(0),
    )


# ---- what it is


def test_everything_that_needs_a_density_says_so_in_one_line():
    assert not P1.has_density
    assert P1.oracle.has_density
    with pytest.raises(
        NoDensityError,
        match=r"the density of Hidden, got a model without one.*Fix: use what needs none",
    ):
        P1.log_prob(jnp.zeros(1), jnp.zeros(1), None, jnp.zeros(1))
    with pytest.raises(NoDensityError, match="a model without one"):
        eig_bounds(P1, fixed(P1, 1.0, 1.0), outer=2, inner=1, key=jr.key(0))
    with pytest.raises(
        InvalidValueError, match="likelihood particles, got Hidden, a model without a density"
    ):
        shape_of("particles", P1)
    weights = Weights(jnp.ones(()), jnp.ones(()), 0.0)
    with pytest.raises(InvalidValueError, match="got experiments of a policy"):
        score_loss(None, P1, paper_sampler(P1), weights, batch=2, policy=fixed(P1, 1.0, 1.0))


def test_a_second_score_is_needed_where_noise_is_not_additive():
    assert needs_conditional_score(P1) is None
    assert needs_conditional_score(P4) == (0,)
    score = shape_of("transformer-direct", P4)
    assert isinstance(score, ScorePair)
    assert score.nle == 0


def test_noise_beyond_the_outcomes():
    task = Scattered()
    assert (task.outcome_dim, task.noise_dim) == (1, 2)
    run = simulate(task, fixed(task, 0.5, 1.0), key=jr.key(0))
    assert run.ys.shape == (2, 1)
    assert draw_noise(task, fixed(task, 0.5, 1.0), key=jr.key(0)).outcome.shape == (2, 2)


@pytest.mark.slow
def test_a_claim_of_additive_noise_is_checked_by_the_sampler():
    class Boast(Scattered):
        additive_noise = True

    check_additive_noise(P1, key=jr.key(0))
    check_additive_noise(P4, key=jr.key(0))  # it makes none
    with pytest.raises(
        ScorebedError, match=r"declared additive, got a part made by it that changes by"
    ):
        check_additive_noise(Boast(), key=jr.key(0))


# ---- sliced score matching


class Tilted(Score):
    """(1 + a) s of an exact score s, one number per part: right at a = 0."""

    score: Score
    a: Float[Array, " 2"]

    def __call__(self, ys, xis):
        s = self.score(ys, xis)
        return ScoreValue((1 + self.a[0]) * s.y, (1 + self.a[1]) * s.xi)

    @property
    def nle(self) -> int:
        return 0


class Likelihood(Score):
    """The conditional score of P4, given θ as one more design."""

    task: FadingNoise

    def __call__(self, ys, wide):
        def log_prob(ys: Array, xis: Array) -> Scalar:
            return (
                -0.5 * (((ys - xis[:, 1:]) / self.task.noise) ** 2 * jnp.exp(2 * xis[:, :1])).sum()
                + xis[:, 0].sum()
            )

        return ScoreValue(*jax.grad(log_prob, argnums=(0, 1))(ys, wide))

    @property
    def nle(self) -> int:
        return 0


@pytest.mark.slow
def test_the_loss_is_least_at_the_scores_of_the_hidden_density():
    """For the marginal score, and given θ for the conditional one, with a weight of y away from
    one; a score that is wrong by a fifth in either part would be caught.
    """
    exact = ScorePair(ExactScore(P4.oracle), Likelihood(P4.oracle), (0,))
    sampler = RandomScaleGaussian(P4.horizon, P4.designs, low=0.3, high=1.0)

    @jax.jit
    def slopes(key: Array) -> tuple[Array, Array]:
        def one(key: Array) -> tuple[Array, Array]:
            keys = jr.split(key, 4)
            us, theta = sampler.sample_unconstrained(key=keys[0]), P4.prior.sample(key=keys[1])
            ys = simulate_outcomes(
                P4, theta, P4.designs.constrain(us), jr.normal(keys[2], (P4.horizon, 1))
            )

            def loss(a: Array) -> Array:
                each = (Tilted(exact.marginal, a[:2]), Tilted(exact.conditional_at(theta), a[2:]))
                terms = [
                    sliced_score_matching(
                        s, sampler, ys, us, lambda_y=jnp.asarray(3.0), key=keys[3]
                    )
                    for s in each
                ]
                return terms[0] + terms[1]

            return jax.grad(loss)(jnp.zeros(4)), jnp.diagonal(jax.hessian(loss)(jnp.zeros(4)))

        return jax.vmap(one)(jr.split(key, 20_000))

    slope, curvature = (np.asarray(x, np.float64) for x in slopes(jr.key(0)))
    error = ALARM * slope.std(0) / math.sqrt(len(slope))
    assert (np.abs(slope.mean(0)) <= error).all(), (slope.mean(0), error)
    assert (0.2 * curvature.mean(0) > error).all(), (curvature.mean(0), error)


@pytest.mark.slow
def test_the_first_term_is_learned_or_zero():
    """With the exact scores the surrogate has the gradient of the information, V/D a step; the
    first term alone is +1 a step.
    """
    task = P4.oracle
    policy = fixed(task, 0.3, -0.2)
    two = ScorePair(ExactScore(task), Likelihood(task), (0,))

    @eqx.filter_jit
    def gradients(key: Array) -> Array:
        def one(key: Array) -> Array:
            theta, noise = task.prior.sample(key=key), draw_noise(P4, policy, key=key)
            return jax.grad(lambda us: adaptive(P4, two, Static(us, P4.designs), theta, noise))(
                policy.us
            )

        return jax.vmap(one)(jr.split(key, 4000))

    found = np.asarray(gradients(jr.key(0)), np.float64)
    slope = jax.vjp(task.designs.constrain, policy.us)[1](
        task.eig_gradient(task.designs.constrain(policy.us))
    )[0]
    error = ALARM * found.std(0) / math.sqrt(len(found))
    assert (np.abs(found.mean(0) - np.asarray(slope)) <= error).all()
    assert (np.abs(np.asarray(slope)) > error).all()  # no gradient at all would be caught


# ---- the bound


class Line(PosteriorDensity):
    """q(z | y, ξ) = N(Σ_t a_t y_t, s²)."""

    a: Float[Array, " T"]
    log_s: Float[Array, ""]

    def log_prob(self, z, ys, xis):
        del xis
        residual = (z[0] - self.a @ ys[:, 0]) * jnp.exp(-self.log_s)
        return -0.5 * residual**2 - self.log_s - 0.5 * math.log(2 * math.pi)


@pytest.mark.slow
def test_a_posterior_that_can_be_exact_gives_the_information():
    policy = fixed(P1, 1.0, -1.5)
    truth = float(P1.oracle.eig(jnp.asarray([[1.0], [-1.5]])))
    fresh = Line(jnp.zeros(2), jnp.zeros(()))
    found = posterior_bound(
        P1,
        policy,
        fresh,
        outer=4096,
        steps=400,
        batch=64,
        decay=0.95,
        optimiser=optax.adam(0.02),
        key=jr.key(0),
    )
    assert abs(found.lower - truth) <= ALARM * found.lower_se + 0.01
    assert found.lower_se < 0.02
    assert math.isnan(found.upper)
    assert found.inner == 0
    assert found.nle == (400 * 64 + 4096) * 2
    assert "there is no upper bound without a density" in str(found)
    untrained = posterior_bound(
        P1, policy, fresh, outer=256, steps=1, batch=2, optimiser=optax.adam(0.0), key=jr.key(0)
    )
    assert abs(untrained.lower) < 1e-6  # the prior itself: nothing is learnt


# ---- the check


@pytest.mark.slow
def test_the_check_passes_a_sound_model_and_finds_faults():
    assert check_task(Scattered(), key=jr.key(0)) == []

    class Boast(Scattered):
        additive_noise = True

    class Deaf(Scattered):
        def outcome(self, theta, state, xi, noise):
            del state, theta
            return (jnp.exp(-xi[0]) + 0.1 * noise[0])[None]

    class Counted(IID, Gaussian):
        horizon = 2
        prior = standard_normal((Quantity("rate"),))
        designs = ranges({"time": (0.1, 2.0)})
        outcomes = measured("amount")
        additive_noise = True
        extra_noise = 1

        def mean(self, theta, state, xi):
            del state
            return theta * xi

        def scale(self, theta, state, xi):
            del theta, state, xi
            return [0.1]

    for task, kind, words in (
        (Boast(), "additive-noise", "`additive_noise` is True"),
        (Deaf(), "no-effect", "the parameter 'rate' has no effect on `outcome`"),
        (Counted(), "declaration", "`extra_noise` belongs to models without a density"),
    ):
        found = check_task(task, key=jr.key(0))
        assert any(f.kind == kind and words in f.sentence for f in found), found


# ---- training


@pytest.mark.slow
@pytest.mark.parametrize("task", [P1, P4], ids=["additive", "fading"])
def test_policies_are_trained_without_a_density(task):
    """The best designs are at the limits of the box, by a closed form that training never sees."""
    sizes = {"width": 32, "blocks": 1, "heads": 2}

    @jit_once
    def fresh(key: Array) -> Score:
        return make_score(
            score_kind("transformer-direct", sizes),
            task,
            standardiser(task, paper_sampler(task), key=key),
            key=key,
        )

    score = train_score(
        task, fresh(jr.key(0)), steps=600, batch=128, learning_rate=2e-3, key=jr.key(0)
    )
    policies = train_policies(
        task, score, "static", count=2, steps=150, batch=128, learning_rate=0.05, key=jr.key(1)
    )
    xis = jax.vmap(task.designs.constrain)(policies.us)
    found = max(float(task.oracle.eig(each)) for each in xis)
    assert found > task.oracle.optimal_eig() - 0.1, (
        np.asarray(xis),
        found,
        task.oracle.optimal_eig(),
    )
