"""Priors p(θ): named parameters, a latent map θ = f(z), z ~ N(0, I), and a density.

`Independent` joins marginals, which are numpyro distributions; `GaussianPrior` has correlations.
The latent map is the sampler: θ is always drawn as f(z), so that methods that work in z (posterior
proposals, likelihood particles) and methods that work in θ use the same prior."""

import abc
import math
from collections.abc import Sequence

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import numpyro.distributions as dist
from jaxtyping import Array, Float, PRNGKeyArray, Scalar

from scorebed.errors import require
from scorebed.tasks.quantiles import Map
from scorebed.tasks.quantiles import latent_map as latent_map
from scorebed.tasks.spaces import Quantity

# Standard deviations beyond √k, the length of a usual draw, up to which `within_prior` changes
# nothing: one draw of the prior in 10⁴ to 10⁵ lies farther out.
REACH = 3.0


def within_prior(z: Float[Array, "*b k"]) -> Float[Array, "*b k"]:
    """Latent points kept to where the prior has its draws: as they are up to the length √k + 3, and
    smoothly below √k + 4 however far away they were.

    Whatever proposes parameters (a network's particles, clouds around modes) may wander to where no
    draw of the prior ever is and a model overflows; the posterior has no mass there.
    """
    edge = math.sqrt(z.shape[-1]) + REACH
    square = (z**2).sum(-1, keepdims=True)
    far = square > edge**2
    length = jnp.sqrt(jnp.where(far, square, edge**2))
    return jnp.where(far, z * ((edge + jnp.tanh(length - edge)) / length), z)


class Marginal(eqx.Module):
    """A block of parameters, independent of the others: their names, and a scalar distribution, a
    batch of them, or one of a vector (`tasks/quantiles.py`).
    """

    quantities: tuple[Quantity, ...] = eqx.field(static=True)
    distribution: dist.Distribution

    def __check_init__(self) -> None:
        shape, event, n = (
            self.distribution.batch_shape,
            self.distribution.event_shape,
            len(self.quantities),
        )
        require(
            (not event and shape in ((), (n,))) or (event == (n,) and not shape),
            f"the prior of {', '.join(q.name for q in self.quantities)}",
            got=f"batch shape {shape} and event shape {self.distribution.event_shape}",
            expected=f"a scalar distribution, a batch of {n}, or one of a vector of {n}",
            fix="name every coordinate, or use .expand([n]).",
        )


class Prior(eqx.Module):
    """p(θ) over one parameter vector θ of length k."""

    quantities: eqx.AbstractVar[tuple[Quantity, ...]]

    @property
    def dim(self) -> int:
        """Number of parameters, k."""
        return len(self.quantities)

    def sample(self, *, key: PRNGKeyArray) -> Float[Array, " k"]:
        """θ ~ p(θ)."""
        return self.from_latent(jr.normal(key, (self.dim,)))

    @abc.abstractmethod
    def from_latent(self, z: Float[Array, " k"]) -> Float[Array, " k"]:
        """θ = f(z): standard normal z to prior draws."""

    @abc.abstractmethod
    def log_prob(self, theta: Float[Array, " k"]) -> Scalar:
        """log p(θ); a probability where θ is discrete."""


class Independent(Prior):
    """Independent marginals, concatenated."""

    marginals: tuple[Marginal, ...]
    quantities: tuple[Quantity, ...] = eqx.field(static=True)

    def __init__(self, marginals: tuple[Marginal, ...]):
        require(
            len(marginals) > 0,
            "a prior",
            got="no marginals",
            expected="at least one",
            fix="name a parameter.",
        )
        self.marginals = marginals
        self.quantities = tuple(q for m in marginals for q in m.quantities)

    def from_latent(self, z: Float[Array, " k"]) -> Float[Array, " k"]:
        return jnp.concatenate([latent_map(m.distribution)(part) for m, part in self._blocks(z)])

    def log_prob(self, theta: Float[Array, " k"]) -> Scalar:
        terms = [m.distribution.log_prob(part).sum() for m, part in self._blocks(theta)]
        return sum(terms[1:], start=terms[0])

    def _blocks(self, values: Float[Array, " k"]) -> list[tuple[Marginal, Float[Array, " n"]]]:
        sizes = [len(m.quantities) for m in self.marginals]
        stops = [sum(sizes[: i + 1]) for i in range(len(sizes))]
        return [
            (m, values[b - n : b]) for m, n, b in zip(self.marginals, sizes, stops, strict=True)
        ]


