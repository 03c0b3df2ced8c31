"""A NumPyro model as a task: the same densities and draws as the model written by hand, and
refusals that name the site.
"""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

from scorebed.errors import ScorebedError
from scorebed.tasks.declare import ranges
from scorebed.tasks.numpyro import from_numpyro

TIMES = ranges({"time [h]": (0.0, 5.0)})


def decay(xi):
    centre = numpyro.sample("centre", dist.Normal(0.0, 1.0))
    with numpyro.plate("two", 2):
        rates = numpyro.sample("rate", dist.LogNormal(centre, 0.5))
    numpyro.deterministic("sum", rates.sum())
    numpyro.sample("y", dist.Normal(jnp.exp(-rates * xi[0]).sum(), 0.1 + 0.1 * xi[0]))
    numpyro.sample("w", dist.Normal(centre, 0.3))


def task_of(model, **options):
    return from_numpyro(
        model, designs=TIMES, observe=options.pop("observe", ("y", "w")), horizon=4, **options
    )


@pytest.mark.slow
def test_a_hierarchical_model_has_the_densities_of_its_distributions():
    task = task_of(decay, units={"rate": "1/h"})
    assert [str(q) for q in task.prior.quantities] == ["centre", "rate 1 [1/h]", "rate 2 [1/h]"]
    assert [q.name for q in task.outcomes] == ["y", "w"]
    z, xi, noise = jnp.asarray([0.5, -1.0, 2.0]), jnp.asarray([1.5]), jnp.asarray([0.7, -0.2])
    theta = jax.jit(task.prior.from_latent)(z)
    rates = jnp.exp(0.5 + 0.5 * z[1:])
    np.testing.assert_allclose(theta, [0.5, *rates], rtol=1e-6)
    prior = dist.Normal(0.0, 1.0).log_prob(0.5) + dist.LogNormal(0.5, 0.5).log_prob(rates).sum()
    np.testing.assert_allclose(task.prior.log_prob(theta), prior, rtol=1e-5)
    y = task.outcome(theta, None, xi, noise)
    np.testing.assert_allclose(y, [jnp.exp(-rates * 1.5).sum() + 0.25 * 0.7, 0.5 - 0.06], rtol=1e-6)
    density = dist.Normal(0.0, 0.25).log_prob(0.25 * 0.7) + dist.Normal(0.0, 0.3).log_prob(-0.06)
    np.testing.assert_allclose(task.log_prob(y, theta, None, xi), density, rtol=1e-5)
    assert jnp.isfinite(jax.grad(lambda xi: task.log_prob(y, theta, None, xi))(xi)).all()
    assert task.prior.sample(key=jr.key(0)).shape == (3,)


def site(name, distribution, *, then=True):
    def model(xi):
        numpyro.sample(name, distribution)
        if then:
            numpyro.sample("y", dist.Normal(xi[0], 1.0))

    return model


def with_param(xi):
    numpyro.param("free", 1.0)
    numpyro.sample("y", dist.Normal(xi[0], 1.0))


def with_factor(xi):
    numpyro.sample("a", dist.Normal(0.0, 1.0))
    numpyro.factor("penalty", -1.0)
    numpyro.sample("y", dist.Normal(xi[0], 1.0))


REFUSED = {
    "discrete": (
        site("count", dist.Poisson(3.0)),
        "the site 'count' of the model, got the discrete Poisson",
    ),
    "a vector": (
        site("ways", dist.MultivariateStudentT(3.0, jnp.zeros(2), jnp.eye(2))),
        "the site 'ways' of the model, got MultivariateStudentT, expected one of Normal, LogNormal",
    ),
    "a simplex as an outcome": (
        site("y", dist.Dirichlet(jnp.ones(3)), then=False),
        "the site 'y' of the model, got Dirichlet as an outcome",
    ),
    "no quantiles": (
        site("angle", dist.VonMises(0.0, 1.0)),
        "the site 'angle' of the model, got VonMises, which has no quantile function, expected one "
        "of Normal, LogNormal, StudentT",
    ),
    "a parameter": (with_param, "the site 'free' of the model, got a param site"),
    "a factor": (with_factor, "the site 'penalty' of the model, got a factor"),
    "nothing unknown": (
        lambda xi: numpyro.sample("y", dist.Normal(xi[0], 1.0)),
        "the parameters of the model, got none",
    ),
}


@pytest.mark.parametrize("fault", REFUSED)
def test_a_site_that_cannot_be_reparameterised_is_named(fault):
    model, words = REFUSED[fault]
    with pytest.raises(ScorebedError, match=words):
        task_of(model, observe="y")


