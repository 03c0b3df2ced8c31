"""Draws of NumPyro's distributions from normal numbers: each against its own density, exactly.

x = g(z) follows p if log p(x) = log N(z; 0, 1) − log |dx/dz| at every z (g is monotone). Its
derivatives in the parameters are right if they move the distribution function as they should,

    ∂F/∂α + p(x) ∂x/∂α = 0,

and where E[x] is known, the mean of the derivatives is its derivative.
"""

from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import stats

from scorebed.errors import ScorebedError
from scorebed.tasks.quantiles import WORKING, beta_cdf, latent_map

# Away from the points where a family's density has a corner.
Z = jnp.concatenate([jnp.linspace(-4.5, -0.05, 10), jnp.linspace(0.05, 4.5, 10)])
HALF = (0.4, 0.6)


@pytest.fixture
def precise(float64) -> Iterator[None]:
    """Double precision, and NumPyro's own arithmetic, which mixes types."""
    del float64
    with jax.numpy_dtype_promotion("standard"):
        yield


def mixture(a: jax.Array) -> dist.Distribution:
    return dist.MixtureSameFamily(
        dist.Categorical(probs=jnp.asarray(HALF)),
        dist.Normal(jnp.stack([a, a + 3]), jnp.asarray([1.0, 0.5])),
    )


# From one parameter to a distribution, and the value of that parameter.
FAMILIES = {
    "Normal": (lambda a: dist.Normal(a, 2.0), 1.0),
    "LogNormal": (lambda a: dist.LogNormal(0.5, a), 0.7),
    "StudentT": (lambda a: dist.StudentT(a, 1.0, 2.0), 3.0),
    "StudentT of little": (lambda a: dist.StudentT(a, 0.0, 1.0), 0.8),
    "Laplace": (lambda a: dist.Laplace(1.0, a), 2.0),
    "Cauchy": (lambda a: dist.Cauchy(1.0, a), 2.0),
    "Logistic": (lambda a: dist.Logistic(a, 2.0), 1.0),
    "Gumbel": (lambda a: dist.Gumbel(1.0, a), 2.0),
    "Gamma": (lambda a: dist.Gamma(a, 3.0), 2.0),
    "Gamma of little": (lambda a: dist.Gamma(a, 1.0), 0.6),
    "InverseGamma": (lambda a: dist.InverseGamma(a, 2.0), 3.0),
    "Chi2": (lambda a: dist.Chi2(a), 3.0),
    "Beta": (lambda a: dist.Beta(a, 3.0), 2.0),
    "Beta in b": (lambda a: dist.Beta(0.7, a), 1.5),
    "Exponential": (lambda a: dist.Exponential(a), 2.0),
    "Weibull": (lambda a: dist.Weibull(2.0, a), 1.5),
    "Pareto": (lambda a: dist.Pareto(1.0, a), 2.5),
    "Kumaraswamy": (lambda a: dist.Kumaraswamy(a, 3.0), 2.0),
    "HalfNormal": (lambda a: dist.HalfNormal(a), 2.0),
    "HalfCauchy": (lambda a: dist.HalfCauchy(a), 2.0),
    "Uniform": (lambda a: dist.Uniform(1.0, a), 3.0),
    "mixture": (mixture, 0.5),
    "mixture of families": (
        lambda a: dist.MixtureGeneral(
            dist.Categorical(probs=jnp.asarray(HALF)),
            [dist.Normal(a, 1.0), dist.StudentT(4.0, a + 2, 0.5)],
        ),
        0.5,
    ),
    "truncated": (lambda a: dist.TruncatedNormal(a, 1.0, low=-1.0, high=2.0), 0.5),
    "truncated below": (
        lambda a: dist.TruncatedDistribution(dist.StudentT(4.0, a, 1.0), low=0.5),
        0.0,
    ),
    "truncated above": (lambda a: dist.TruncatedCauchy(a, 1.0, high=1.0), 0.0),
    "transformed": (
        lambda a: dist.TransformedDistribution(
            dist.StudentT(5.0, a, 0.5), dist.transforms.ExpTransform()
        ),
        0.3,
    ),
}