class GaussianPrior(Prior):
    """θ = μ₀ + L z, with the Cholesky factor L of the covariance. Python numbers, which serve any
    precision.
    """

    quantities: tuple[Quantity, ...] = eqx.field(static=True)
    mean: tuple[float, ...] = eqx.field(static=True)
    cholesky: tuple[tuple[float, ...], ...] = eqx.field(static=True)

    def __check_init__(self) -> None:
        k = len(self.quantities)
        fits = len(self.mean) == len(self.cholesky) == k and all(
            len(row) == k for row in self.cholesky
        )
        require(
            fits
            and all(row[i] > 0 and not any(row[i + 1 :]) for i, row in enumerate(self.cholesky)),
            "a Gaussian prior",
            got=f"mean={self.mean}, cholesky={self.cholesky}",
            expected=f"{k} means and a {k} × {k} lower triangle with a positive diagonal",
            fix="build it from its covariance with gaussian(quantities, mean, covariance).",
        )

    def from_latent(self, z: Float[Array, " k"]) -> Float[Array, " k"]:
        rows = zip(self.mean, self.cholesky, strict=True)
        return jnp.stack(
            [m + sum(row[j] * z[j] for j in range(i + 1)) for i, (m, row) in enumerate(rows)]
        )

    def log_prob(self, theta: Float[Array, " k"]) -> Scalar:
        # Forward substitution, written out in scalars: a LAPACK call would not vectorise.
        z: list[Scalar] = []
        log_scale = 0.0
        for i, row in enumerate(self.cholesky):
            z.append((theta[i] - self.mean[i] - sum(row[j] * z[j] for j in range(i))) / row[i])
            log_scale += math.log(row[i])
        return -0.5 * sum((v**2 for v in z[1:]), start=z[0] ** 2) - (
            log_scale + 0.5 * self.dim * math.log(2 * math.pi)
        )


class Floored(dist.Distribution):
    """max(x, floor) for x ~ `base`: the mass of `base` below the floor becomes an atom on it.

    `log_prob` is the density with respect to Lebesgue measure plus a unit atom at the floor:
    log P(x ≤ floor) there, −∞ below, and that of `base` above."""

    pytree_data_fields = ("base",)
    pytree_aux_fields = ("floor",)

    def __init__(self, base: dist.Distribution, floor: float):
        self.base, self.floor = base, floor
        super().__init__(batch_shape=base.batch_shape, event_shape=())

    def sample(self, key: PRNGKeyArray, sample_shape: tuple[int, ...] = ()) -> Array:
        return jnp.maximum(self.base.sample(key, sample_shape), self.floor)

    def log_prob(self, value: Array) -> Array:
        above = self.base.log_prob(jnp.maximum(value, self.floor))
        atom = jnp.log(self.base.cdf(jnp.full_like(value, self.floor)))
        return jnp.where(value > self.floor, above, jnp.where(value == self.floor, atom, -jnp.inf))


@latent_map.register
def _(distribution: Floored) -> Map:
    return lambda z: jnp.maximum(latent_map(distribution.base)(z), distribution.floor)


def standard_normal(quantities: tuple[Quantity, ...]) -> Independent:
    """θ ~ N(0, I)."""
    return Independent((Marginal(quantities, dist.Normal(0.0, 1.0)),))


def log_normal(quantities: tuple[Quantity, ...], scale: float) -> Independent:
    """log θ ~ N(0, scale² I)."""
    return Independent((Marginal(quantities, dist.LogNormal(0.0, scale)),))


def gaussian(
    quantities: tuple[Quantity, ...], mean: Sequence[float], covariance: Sequence[Sequence[float]]
) -> GaussianPrior:
    """θ ~ N(mean, covariance)."""
    k = len(quantities)
    matrix = np.asarray(covariance, np.float64)
    positive = (
        matrix.shape == (k, k)
        and np.array_equal(matrix, matrix.T)
        and np.linalg.eigvalsh(matrix)[0] > 0
    )
    require(
        bool(positive) and len(mean) == k,
        "a Gaussian prior",
        got=f"mean={tuple(mean)}, covariance={matrix.tolist()}",
        expected=f"{k} means and a symmetric positive definite {k} × {k} covariance",
        fix="give one mean and one row of covariances per parameter.",
    )
    lower = np.linalg.cholesky(matrix).tolist()
    return GaussianPrior(quantities, tuple(map(float, mean)), tuple(map(tuple, lower)))
