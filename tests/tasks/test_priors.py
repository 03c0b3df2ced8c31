"""A prior's draws, density and latent map are one distribution."""

import functools
import math
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from jaxtyping import Array
from scipy import stats

from scorebed.errors import InvalidValueError, ScorebedError
from scorebed.tasks import ORACLE_TASKS, TASKS
from scorebed.tasks.oracles.sign import RandomSign
from scorebed.tasks.priors import (
    Floored,
    GaussianPrior,
    Independent,
    Marginal,
    Prior,
    gaussian,
    latent_map,
)
from scorebed.tasks.spaces import Quantity

pytestmark = pytest.mark.usefixtures("float64")

DRAWS = 20_000
PRIORS: dict[str, Prior] = {
    name: {**TASKS, **ORACLE_TASKS}[name]().prior
    for name in (
        "location-finding",
        "pendulum",
        "gravimetry",
        "linear-gaussian-2d",
        "linear-gaussian-3d",
    )
}


class Draw(NamedTuple):
    z: Array
    theta: Array
    log_prob: Array
    jacobian: Array
    gradient: Array


@functools.cache
def draws(prior: Prior) -> Draw:
    @eqx.filter_jit
    def evaluate(prior: Prior, z: Array) -> Draw:
        def single(z: Array) -> Draw:
            theta = prior.from_latent(z)
            value, gradient = jax.value_and_grad(prior.log_prob)(theta)
            return Draw(z, theta, value, jax.jacfwd(prior.from_latent)(z), gradient)

        return jax.vmap(single)(z)

    z = np.random.default_rng(5).normal(size=(DRAWS, prior.dim))
    return jax.tree.map(np.asarray, evaluate(prior, jnp.asarray(z)))


@pytest.mark.parametrize("prior", PRIORS.values(), ids=PRIORS)
def test_the_density_is_that_of_the_latent_map(prior: Prior) -> None:
    """log p(f(z)) = log N(z; 0, I) − log |det f′(z)|, away from atoms."""
    draw = draws(prior)
    volume = np.linalg.slogdet(draw.jacobian)[1]
    smooth = np.isfinite(volume)
    assert smooth.mean() > 0.98
    normal = -0.5 * (draw.z**2).sum(1) - 0.5 * np.log(2 * np.pi) * prior.dim
    np.testing.assert_allclose(
        draw.log_prob[smooth], (normal - volume)[smooth], rtol=1e-9, atol=1e-9
    )


@pytest.mark.parametrize("prior", PRIORS.values(), ids=PRIORS)
def test_prior_scores_average_zero(prior: Prior) -> None:
    """E[∇ log p(θ)] = 0. Catches a density that is shifted against the sampler by 0.06 of its
    width.
    """
    # Not where the density stops at an edge: the floor of the depth, the ends of the radius.
    smooth = [i for i, q in enumerate(prior.quantities) if q.name not in ("depth", "strength")]
    scores = draws(prior).gradient[:, smooth]
    assert np.all(np.abs(scores.mean(0)) <= 4.892 * scores.std(0) / DRAWS**0.5)


def test_samples_are_the_latent_map_of_normal_draws() -> None:
    prior, key = TASKS["pendulum"]().prior, jax.random.key(0)
    np.testing.assert_array_equal(
        prior.sample(key=key), prior.from_latent(jax.random.normal(key, (2,)))
    )


def test_quantiles() -> None:
    """The latent map takes the quantiles of N(0, 1) to those of every marginal of the paper's
    priors.
    """
    p = np.asarray([0.001, 0.005, 0.3, 0.5, 0.95, 0.999])
    strength = (
        -2200 * 6.674e-11 / 1e-8 * 4 / 3 * np.pi * (1.5 + 2.5 * p) ** 3
    )  # as R grows, κ falls
    depth = np.maximum(stats.lognorm(0.5, scale=10).ppf(p), 3.0)
    truths = {
        "location-finding": [stats.norm.ppf(p)] * 4,
        "pendulum": [stats.lognorm(0.1).ppf(p)] * 2,
        "gravimetry": [stats.norm(0, 30).ppf(p), depth, strength],
    }
    for name, truth in truths.items():
        prior = TASKS[name]().prior
        z = jnp.asarray(np.tile(stats.norm.ppf(p)[:, None], prior.dim))
        np.testing.assert_allclose(jax.jit(jax.vmap(prior.from_latent))(z).T, truth, rtol=1e-7)


def test_floor_is_an_atom() -> None:
    """The density above the floor and the atom on it add up to one; nothing lies below."""
    depth, truth = Floored(dist.LogNormal(math.log(10.0), 0.5), 3.0), stats.lognorm(0.5, scale=10)
    log_z = np.linspace(math.log(3.0), math.log(3e3), 20_001)
    values = np.exp(jax.jit(depth.log_prob)(jnp.asarray([2.9, 3.0, *np.exp(log_z[1:])])))
    assert values[0] == 0.0
    assert values[1] == pytest.approx(truth.cdf(3.0), rel=1e-6)
    density = np.append(truth.pdf(3.0), values[2:]) * np.exp(log_z)
    assert np.trapezoid(density, log_z) + values[1] == pytest.approx(1.0, abs=1e-6)