@pytest.mark.usefixtures("precise")
@pytest.mark.parametrize("name", FAMILIES)
def test_a_draw_has_the_density_of_its_distribution_and_moves_with_its_parameter(name):
    make, value = FAMILIES[name]

    def draw(z, a):
        return latent_map(make(a))(z[None])[0]

    step = 1e-3  # of the parameter, at fixed z

    def all_of(z):
        slope, by_a = jax.jacfwd(draw, argnums=(0, 1))(z, jnp.asarray(value))
        reverse = jax.grad(draw, argnums=1)(z, jnp.asarray(value))
        near = draw(z, jnp.asarray(value + step)) - draw(z, jnp.asarray(value - step))
        return draw(z, jnp.asarray(value)), slope, by_a, reverse, near / (2 * step)

    z = Z.astype(jnp.float64)
    x, slope, by_a, reverse, near = map(np.asarray, jax.jit(jax.vmap(all_of))(z))
    log_p = np.asarray(make(jnp.asarray(value)).log_prob(jnp.asarray(x)))
    exact = stats.norm.logpdf(np.asarray(z)) - np.log(np.abs(slope))
    np.testing.assert_allclose(log_p, exact, atol=1e-3)
    np.testing.assert_allclose(reverse, by_a, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(by_a, near, rtol=5e-3, atol=1e-4)


REFERENCES = {
    "StudentT": stats.t(3, 1, 2),
    "Gamma": stats.gamma(2, scale=1 / 3),
    "Beta": stats.beta(2, 3),
}


@pytest.mark.parametrize("name", REFERENCES)
def test_draws_in_single_precision_are_those_of_their_distribution(name):
    """Kolmogorov's distance at evenly spaced probabilities: it is the error of the map alone, since
    nothing is drawn.
    """
    make, value = FAMILIES[name]
    z = jnp.asarray(stats.norm.ppf((np.arange(200) + 0.5) / 200), jnp.float32)
    x = np.asarray(jax.jit(latent_map(make(jnp.float32(value))))(z), np.float64)
    expected = stats.norm.cdf(np.asarray(z, np.float64))
    assert np.abs(REFERENCES[name].cdf(x) - expected).max() < 1e-5


@pytest.mark.usefixtures("precise")
def test_the_mean_of_derivatives_is_the_derivative_of_the_mean():
    """E[x] of Gamma(a, r) is a/r and of Beta(a, b) a/(a + b): by quadrature over z."""
    z = jnp.linspace(-7, 7, 281)
    weight = jax.scipy.stats.norm.pdf(z) * (z[1] - z[0])
    cases = [
        (lambda a: dist.Gamma(a, 3.0), 2.0, 1 / 3.0),
        (lambda a: dist.Beta(a, 3.0), 2.0, 3.0 / 25),
    ]
    for make, value, expected in cases:
        mean = lambda a, make=make: (weight * latent_map(make(a))(z)).sum()  # noqa: E731
        assert float(jax.grad(mean)(value)) == pytest.approx(expected, rel=1e-4)


@pytest.mark.usefixtures("precise")
def test_the_beta_distribution_function_has_derivatives_in_its_shapes():
    a, b = np.meshgrid([0.3, 1.0, 5.0, 40.0], [0.5, 2.0, 30.0])
    x = stats.beta(a, b).ppf(np.asarray([0.01, 0.3, 0.5, 0.9])[:, None, None])
    a, b, x = map(jnp.asarray, np.broadcast_arrays(a, b, x))
    for which in (0, 1):
        found = jax.jvp(beta_cdf, (a, b, x), tuple(jnp.full_like(x, i == which) for i in range(3)))[
            1
        ]
        h = 1e-5
        up, down = (
            stats.beta.cdf(x, a + s * h * (which == 0), b + s * h * (which == 1)) for s in (1, -1)
        )
        np.testing.assert_allclose(found, (up - down) / (2 * h), rtol=2e-2, atol=2e-4)


def test_what_has_no_map_is_refused_by_name_with_what_works():
    with pytest.raises(ScorebedError, match="VonMises, which has no quantile function") as caught:
        latent_map(dist.VonMises(0.0, 1.0))(jnp.zeros(1))
    assert WORKING in str(caught.value)
