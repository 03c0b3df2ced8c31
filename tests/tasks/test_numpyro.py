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


def site(name, distribution):
    def model(xi):
        numpyro.sample(name, distribution)
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
        site("shares", dist.Dirichlet(jnp.ones(3))),
        "the site 'shares' of the model, got Dirichlet",
    ),
    "no quantiles": (
        site("angle", dist.VonMises(0.0, 1.0)),
        "the site 'angle' of the model, got VonMises, which has no",
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
