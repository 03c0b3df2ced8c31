"""Nuisance parameters, on a linear-Gaussian model with two correlated coefficients of which the
first is of interest: all of it is known in closed form. Expectations of gradients are exact, by
quadrature in double precision.
"""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jaxtyping import Array, Float

from oracles import Affine, grid
from scorebed._jit import jit_once
from scorebed.bounds import nuisance as bounds_nuisance
from scorebed.bounds.contrastive import bounds_nle, eig_bounds
from scorebed.bounds.importance import importance_bounds
from scorebed.bounds.nuisance import first_terms
from scorebed.errors import InvalidValueError, UnknownNameError
from scorebed.estimators.matching import conditional_score, marginal_score_matching
from scorebed.estimators.pce import nmc, pce, pce_of_interest
from scorebed.estimators.score import adaptive, static
from scorebed.keys import named
from scorebed.policies.base import Policy
from scorebed.policies.static import Static
from scorebed.rollout import (
    Noise,
    draw_noise,
    log_likelihood,
    log_likelihoods,
    rollout,
    simulate,
    simulate_outcomes,
)
from scorebed.samplers.paper import paper_sampler
from scorebed.scores import make_score, score_kind
from scorebed.scores.base import Score, ScoreValue
from scorebed.scores.conditional import ScorePair
from scorebed.scores.exact import ExactScore
from scorebed.scores.standardise import standardiser
from scorebed.tasks.base import IID, Gaussian, History
from scorebed.tasks.conditioned import (
    ConditionedHistory,
    ConditionedIID,
    ConditionedMarkov,
    append_parameters,
    condition_on,
)
from scorebed.tasks.declare import measured, ranges
from scorebed.tasks.nuisance import (
    check_interest,
    has_nuisance,
    needs_conditional_score,
    of_interest,
    resample_nuisance,
)
from scorebed.tasks.oracles.fading_noise import FadingNoise
from scorebed.tasks.oracles.linear_gaussian import LinearGaussian
from scorebed.tasks.oracles.linear_markov import LinearMarkov
from scorebed.tasks.priors import standard_normal
from scorebed.tasks.spaces import Quantity
from scorebed.training.policy import train_policies
from scorebed.training.score import train_score

ALARM = 4.892  # standard errors: one false alarm in a million
T = 2
XIS = ((0.9, 0.5), (-0.6, 0.8))


class Slope(LinearGaussian):
    """P6: the first coefficient is of interest."""

    interest = ("coefficient 1",)


class Intercept(LinearGaussian):
    """The second one is, which is made from the latent numbers of both."""

    interest = ("coefficient 2",)


SIZES = {
    "mean": (0.5, -1.0),
    "covariance": ((1.0, 0.6), (0.6, 2.0)),
    "noise": 0.8,
    "bound": 1.5,
    "horizon": T,
}
P6 = Slope(**SIZES)


class ConditionalExact(Score):
    """The exact score of p(y | ξ, ψ) of P6: what is left of y without ψ is linear in η alone, of
    which ψ has moved the prior.
    """

    task: Slope

    def log_prob(self, ys: Float[Array, "T 1"], wide: Float[Array, "T 3"]) -> Array:
        xis, psi = wide[:, :2], wide[0, 2]
        (l11, _), (l21, l22) = self.task.prior.cholesky
        mean = self.task.prior.mean[1] + l21 / l11 * (psi - self.task.prior.mean[0])
        residual = ys[:, 0] - psi * xis[:, 0] - mean * xis[:, 1]
        noise2 = self.task.noise**2
        square = (
            (residual**2).sum()
            - (residual @ xis[:, 1]) ** 2 / (noise2 / l22**2 + (xis[:, 1] ** 2).sum())
        ) / noise2
        log_det = jnp.log(1 + l22**2 * (xis[:, 1] ** 2).sum() / noise2) + len(ys) * math.log(
            2 * math.pi * noise2
        )
        return -0.5 * (square + log_det)

    def __call__(self, ys, xis):
        return ScoreValue(*jax.grad(self.log_prob, argnums=(0, 1))(ys, xis))

    @property
    def nle(self) -> int:
        return 0


def fixed(task=P6) -> Static:
    return Static.from_designs(jnp.asarray(XIS), task.designs)


def exact() -> ScorePair:
    return ScorePair(ExactScore(P6), ConditionalExact(P6), (0,))


# ---- which parameters