def test_an_observed_site_has_to_be_there():
    with pytest.raises(
        ScorebedError, match="the observed sites, got z, expected some of centre, rate, y, w"
    ):
        task_of(decay, observe="z")


# --- distributions as they come ------------------------------------------------------------------


def exotic(xi):
    scale = numpyro.sample("scale", dist.HalfCauchy(1.0))
    pair = numpyro.sample(
        "pair", dist.MultivariateNormal(jnp.zeros(2), jnp.asarray([[1.0, 0.5], [0.5, 2.0]]))
    )
    factor = numpyro.sample("factor", dist.LKJCholesky(3, 1.5))
    numpyro.sample("spread", dist.Gamma(2.0, scale))  # hierarchical
    numpyro.sample("y", dist.StudentT(3.0, pair[0] + factor[2, 1] * xi[0], 1 + scale))


@pytest.mark.usefixtures("float64")
def test_priors_of_vectors_and_matrices_have_the_densities_of_their_distributions():
    """log p(θ) = log N(z; 0, I) − log |det ∂θ/∂z|, exactly, site by site and all together. A wrong
    α_j of LKJ, or a wrong order of its entries, fails.
    """
    with jax.numpy_dtype_promotion("standard"):
        task = from_numpyro(exotic, designs=TIMES, observe="y", horizon=2)
    names = [q.name for q in task.prior.quantities]
    assert names[:6] == ["scale", "pair 1", "pair 2", "factor 2,1", "factor 3,1", "factor 3,2"]
    assert names[6:] == ["spread"]

    def gap(z):
        theta, jacobian = task.prior.from_latent(z), jax.jacfwd(task.prior.from_latent)(z)
        exact = jax.scipy.stats.norm.logpdf(z).sum() - jnp.linalg.slogdet(jacobian)[1]
        return task.prior.log_prob(theta) - exact

    zs = jr.normal(jr.key(0), (4, task.prior.dim))
    with jax.numpy_dtype_promotion("standard"):  # NumPyro's own arithmetic mixes types
        np.testing.assert_allclose(jax.jit(jax.vmap(gap))(zs), 0, atol=1e-4)


def test_a_simplex_has_the_moments_of_its_distribution():
    """Means and variances of 3,000 draws within 4.892 standard errors: one false alarm in a
    million.
    """
    concentration = jnp.asarray([0.8, 2.0, 3.0])

    def model(xi):
        shares = numpyro.sample("shares", dist.Dirichlet(concentration))
        numpyro.sample("y", dist.Normal(shares[0] * xi[0], 1.0))

    prior = from_numpyro(model, designs=TIMES, observe="y", horizon=2).prior
    draws = np.asarray(jax.jit(jax.vmap(prior.from_latent))(jr.normal(jr.key(0), (3000, 3))))
    np.testing.assert_allclose(draws.sum(1), 1, atol=1e-5)
    expected = dist.Dirichlet(concentration)
    for power, moment in ((1, expected.mean), (2, expected.variance + expected.mean**2)):
        error = (draws**power).std(0) / 3000**0.5
        assert (np.abs((draws**power).mean(0) - np.asarray(moment)) < 4.892 * error).all()


def test_log_normal_outcomes_do_not_underflow():
    """Far in the tail of a prior a rate is so large that e^(−rate · time) is zero in single
    precision: a density there would be NaN, and so would every bound that meets it.
    """

    def model(xi):
        rate = numpyro.sample("rate", dist.LogNormal(0.0, 2.0))
        with numpyro.plate("probes", 2):
            numpyro.sample("level", dist.LogNormal(-rate * xi[0], 0.1))

    task = from_numpyro(model, designs=ranges({"time": (0.1, 10.0)}), observe="level", horizon=2)

    def value(rate, time):
        theta, xi = jnp.asarray([rate]), jnp.asarray([time])
        y = task.outcome(theta, None, xi, jnp.asarray([0.5, -0.5]))
        return task.log_prob(y, theta, None, xi), task.log_prob(y, 0.9 * theta, None, xi)

    for rate in (1.0, 30.0, 1e4):
        own, other = value(rate, 9.0)
        slopes = jax.jacobian(value, argnums=(0, 1))(rate, 9.0)
        assert np.isfinite([own, other]).all()
        assert np.isfinite(jax.tree.leaves(slopes)).all()
    y = jnp.exp(jnp.asarray([-0.85, -0.95]))
    found = task.log_prob(y, jnp.asarray([0.3]), None, jnp.asarray([3.0]))
    np.testing.assert_allclose(found, dist.LogNormal(-0.9, 0.1).log_prob(y).sum(), rtol=1e-6)
