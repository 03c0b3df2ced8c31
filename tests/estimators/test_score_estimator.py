"""The gradient of Theorem 1 with the exact score against the truth.

Expectations over θ and the noise are taken by quadrature in double precision, so that means are
exact to rounding and a wrong term cannot hide in sampling error."""

import copy
from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jaxtyping import Array

from oracles import ORACLES, STEPS, XIS, Affine, grid
from scorebed.errors import ScorebedError
from scorebed.estimators.score import adaptive, check_additive_noise, static
from scorebed.policies.base import Policy
from scorebed.rollout import Noise, rollout
from scorebed.scores.base import Score, ScoreValue
from scorebed.scores.exact import ExactScore
from scorebed.tasks import TASKS
from scorebed.tasks.base import Gaussian, Markov, Task
from scorebed.tasks.oracles.closed_form import ClosedForm
from scorebed.tasks.oracles.fading_noise import FadingNoise
from scorebed.tasks.oracles.linear_gaussian import LinearGaussian
from scorebed.tasks.priors import standard_normal
from scorebed.tasks.spaces import Quantity, Real

T = STEPS


class NoScore(Score):
    """s = 0: what is left of the estimator is the likelihood term."""

    def __call__(self, ys, xis):
        return ScoreValue(jnp.zeros_like(ys), jnp.zeros_like(xis))

    @property
    def nle(self) -> int:
        return 0


class Gradients(NamedTuple):
    """In the policy: the means of the two forms with the exact score, and the truth."""

    adaptive: Affine
    static: Affine
    truth: Affine


@eqx.filter_jit
def gradients(
    task: ClosedForm, policy: Affine, zs: Array, noises: Array, weights: Array
) -> Gradients:
    def mean_of(function: Callable[[Policy, Array, Noise], Array]) -> Affine:
        def one(policy: Affine, z: Array, noise: Array) -> Array:
            return function(
                policy, task.prior.from_latent(z), Noise(noise, jnp.zeros((task.horizon, 0)))
            )

        return jax.grad(lambda p: weights @ jax.vmap(one, in_axes=(None, 0, 0))(p, zs, noises))(
            policy
        )

    def gain(policy: Policy, theta: Array, eps: Noise) -> Array:
        """The EIG is the mean of this over rollouts: its gradient, by differentiation through them,
        is the truth.
        """
        run = rollout(task, policy, theta, eps)
        return task.information_gain(run.ys, run.xis)

    exact = ExactScore(task)
    return Gradients(
        mean_of(lambda p, theta, eps: adaptive(task, exact, p, theta, eps)),
        mean_of(lambda p, theta, eps: static(task, exact, p, theta, eps)),
        mean_of(gain),
    )


@eqx.filter_jit
def samples(
    task: Task, policy: Affine, surrogate: Callable, score: Score, zs: Array, noises: Array
) -> Affine:
    """The gradient of the surrogate in the policy, sample by sample."""

    def one(policy: Policy, z: Array, noise: Array) -> Array:
        eps = Noise(noise, jnp.zeros((task.horizon, 0)))
        return surrogate(task, score, policy, task.prior.from_latent(z), eps)

    return jax.vmap(jax.grad(one), in_axes=(None, 0, 0))(policy, zs, noises)


@pytest.mark.usefixtures("float64")
def test_the_golden_gradient_of_an_adaptive_policy():
    task = LinearGaussian(horizon=T)
    found = gradients(task, Affine(jnp.asarray([[1.0], [0.5]]), jnp.asarray(0.5)), *grid(task))
    right = np.asarray([0.4627018366, 0.1491926537, 0.2674006933])
    np.testing.assert_allclose([*found.adaptive.phi[:, 0], found.adaptive.kappa], right, rtol=1e-8)
    # Without the Fisher term, which the static form leaves out, the first design's is 14% too
    # large: 0.52955.
    wrong = right + np.asarray([0.0668501733, 0, 0])
    np.testing.assert_allclose([*found.static.phi[:, 0], found.static.kappa], wrong, rtol=1e-8)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("name", ORACLES)