def test_a_task_names_its_parameters_of_interest():
    plain = LinearGaussian(**SIZES)
    assert (of_interest(plain), has_nuisance(plain)) == ((0, 1), False)
    assert (of_interest(P6), has_nuisance(P6)) == ((0,), True)

    class Wrong(LinearGaussian):
        interest = ("coeficient 1",)

    class Word(LinearGaussian):
        interest = "coefficient 1"

    with pytest.raises(UnknownNameError, match="did you mean 'coefficient 1'"):
        of_interest(Wrong(**SIZES))
    with pytest.raises(InvalidValueError, match="with the comma"):
        of_interest(Word(**SIZES))


def test_fresh_nuisances_are_draws_given_the_parameters_of_interest():
    """A nuisance drawn from its marginal would have the mean −1 and the variance 2."""
    z, n = jnp.asarray([1.5, -0.3]), 4000
    draws = np.asarray(
        jax.vmap(P6.prior.from_latent)(resample_nuisance(P6, z, jr.normal(jr.key(0), (n, 2)))),
        np.float64,
    )
    psi = float(P6.prior.from_latent(z)[0])
    assert (draws[:, 0] == np.float32(psi)).all()
    mean, variance = -1.0 + 0.6 * (psi - 0.5), 2.0 - 0.36
    assert abs(draws[:, 1].mean() - mean) <= ALARM * math.sqrt(variance / n)
    assert abs(draws[:, 1].var() - variance) <= ALARM * variance * math.sqrt(2 / n)


def test_a_prior_that_mixes_the_two_is_refused():
    check_interest(P6, key=jr.key(0))
    with pytest.raises(
        InvalidValueError,
        match=r"'coefficient 2' of interest.*write the parameters of interest first",
    ):
        check_interest(Intercept(**SIZES), key=jr.key(0))
    with pytest.raises(InvalidValueError, match="write the parameters of interest first"):
        eig_bounds(Intercept(**SIZES), fixed(), outer=2, inner=1, key=jr.key(0))
    assert needs_conditional_score(P6) == (0,)
    assert (
        needs_conditional_score(LinearGaussian(**SIZES))
        is needs_conditional_score(FadingNoise())
        is None
    )


class Leaking(History, Gaussian):
    """A state that θ starts, so that what is told has to reach it."""

    horizon = 3
    prior = standard_normal((Quantity("level"), Quantity("rate")))
    designs = ranges({"dose": (0.0, 2.0)})
    outcomes = measured("amount")
    additive_noise = True

    def initial(self, theta):
        return theta[0] ** 2

    def mean(self, theta, state, xi):
        return (state + xi[0] * theta[1])[None]

    def scale(self, theta, state, xi):
        del theta, state, xi
        return [0.5]

    def advance(self, theta, state, xi, y):
        del y
        return 0.5 * state + theta[0] * xi[0]


class Drift(LinearMarkov):
    """Transitions."""


@pytest.mark.parametrize(
    ("task", "kind"),
    [
        (P6, ConditionedIID),
        (Drift(horizon=3), ConditionedMarkov),
        (Leaking(), ConditionedHistory),
    ],
)
def test_told_parameters_are_those_of_the_design(task, kind):
    """Whatever θ says of ψ, the design says what it is: in outcomes, densities and states."""
    told = condition_on(task, (0,))
    assert type(told) is kind
    theta, other = (task.prior.sample(key=jr.key(i)) for i in (0, 1))
    xis = jnp.linspace(0.5, 1.0, task.horizon * task.designs.dim).reshape(task.horizon, -1)
    noise = jr.normal(jr.key(2), (task.horizon, task.outcome_dim))
    wide = append_parameters(xis, theta[:1])
    unknown = theta.at[0].set(other[0])
    ys = simulate_outcomes(task, theta, xis, noise)
    assert jnp.allclose(simulate_outcomes(told, unknown, wide, noise), ys, atol=1e-6)
    expected = log_likelihood(task, theta, ys, xis)
    assert jnp.allclose(log_likelihood(told, unknown, ys, wide), expected, atol=1e-5)
    assert jnp.allclose(log_likelihoods(told, unknown[None], ys, wide)[0], expected, atol=1e-5)
    assert not jnp.allclose(log_likelihood(task, unknown, ys, xis), expected, atol=1e-2)


# ---- the gradient