def test_floored_draws_hit_the_atom_as_often_as_they_should() -> None:
    """P(depth = 3) by the sampler, by the latent map, and in closed form. Catches a truncation
    instead of a clamp.
    """
    depth = Floored(dist.LogNormal(math.log(10.0), 0.5), 3.0)
    atom, n = stats.norm.cdf((math.log(3) - math.log(10)) / 0.5), 200_000
    for sample in (
        jax.jit(lambda key: depth.sample(key, (n,)))(jax.random.key(0)),
        jax.jit(latent_map(depth))(jnp.asarray(np.random.default_rng(0).normal(size=n))),
    ):
        hits = np.asarray(sample == 3.0)
        assert abs(hits.mean() - atom) <= 4.892 * (atom * (1 - atom) / n) ** 0.5
        assert sample.min() == 3.0


def test_floored_is_a_pytree() -> None:
    depth = Floored(dist.Normal(0.0, 0.5).expand([3]), 1.0)
    leaves, tree = jax.tree.flatten(depth)
    again = jax.tree.unflatten(tree, leaves)
    assert (again.floor, again.batch_shape, jax.tree.leaves(again)) == (1.0, (3,), leaves)


def test_gaussian_prior_has_its_covariance() -> None:
    covariance = np.asarray([[1.0, 0.5, 0.2], [0.5, 1.5, -0.3], [0.2, -0.3, 0.7]])
    mean = np.asarray([0.1, -2.0, 3.0])
    prior = gaussian(tuple(map(Quantity, "abc")), mean.tolist(), covariance.tolist())
    jacobian = np.asarray(jax.jit(jax.jacfwd(prior.from_latent))(jnp.zeros(3)))
    np.testing.assert_allclose(jacobian @ jacobian.T, covariance, rtol=1e-12)
    theta = jnp.asarray([0.4, 0.3, 2.0])
    assert float(jax.jit(prior.log_prob)(theta)) == pytest.approx(
        stats.multivariate_normal(mean, covariance).logpdf(theta)
    )


def test_a_random_sign_is_fair() -> None:
    prior = RandomSign((Quantity("sign"),))
    theta = np.asarray(
        jax.jit(jax.vmap(prior.from_latent))(
            jnp.asarray(np.random.default_rng(0).normal(size=(DRAWS, 1)))
        )
    )
    assert set(theta[:, 0]) == {-1.0, 1.0}
    assert abs(theta.mean()) <= 4.892 / DRAWS**0.5  # catches P(θ = 1) off by 0.02
    assert [float(prior.log_prob(jnp.asarray([t]))) for t in (-1.0, 1.0, 0.5)] == [
        -math.log(2)
    ] * 2 + [-math.inf]


def test_the_latent_map_of_any_distribution_with_quantiles() -> None:
    prior = Independent(
        (Marginal((Quantity("a"), Quantity("b")), dist.Exponential(2.0).expand([2])),)
    )
    theta = jax.jit(prior.from_latent)(jnp.asarray([stats.norm.ppf(0.2), stats.norm.ppf(0.9)]))
    np.testing.assert_allclose(theta, stats.expon(scale=0.5).ppf([0.2, 0.9]), rtol=1e-6)


def test_a_distribution_without_quantiles_is_refused() -> None:
    with pytest.raises(ScorebedError, match=r"got VonMises.*Fix:"):
        latent_map(dist.VonMises(0.0, 1.0))(jnp.zeros(1))


@pytest.mark.parametrize(
    ("mean", "covariance"),
    [
        ((0.0,), ((1.0, 0.0), (0.0, 1.0))),
        ((0.0, 0.0), ((1.0, 2.0), (2.0, 1.0))),
        ((0.0, 0.0), ((1.0, 0.5), (0.4, 1.0))),
        ((0.0, 0.0), ((1.0,),)),
    ],
)
def test_a_bad_gaussian_is_refused(
    mean: tuple[float, ...], covariance: tuple[tuple[float, ...], ...]
) -> None:
    with pytest.raises(InvalidValueError, match=r"symmetric positive definite 2 × 2.*Fix:"):
        gaussian((Quantity("a"), Quantity("b")), mean, covariance)


def test_a_bad_cholesky_factor_is_refused() -> None:
    for factor in (((1.0, 0.1), (0.0, 1.0)), ((1.0, 0.0), (0.0, -1.0)), ((1.0,), (0.0,))):
        with pytest.raises(
            InvalidValueError, match=r"lower triangle with a positive diagonal.*Fix:"
        ):
            GaussianPrior((Quantity("a"), Quantity("b")), (0.0, 0.0), factor)


def test_a_bad_marginal_is_refused() -> None:
    for distribution in (
        dist.Normal(0.0, 1.0).expand([2]),
        dist.Normal(0.0, 1.0).expand([2]).to_event(1),
    ):
        with pytest.raises(InvalidValueError, match=r"the prior of a, b, c, got batch shape.*Fix:"):
            Marginal(tuple(map(Quantity, "abc")), distribution)
    with pytest.raises(InvalidValueError, match=r"got no marginals"):
        Independent(())