def test_the_mean_is_the_gradient_of_the_expected_information_gain(name):
    task = ORACLES[name]
    points = grid(task)
    xis = jnp.asarray(XIS[task.designs.dim])
    found = gradients(task, Affine(xis, jnp.asarray(0.4)), *points)
    np.testing.assert_allclose(found.adaptive.phi, found.truth.phi, rtol=1e-5)
    np.testing.assert_allclose(found.adaptive.kappa, found.truth.kappa, rtol=1e-5)
    # κ = 0: static designs, for which both forms are right; the closed form knows nothing of
    # rollouts.
    blind = gradients(task, Affine(xis, jnp.asarray(0.0)), *points)
    np.testing.assert_allclose(blind.adaptive.phi, task.eig_gradient(xis), rtol=1e-7)
    np.testing.assert_allclose(blind.static.phi, task.eig_gradient(xis), rtol=1e-7)


@pytest.mark.usefixtures("float64")
def test_the_fisher_term_may_lower_the_variance():
    # θ, ε ~ N(0, 1), ξ = 1: the integrands are (θ² + θε)/2 and ½ + (θ² − ε²)/4, of mean ½ and
    # variance ¾ and ¼.
    task = LinearGaussian(horizon=1)
    zs, noises, weights = grid(task)
    for surrogate, variance in ((static, 0.75), (adaptive, 0.25)):
        policy = Affine(jnp.ones((1, 1)), jnp.asarray(0.0))
        each = samples(task, policy, surrogate, ExactScore(task), zs, noises).phi[:, 0, 0]
        np.testing.assert_allclose(
            [weights @ each, weights @ (each - 0.5) ** 2], [0.5, variance], rtol=1e-7
        )


@pytest.mark.parametrize(("name", "slope"), [("fading-noise", 1.0), ("linear-markov", 0.0)])
def test_the_likelihood_term_of_every_sample(name, slope):
    task = ORACLES[name]
    policy = Affine(jnp.asarray(XIS[task.designs.dim]), jnp.asarray(0.0))
    zs, noises = jr.normal(jr.key(0), (100, task.prior.dim)), jr.normal(jr.key(1), (100, T, 1))
    each = samples(task, policy, adaptive, NoScore(), zs, noises)
    np.testing.assert_allclose(each.phi, slope, atol=1e-5)


def test_the_unit_of_outcomes_does_not_matter():
    # y = ξθ + σε in units of `unit`, in single precision and sample by sample.
    policy = Affine(jnp.asarray([[1.0], [0.5]]), jnp.asarray(0.0))
    zs, noises = jr.normal(jr.key(0), (100, 1)), jr.normal(jr.key(1), (100, T, 1))

    def gradient(unit: float) -> Array:
        task = LinearGaussian(covariance=((unit**2,),), noise=unit, horizon=T)
        return samples(task, policy, adaptive, ExactScore(task), zs, noises).phi

    np.testing.assert_allclose(gradient(1e-6), gradient(1e6), rtol=1e-4, atol=1e-5)


def lie(task: Task) -> Task:
    liar = copy.copy(task)
    object.__setattr__(liar, "additive_noise", True)
    return liar


class Echo(Markov, Gaussian):
    """Noise that grows with the previous outcome: the likelihood term is not zero, though no design
    enters the noise.
    """

    share: float = eqx.field(static=True, default=1.0)
    horizon: int = eqx.field(static=True, default=3)
    prior: eqx.Module = standard_normal((Quantity("gain"),))
    designs: Real = eqx.field(static=True, default=Real((Quantity("input"),)))
    outcomes: tuple = eqx.field(static=True, default=(Quantity("response"),))
    additive_noise: bool = eqx.field(static=True, default=True)

    def start(self):
        return jnp.zeros(1)

    def mean(self, theta, state, xi):
        return 0.5 * state + theta * xi

    def scale(self, theta, state, xi):
        del theta, xi
        return (1 + self.share * jnp.tanh(state[0]) ** 2,)


@pytest.mark.parametrize(
    "task", [lie(FadingNoise()), Echo(0.02)], ids=["designs", "states, weakly"]
)
def test_a_false_claim_of_additive_noise_is_refused(task):
    with pytest.raises(ScorebedError, match="Fix: set additive_noise to False"):
        check_additive_noise(task, key=jr.key(0))


@pytest.mark.parametrize(
    "name", sorted(set(TASKS) - {"location-finding-3d"})
)  # the same class as its plane
def test_the_claims_of_the_built_in_tasks_are_true(name):
    check_additive_noise(TASKS[name](), key=jr.key(0))


def test_an_honest_task_is_not_questioned():
    check_additive_noise(FadingNoise(), key=jr.key(0))
    check_additive_noise(Echo(0.0), key=jr.key(0))