@eqx.filter_jit
def gradients(
    policy: Affine, score: Score, zs: Array, noises: Array, weights: Array
) -> tuple[Affine, Affine, Affine]:
    def each(surrogate):
        def one(policy, z, eps):
            return surrogate(
                policy, P6.prior.from_latent(z), Noise(eps, jnp.zeros((T, 0), eps.dtype))
            )

        return jax.grad(
            lambda p: (weights * jax.vmap(lambda z, e: one(p, z, e))(zs, noises)).sum()
        )(policy)

    def information(policy, theta, noise):
        return P6.eig_of(rollout(P6, policy, theta, noise).xis, parameter=0)

    return (
        each(lambda p, theta, eps: adaptive(P6, score, p, theta, eps)),
        each(lambda p, theta, eps: static(P6, score, p, theta, eps)),
        each(information),
    )


@pytest.mark.usefixtures("float64")
def test_the_exact_scores_give_the_gradient_of_the_information_on_psi():
    rule = grid(P6)
    phi = jnp.asarray(XIS)
    moving, blind = Affine(phi, jnp.asarray(0.4)), Affine(phi, jnp.asarray(0.0))
    found, _, truth = gradients(moving, exact(), *rule)
    assert jnp.allclose(found.phi, truth.phi, rtol=1e-5)
    assert jnp.allclose(found.kappa, truth.kappa, rtol=1e-5)
    found, without_fisher, truth = gradients(blind, exact(), *rule)
    assert jnp.allclose(found.phi, truth.phi, rtol=1e-5)
    assert jnp.allclose(without_fisher.phi, truth.phi, rtol=1e-5)
    # About all of θ it is another gradient: the likelihood in the first place would be caught.
    assert not jnp.allclose(truth.phi, P6.eig_gradient(phi), rtol=0.05)


def test_the_estimator_refuses_a_single_score():
    noise = draw_noise(P6, fixed(), key=jr.key(0))
    with pytest.raises(InvalidValueError, match="a task with nuisance parameters"):
        adaptive(P6, ExactScore(P6), fixed(), jnp.zeros(2), noise)


# ---- score matching


@pytest.mark.slow
@pytest.mark.usefixtures("float64")
def test_both_scores_match_the_same_target():
    """The target's mean given (y, ξ, ψ) is s_c; a score that was told η too, or not told ψ, would
    not be orthogonal to it.
    """
    weights = {"lambda_y": jnp.ones(()), "lambda_xi": jnp.ones(()), "relative": 0.0}
    zs, noises, rule = grid(P6)
    xis = jnp.asarray(XIS)

    @eqx.filter_jit
    def losses(tilt: Array) -> Array:
        def one(z: Array, eps: Array) -> Array:
            theta = P6.prior.from_latent(z)
            ys = simulate_outcomes(P6, theta, xis, eps)
            s, target = (
                exact().conditional_at(theta)(ys, xis),
                conditional_score(P6, rollout(P6, Replayed(xis), theta, Noise(eps, xis))),
            )
            return ((s.y - target.y) * s.y * tilt[0]).sum() + (
                (s.xi - target.xi) * s.xi * tilt[1]
            ).sum()

        return (rule * jax.vmap(one)(zs, noises)).sum()

    # The residual of a conditional mean is orthogonal to every function of what it is conditioned
    # on.
    assert jnp.allclose(jax.jacfwd(losses)(jnp.ones(2)), 0.0, atol=1e-6)
    run = simulate(P6, fixed(), key=jr.key(0))
    terms = marginal_score_matching(exact(), P6, run, **weights)
    single = [
        marginal_score_matching(score, P6, run, **weights)
        for score in (ExactScore(P6), exact().conditional_at(run.theta))
    ]
    assert jnp.allclose(terms.y, single[0].y + single[1].y)
    assert jnp.allclose(terms.xi, single[0].xi + single[1].xi)


