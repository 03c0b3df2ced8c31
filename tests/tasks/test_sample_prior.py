"""A prior from samples: the mixture has the samples' moments, a map with its density, and whatever
form samples come in.
"""

import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from scorebed.errors import InvalidValueError
from scorebed.tasks.sample_prior import from_samples

RANDOM = np.random.default_rng(0)
GAUSSIAN = RANDOM.multivariate_normal([50.0, -2.0], [[4.0, 1.5], [1.5, 1.0]], size=3000)


def two_islands(n=2000):
    """Positive and negative numbers, two modes, and a ridge in one of them."""
    first = RANDOM.uniform(size=n) < 0.4
    rate = np.where(first, RANDOM.lognormal(-1.0, 0.2, n), RANDOM.lognormal(1.0, 0.4, n))
    return {
        "rate [1/h]": rate,
        "offset": np.where(first, 3.0, -np.log(rate)) + 0.1 * RANDOM.normal(size=n),
    }


@pytest.fixture(scope="module", autouse=True)
def double_precision():
    with jax.enable_x64(True):
        yield


def test_gaussian_samples_give_the_gaussian_of_their_moments():
    prior = from_samples(GAUSSIAN, ["mass [kg]", "offset"])
    assert [str(q) for q in prior.quantities] == ["mass [kg]", "offset"]
    assert len(prior.mixture.weights) == 1
    mean, covariance = GAUSSIAN.mean(0), np.cov(GAUSSIAN.T, ddof=0)
    at = np.asarray([51.0, -3.0])
    values = jax.jit(
        lambda z, at: (prior.from_latent(z), jax.jacfwd(prior.from_latent)(z), prior.log_prob(at))
    )
    centre, jacobian, log_prob = map(np.asarray, values(jnp.zeros(2), jnp.asarray(at)))
    np.testing.assert_allclose(centre, mean, rtol=1e-6)
    np.testing.assert_allclose(jacobian @ jacobian.T, covariance, rtol=1e-3)
    np.testing.assert_allclose(
        log_prob, stats.multivariate_normal(mean, covariance).logpdf(at), rtol=1e-3
    )


def test_a_mixture_is_drawn_as_its_density_says():
    """log p(f(z)) = log N(z) − log |det f′(z)|, and draws with the samples' distribution (a false
    alarm in 10⁵; one Gaussian in place of the mixture differs by 0.2).
    """
    samples = two_islands()
    prior = from_samples(samples)
    assert prior.positive == (True, False)
    assert len(prior.mixture.weights) > 1
    zs = jnp.asarray(np.random.default_rng(1).normal(size=(2000, 2)))

    @jax.jit
    @jax.vmap
    def at(z):
        theta = prior.from_latent(z)
        _, log_det = jnp.linalg.slogdet(jax.jacfwd(prior.from_latent)(z))
        return theta, prior.log_prob(theta), -0.5 * (z**2).sum() - np.log(2 * np.pi) - log_det

    theta, log_prob, exact = map(np.asarray, at(zs))
    assert (theta[:, 0] > 0).all()
    np.testing.assert_allclose(log_prob, exact, atol=2e-3)
    for i, name in enumerate(samples):
        assert stats.ks_2samp(theta[:, i], samples[name]).statistic < 2.4 * (2 / 2000) ** 0.5, name
    assert prior.log_prob(jnp.asarray([-1.0, 0.0])) == -jnp.inf


class Dataset(dict):
    """What xarray looks like from outside."""

    @property
    def data_vars(self):
        return self


def test_samples_come_in_many_forms():
    chains = GAUSSIAN.reshape(3, 1000, 2)
    of_dict = from_samples({"a": GAUSSIAN[:, 0], "b": GAUSSIAN[:, 1]})
    of_arviz = from_samples(
        types.SimpleNamespace(
            posterior=Dataset(b=chains[..., 1], a=chains[..., 0], c=chains[..., 0])
        ),
        {"a": "mass [kg]", "b": "offset"},
    )
    of_vector = from_samples({"x [m]": GAUSSIAN})
    assert [str(q) for q in of_arviz.quantities] == ["mass [kg]", "offset"]
    assert [str(q) for q in of_vector.quantities] == ["x 1 [m]", "x 2 [m]"]
    for prior in (of_dict, of_arviz, of_vector):
        assert (prior.centre, prior.mixture) == (of_dict.centre, of_dict.mixture)


BAD = {
    "few": (lambda: from_samples({"a": np.ones(10)}), "10 samples"),
    "NaN": (lambda: from_samples({"a": np.full(100, np.nan)}), "100 numbers that are not finite"),
    "one value": (lambda: from_samples({"a": np.ones(100)}), "only one value of a"),
    "no names": (lambda: from_samples(GAUSSIAN), "k names, or a dict"),
    "a wrong variable": (
        lambda: from_samples({"a": GAUSSIAN[:, 0]}, {"b": "b"}),
        "no variable 'b'",
    ),
    "of two lengths": (
        lambda: from_samples({"a": GAUSSIAN[:, 0], "b": GAUSSIAN[:90, 1]}),
        "the same number of each",
    ),
}


@pytest.mark.parametrize("fault", BAD)
def test_what_are_no_samples_is_refused(fault):
    make, words = BAD[fault]
    with pytest.raises(InvalidValueError, match=words):
        make()
