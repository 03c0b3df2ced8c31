"""Priors p(θ): named parameters, a sampler, and where they exist a density and a latent map θ = f(z), z ~ N(0, I).

The marginals are numpyro distributions. The latent map is the sampler: θ is always drawn as f(z), so that methods which
work in z (posterior proposals, likelihood particles) and methods which work in θ see one prior.
"""

import functools
from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpyro.distributions as dist
from jax.scipy.special import ndtr
from jaxtyping import Array, Float, PRNGKeyArray, Scalar

from scorebed.errors import ScorebedError, require
from scorebed.tasks.spaces import Quantity


class Marginal(eqx.Module):
    """One block of parameters, independent of the others: its names, and a scalar distribution or a vector of them."""

    quantities: tuple[Quantity, ...] = eqx.field(static=True)
    distribution: dist.Distribution

    def __check_init__(self) -> None:
        shape = self.distribution.batch_shape
        require(
            not self.distribution.event_shape and shape in ((), (len(self.quantities),)),
            f"the prior of {', '.join(q.name for q in self.quantities)}",
            got=f"batch shape {shape} and event shape {self.distribution.event_shape}",
            expected=f"a scalar distribution or a batch of {len(self.quantities)}",
            fix="name every coordinate, or use .expand([n]).",
        )


class Prior(eqx.Module):
    """Independent marginals, concatenated into one parameter vector θ of length k."""

    marginals: tuple[Marginal, ...]

    @property
    def quantities(self) -> tuple[Quantity, ...]:
        """Names and units of the k parameters."""
        return tuple(q for m in self.marginals for q in m.quantities)

    @property
    def dim(self) -> int:
        """Number of parameters, k."""
        return len(self.quantities)

    def sample(self, *, key: PRNGKeyArray) -> Float[Array, " k"]:
        """θ ~ p(θ)."""
        return self.from_latent(jr.normal(key, (self.dim,)))

    def from_latent(self, z: Float[Array, " k"]) -> Float[Array, " k"]:
        """θ = f(z): standard normal z to prior draws."""
        return jnp.concatenate([latent_map(m.distribution)(part) for m, part in self._blocks(z)])

    def log_prob(self, theta: Float[Array, " k"]) -> Scalar:
        """log p(θ)."""
        return sum((m.distribution.log_prob(part).sum() for m, part in self._blocks(theta)), start=jnp.zeros(()))

    def _blocks(self, values: Float[Array, " k"]) -> list[tuple[Marginal, Float[Array, " n"]]]:
        sizes = [len(m.quantities) for m in self.marginals]
        stops = [sum(sizes[: i + 1]) for i in range(len(sizes))]
        return [(m, values[b - n : b]) for m, n, b in zip(self.marginals, sizes, stops, strict=True)]


@functools.singledispatch
def latent_map(distribution: dist.Distribution) -> Callable[[Float[Array, " n"]], Float[Array, " n"]]:
    """z ~ N(0, 1) ↦ a draw from a scalar `distribution`; register a type here if its quantile function is missing.

    The general case is the quantile function at Φ(z); where a family has a direct map it is used, since Φ(z) loses the
    upper tail beyond z ≈ 5 in single precision.
    """

    def by_quantile(z: Float[Array, " n"]) -> Float[Array, " n"]:
        try:
            return distribution.icdf(ndtr(z))
        except NotImplementedError as error:
            raise ScorebedError(
                f"the latent map of a prior, got {type(distribution).__name__}, which has no quantile function, expected "
                "a distribution with one. Fix: write it as a transformed Normal or Uniform."
            ) from error

    return by_quantile


@latent_map.register
def _(distribution: dist.Normal) -> Callable[[Float[Array, " n"]], Float[Array, " n"]]:
    return lambda z: distribution.loc + distribution.scale * z


@latent_map.register
def _(distribution: dist.ExpandedDistribution) -> Callable[[Float[Array, " n"]], Float[Array, " n"]]:
    return latent_map(distribution.base_dist)


@latent_map.register
def _(distribution: dist.TransformedDistribution) -> Callable[[Float[Array, " n"]], Float[Array, " n"]]:
    base = latent_map(distribution.base_dist)

    def push(z: Float[Array, " n"]) -> Float[Array, " n"]:
        x = base(z)
        for transform in distribution.transforms:
            x = transform(x)
        return x

    return push


class Floored(dist.Distribution):
    """max(x, floor) for x ~ `base`: the mass of `base` below the floor becomes an atom on it.

    `log_prob` is the density with respect to Lebesgue measure plus a unit atom at the floor: log P(x ≤ floor) there,
    −∞ below, and that of `base` above.
    """

    def __init__(self, base: dist.Distribution, floor: float):
        self.base, self.floor = base, floor
        super().__init__(batch_shape=base.batch_shape, event_shape=())

    def sample(self, key: PRNGKeyArray, sample_shape: tuple[int, ...] = ()) -> Array:
        return jnp.maximum(self.base.sample(key, sample_shape), self.floor)

    def log_prob(self, value: Array) -> Array:
        above = self.base.log_prob(jnp.maximum(value, self.floor))
        atom = jnp.log(self.base.cdf(jnp.full_like(value, self.floor)))
        return jnp.where(value > self.floor, above, jnp.where(value == self.floor, atom, -jnp.inf))

    def tree_flatten(self) -> tuple[tuple[dist.Distribution], float]:
        return (self.base,), self.floor

    @classmethod
    def tree_unflatten(cls, aux: float, children: tuple[dist.Distribution]) -> "Floored":
        floored = object.__new__(cls)
        floored.base, floored.floor = children[0], aux
        dist.Distribution.__init__(floored, batch_shape=children[0].batch_shape, event_shape=())
        return floored


@latent_map.register
def _(distribution: Floored) -> Callable[[Float[Array, " n"]], Float[Array, " n"]]:
    return lambda z: jnp.maximum(latent_map(distribution.base)(z), distribution.floor)


def standard_normal(quantities: tuple[Quantity, ...]) -> Prior:
    """θ ~ N(0, I)."""
    return Prior((Marginal(quantities, dist.Normal(0.0, 1.0)),))


def log_normal(quantities: tuple[Quantity, ...], scale: float) -> Prior:
    """log θ ~ N(0, scale² I)."""
    return Prior((Marginal(quantities, dist.LogNormal(0.0, scale)),))