class Replayed(Policy):
    """Designs that were fixed before."""

    xis: Float[Array, "T dx"]

    def sample_noise(self, horizon, *, key):
        del key
        return self.xis[:horizon]

    def init(self):
        return None

    def design(self, memory, noise):
        del memory
        return noise

    def update(self, memory, xi, y):
        del memory, xi, y


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "nle"), [("particles", 2 * 4 * T), ("transformer", 0), ("transformer-direct", 0)]
)
def test_networks_are_made_in_pairs(kind, nle):
    sizes = {"particles": 2, "cloud": 2, "width": 8, "blocks": 1, "heads": 2}

    def make(key: Array) -> Score:
        standardise = standardiser(P6, paper_sampler(P6), key=key)
        return make_score(score_kind(kind, sizes), P6, standardise, key=key)

    @jit_once
    def values(key: Array) -> tuple[ScoreValue, ...]:
        score, run = make(key), simulate(P6, fixed(), key=key)
        moved = [run.theta.at[i].add(shift) for i, shift in ((0, 0.0), (0, 1.0), (1, 1.0))]
        return tuple(score.conditional_at(theta)(run.ys, run.xis) for theta in moved)

    score = eqx.filter_eval_shape(make, jr.key(0))
    assert isinstance(score, ScorePair)
    assert score.nle == nle
    here, there, same = values(jr.key(0))
    assert here.xi.shape == (T, 2)
    assert jnp.isfinite(here.xi).all()
    assert not jnp.allclose(here.y, there.y)
    assert jnp.allclose(
        here.y, same.y, atol=1e-6
    )  # it is not told the nuisance; compilers may round differently


# ---- bounds


def test_the_first_terms_lie_on_either_side_of_the_exact_one():
    """η_0 in the lower one, or not in the upper one, would turn the sign of its error."""
    conditional = ConditionalExact(P6)

    @jit_once
    def errors(key: Array) -> tuple[Array, Array]:
        def group(key: Array) -> tuple[Array, Array]:
            keys = jr.split(key, 64)
            z = jax.vmap(lambda k: jr.normal(named(k, "theta"), (2,)))(keys)
            runs = jax.vmap(lambda k: simulate(P6, fixed(), key=k))(keys)
            own = jax.vmap(lambda r: log_likelihood(P6, r.theta, r.ys, r.xis))(runs)
            found = first_terms(P6, z, own, runs.ys, runs.xis, 20, key=key)
            exact = jax.vmap(
                lambda r: conditional.log_prob(r.ys, append_parameters(r.xis, r.theta[:1]))
            )(runs)
            return (found.lower - exact).mean(), (found.upper - exact).mean()

        return jax.vmap(group)(jr.split(key, 64))

    lower, upper = (np.asarray(x, np.float64) for x in errors(jr.key(0)))
    low, high = (ALARM * x.std() / math.sqrt(len(x)) for x in (lower, upper))
    assert lower.mean() + low < 0 < upper.mean() - high, (lower.mean(), low, upper.mean(), high)
    assert max(-lower.mean(), upper.mean()) < 0.3  # a wrong divisor would be off by more


def test_the_bounds_bracket_the_information_on_psi():
    """At M = 20 both are off by a fifth of a nat, to their sides; with the first term of all of θ
    both would lie far above.
    """
    truth = float(P6.eig_of(jnp.asarray(XIS), parameter=0))
    few = eig_bounds(P6, fixed(), outer=4096, inner=20, key=jr.key(0))
    assert few.lower + ALARM * few.lower_se < truth < few.upper - ALARM * few.upper_se, (few, truth)
    assert few.nle == bounds_nle(P6, 4096, 20) == 4096 * 41 * T
    assert bounds_nle(LinearGaussian(**SIZES), 4096, 20) == 4096 * 21 * T
    assert float(P6.eig(jnp.asarray(XIS))) > truth + 0.3


@pytest.mark.slow
def test_many_draws_close_the_bounds():
    truth = float(P6.eig_of(jnp.asarray(XIS), parameter=0))
    many = eig_bounds(P6, fixed(), outer=2048, inner=2000, key=jr.key(1))
    assert abs(many.lower - truth) <= ALARM * many.lower_se + 0.01
    assert abs(many.upper - truth) <= ALARM * many.upper_se + 0.01


