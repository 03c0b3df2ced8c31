"""The two variational bounds with known densities: their values are the EIG plus or minus a known
gap, their gradients the truth.

Expectations over z and the noise are taken by quadrature in double precision, so that a wrong term
cannot hide in sampling error."""

import math
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

from oracles import ORACLES, STEPS, XIS, Affine, grid
from scorebed._jit import jit_once
from scorebed.densities.flow_marginal import MarginalDensity
from scorebed.densities.mixture_posterior import PosteriorDensity
from scorebed.estimators.variational import marginal_surrogate, posterior_surrogate
from scorebed.rollout import Noise, log_likelihood, rollout
from scorebed.tasks.oracles.closed_form import ClosedForm
from scorebed.tasks.oracles.linear_gaussian import LinearGaussian
from scorebed.tasks.oracles.sign import Sign

pytestmark = pytest.mark.usefixtures("float64")

T = STEPS
LOG_2PI = math.log(2 * math.pi)


class ExactMarginal(MarginalDensity):
    task: ClosedForm
    sampler: None = None

    def log_prob(self, ys, xis):
        return self.task.marginal_log_prob(ys, xis)

    def objective(self, ys, xis):
        return self.log_prob(ys, xis)


class ExactPosterior(PosteriorDensity):
    """The task's own Gaussian posterior of θ = μ₀ + L z, as a density of z; by Bayes' rule where it
    is not Gaussian.
    """

    task: ClosedForm

    def log_prob(self, z, ys, xis):
        theta = self.task.prior.from_latent(z)
        if isinstance(self.task, Sign):
            log_prior = -0.5 * (z**2).sum() - 0.5 * LOG_2PI * z.size
            return (
                log_likelihood(self.task, theta, ys, xis)
                - self.task.marginal_log_prob(ys, xis)
                + log_prior
            )
        posterior = self.task.posterior(ys, xis)
        away, C = theta - posterior.mean, posterior.covariance
        # Written out for one or two parameters: batched LAPACK calls are slow.
        if z.size == 1:
            square, det = away[0] ** 2 / C[0, 0], C[0, 0]
        else:
            det = C[0, 0] * C[1, 1] - C[0, 1] ** 2
            square = (
                C[1, 1] * away[0] ** 2 - 2 * C[0, 1] * away[0] * away[1] + C[0, 0] * away[1] ** 2
            ) / det
        log_volume = sum(math.log(row[i]) for i, row in enumerate(self.task.prior.cholesky))
        return -0.5 * (square + jnp.log(det) + LOG_2PI * z.size) + log_volume


class WrongMarginal(MarginalDensity):
    """N(m, s²) at every step, whatever the design."""

    m: float
    s: float
    sampler: None = None

    def log_prob(self, ys, xis):
        del xis
        return (-0.5 * ((ys - self.m) / self.s) ** 2 - math.log(self.s) - 0.5 * LOG_2PI).sum()

    def objective(self, ys, xis):
        return self.log_prob(ys, xis)


class WrongPosterior(PosteriorDensity):
    """θ ~ N(a y_1, c²), for a scalar θ = τ z."""

    a: float
    c: float
    tau: float

    def log_prob(self, z, ys, xis):
        del xis
        away = (self.tau * z[0] - self.a * ys[0, 0]) / self.c
        return -0.5 * away**2 - math.log(self.c / self.tau) - 0.5 * LOG_2PI


def by_marginal(task, density, policy, z, noise):
    return marginal_surrogate(task, density, policy, task.prior.from_latent(z), noise)


def gain(task, density, policy, z, noise):
    """The EIG is the mean of this over rollouts: its gradient, by differentiation through them, is
    the truth.
    """
    del density
    run = rollout(task, policy, task.prior.from_latent(z), noise)
    return task.information_gain(run.ys, run.xis)


@eqx.filter_jit
def means(
    task: ClosedForm, policy: Affine, points, **surrogates: tuple[Callable, object]
) -> dict[str, tuple[Array, Array]]:
    """The expectation of each surrogate and of its gradient in the policy, (φ, κ) in one vector."""
    zs, noises, weights = points

    def mean(surrogate, density):
        def one(policy, z, noise):
            return surrogate(task, density, policy, z, Noise(noise, jnp.zeros((task.horizon, 0))))

        return jax.value_and_grad(
            lambda p: weights @ jax.vmap(one, in_axes=(None, 0, 0))(p, zs, noises)
        )(policy)

    found = {name: mean(*both) for name, both in surrogates.items()}
    return {
        name: (value, jnp.append(grad.phi, grad.kappa)) for name, (value, grad) in found.items()
    }