@pytest.mark.slow
def test_first_terms_do_not_depend_on_the_chunks(monkeypatch):
    runs = jax.vmap(lambda k: simulate(P6, fixed(), key=k))(jr.split(jr.key(0), 3))
    z = jax.vmap(lambda k: jr.normal(named(k, "theta"), (2,)))(jr.split(jr.key(0), 3))
    assert jnp.allclose(jax.vmap(P6.prior.from_latent)(z), runs.theta)
    own = jax.vmap(lambda r: log_likelihood(P6, r.theta, r.ys, r.xis))(runs)
    found = first_terms(P6, z, own, runs.ys, runs.xis, 700, key=jr.key(5))
    fresh = jr.normal(jr.fold_in(jr.key(5), 0), (700, 2))
    for i in range(3):
        thetas = jax.vmap(P6.prior.from_latent)(resample_nuisance(P6, z[i], fresh))
        each = log_likelihoods(P6, thetas, runs.ys[i], runs.xis[i])
        assert jnp.allclose(found.lower[i], jax.nn.logsumexp(each) - math.log(700), atol=1e-4)
        with_own = jax.nn.logsumexp(jnp.concatenate([each, own[i : i + 1]]))
        assert jnp.allclose(found.upper[i], with_own - math.log(701), atol=1e-4)
    monkeypatch.setattr(
        bounds_nuisance, "CHUNK", 256
    )  # other draws, three chunks of them, the last one cut
    again = first_terms(P6, z, own, runs.ys, runs.xis, 700, key=jr.key(5))
    assert jnp.allclose(found.lower, again.lower, atol=0.5)
    assert not jnp.array_equal(found.lower, again.lower)


@pytest.mark.slow
def test_pce_of_interest_is_the_lower_bound():
    policy, inner, n = fixed(), 20, 4096

    @eqx.filter_jit
    def values(key: Array) -> Array:
        def one(key: Array) -> Array:
            noise = draw_noise(P6, policy, key=named(key, "noise"))
            return pce_of_interest(
                P6, policy, jr.normal(named(key, "z"), (2,)), noise, inner=inner, key=key
            )

        return jax.vmap(one)(jr.split(key, n))

    found = np.asarray(values(jr.key(0)), np.float64)
    other = eig_bounds(P6, policy, outer=n, inner=inner, key=jr.key(3))
    spread = math.hypot(found.std() / math.sqrt(n), other.lower_se)
    assert abs(found.mean() - other.lower) <= ALARM * spread


def test_what_is_about_all_of_theta_refuses():
    noise = draw_noise(P6, fixed(), key=jr.key(0))
    for estimator in (pce, nmc):
        with pytest.raises(InvalidValueError, match="a task with nuisance parameters"):
            estimator(P6, fixed(), jnp.zeros(2), noise, inner=2, key=jr.key(0))
    with pytest.raises(InvalidValueError, match="a task with nuisance parameters"):
        importance_bounds(P6, fixed(), outer=2, inner=2, key=jr.key(0))


# ---- training


class Bounded(IID, Gaussian):
    """One observation can be spent on the slope or, at ξ = (0, ·), on the intercept alone."""

    horizon = 3
    prior = standard_normal((Quantity("slope"), Quantity("offset")))
    designs = ranges({"position": (-1.0, 1.0)})
    outcomes = measured("response")
    additive_noise = True
    interest = ("slope",)

    def mean(self, theta, state, xi):
        del state
        return (theta[0] * xi[0] + 3.0 * theta[1])[None]

    def scale(self, theta, state, xi):
        del theta, state, xi
        return [0.3]


@pytest.mark.slow
def test_trained_scores_find_the_designs_for_the_slope():
    """All designs at one end tell slope + 3·offset and no more; both ends are needed to tell them
    apart. The best three designs are the ends, two at one and one at the other.
    """
    task = Bounded()

    def truth(xis: Array) -> Array:
        rows = jnp.concatenate([xis, jnp.full_like(xis, 3.0)], axis=1)
        return -0.5 * jnp.log(jnp.linalg.inv(jnp.eye(2) + rows.T @ rows / 0.09)[0, 0])

    sizes = {"particles": 4, "cloud": 2, "width": 32, "blocks": 1, "heads": 2}

    @jit_once
    def fresh(key: Array) -> Score:
        standardise = standardiser(task, paper_sampler(task), key=key)
        return make_score(score_kind("particles", sizes), task, standardise, key=key)

    score = train_score(
        task, fresh(jr.key(0)), steps=500, batch=128, learning_rate=3e-3, key=jr.key(0)
    )
    policies = train_policies(
        task, score, "static", count=2, steps=150, batch=128, learning_rate=0.05, key=jr.key(1)
    )
    found = jnp.stack([truth(task.designs.constrain(us)) for us in policies.us])
    best = truth(jnp.asarray([[-1.0], [1.0], [1.0]]))
    assert found.max() > best - 0.05, (found, best)
    assert float(truth(jnp.ones((3, 1)))) < best - 0.5