def exact_means(task: ClosedForm, policy: Affine, points) -> dict[str, tuple[Array, Array]]:
    return means(
        task,
        policy,
        points,
        marginal=(by_marginal, ExactMarginal(task)),
        posterior=(posterior_surrogate, ExactPosterior(task)),
        truth=(gain, None),
    )


def test_the_golden_value_and_gradient_of_an_adaptive_policy():
    task = LinearGaussian(horizon=T)
    found = exact_means(task, Affine(jnp.asarray([[1.0], [0.5]]), jnp.asarray(0.5)), grid(task))
    for value, grad in found.values():
        np.testing.assert_allclose(value, 0.4817426542, rtol=1e-8)
        # Without q's gradient through ξ (the Fisher term) the first would be 14% too large.
        np.testing.assert_allclose(grad, [0.4627018366, 0.1491926537, 0.2674006933], rtol=1e-8)


@pytest.mark.parametrize("name", [name for name in ORACLES if name != "projection"])
def test_with_exact_densities_value_and_gradient_are_those_of_the_eig(name):
    task = ORACLES[name]
    points, xis = grid(task, sign_nodes=81), jnp.asarray(XIS[task.designs.dim])
    adaptive = exact_means(task, Affine(xis, jnp.asarray(0.4)), points)
    # κ = 0: static designs, for which the closed form knows nothing of rollouts.
    static = exact_means(task, Affine(xis, jnp.asarray(0.0)), points)
    eig, gradient = jit_once(lambda xis: (task.eig(xis), task.eig_gradient(xis)))(xis)
    for bound in ("marginal", "posterior"):
        for found, truth in zip(adaptive[bound], adaptive["truth"], strict=True):
            np.testing.assert_allclose(found, truth, rtol=1e-5)
        np.testing.assert_allclose(static[bound][0], eig, rtol=1e-7)
        np.testing.assert_allclose(static[bound][1][:-1], gradient.ravel(), rtol=1e-7)


def test_wrong_densities_miss_by_their_divergences():
    tau, sigma, xi, m, s, a, c = 1.3, 0.7, 0.9, 0.4, 1.1, 0.5, 0.8
    task = LinearGaussian(covariance=((tau**2,),), noise=sigma, horizon=1)
    found = means(
        task,
        Affine(jnp.asarray([[xi]]), jnp.asarray(0.0)),
        grid(task),
        marginal=(by_marginal, WrongMarginal(m, s)),
        posterior=(posterior_surrogate, WrongPosterior(a, c, tau)),
    )
    v = sigma**2 + tau**2 * xi**2
    V = tau**2 * sigma**2 / v
    above = 0.5 * (math.log(s**2 / v) + (v + m**2) / s**2 - 1)
    below = 0.5 * (math.log(c**2 / V) + V / c**2 - 1 + (tau**2 * xi / v - a) ** 2 * v / c**2)
    assert min(above, below) > 0.01
    eig = 0.5 * math.log(v / sigma**2)
    np.testing.assert_allclose(found["marginal"][0] - eig, above, rtol=1e-8)
    np.testing.assert_allclose(eig - found["posterior"][0], below, rtol=1e-8)


def test_under_additive_noise_the_likelihood_has_no_gradient_at_all():
    task = LinearGaussian(horizon=T)
    policy = Affine(jnp.asarray([[1.0], [0.5]]), jnp.asarray(0.5))

    class Flat(WrongMarginal):
        def log_prob(self, ys, xis):
            return 0 * (ys.sum() + xis.sum())

    value, grad = means(task, policy, grid(task), flat=(by_marginal, Flat(0.0, 1.0)))["flat"]
    # What is left of the value is minus the entropy of the noise.
    np.testing.assert_allclose(value, -0.5 * T * (1 + LOG_2PI), rtol=1e-8)
    assert (grad == 0).all()
