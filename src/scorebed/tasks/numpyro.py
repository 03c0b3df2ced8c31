"""A NumPyro model of one step as a task with independent steps.

    def model(xi):
        rate = numpyro.sample("rate", dist.LogNormal(0.0, 0.5))
        numpyro.sample("y", dist.Normal(jnp.exp(-rate * xi[0]), 0.1))

    task = from_numpyro(model, designs=ranges({"time [h]": (0.0, 5.0)}), observe="y", horizon=4)

Sites that are not observed are the parameters, each a function of its latent numbers,

    θ_i = F⁻¹(Φ(z_i) | θ_1 … θ_{i−1}),

so a prior may be hierarchical (`tasks/quantiles.py` has the maps). A correlation matrix, or its
Cholesky factor, is known by its entries below the diagonal. A site that cannot be written so is
refused by its name.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jaxtyping import Array, Float, Scalar
from numpyro.primitives import Messenger

from scorebed.errors import InvalidValueError, ScorebedError, require
from scorebed.tasks.base import IID
from scorebed.tasks.constraints import Constraint
from scorebed.tasks.cost import DesignCost
from scorebed.tasks.nuisance import of_interest
from scorebed.tasks.numpyro_discrete import (
    NumpyroDiscrete,
    largest,
    listed,
    require_independent,
)
from scorebed.tasks.priors import Prior
from scorebed.tasks.quantiles import (
    WORKING,
    cholesky_of_partial,
    latent_map,
    partial_correlations,
    representable,
)
from scorebed.tasks.spaces import Quantity, Space

Model = Callable[..., Any]


class SiteShape(NamedTuple):
    """The shape of a site's value; of a correlation matrix or its Cholesky factor only the entries
    below the diagonal are free.
    """

    shape: tuple[int, ...]
    correlation: bool = False
    cholesky: bool = False

    @property
    def size(self) -> int:
        """Numbers that it takes."""
        n = self.shape[-1] if self.shape else 1
        return n * (n - 1) // 2 if self.correlation else math.prod(self.shape)

    def draw(self, name: str, distribution: Any, z: Float[Array, " n"]) -> Array:
        """A value from standard normal numbers."""
        if not self.correlation:
            return _draw(name, distribution, z.reshape(self.shape))
        dim = self.shape[-1]
        partial = partial_correlations(distribution.concentration, dim, z)
        factor = cholesky_of_partial(partial, dim)
        return factor if self.cholesky else factor @ factor.T

    def pack(self, value: Array) -> Float[Array, " n"]:
        """The free numbers of a value."""
        if not self.correlation:
            return value.reshape(-1)
        return value[np.tril_indices(self.shape[-1], -1)]

    def unpack(self, numbers: Float[Array, " n"]) -> Array:
        """The value again."""
        if not self.correlation:
            return numbers.reshape(self.shape)
        dim = self.shape[-1]
        below = jnp.zeros((dim, dim), numbers.dtype).at[np.tril_indices(dim, -1)].set(numbers)
        if not self.cholesky:
            return below + below.T + jnp.eye(dim, dtype=numbers.dtype)
        rest = 1 - (below**2).sum(1)
        return below + jnp.diag(jnp.sqrt(jnp.maximum(rest, jnp.finfo(rest.dtype).tiny)))


class Site(NamedTuple):
    """A sample site: its name and shape, and where its numbers start in a flat vector."""

    name: str
    kind: SiteShape
    start: int

    @property
    def shape(self) -> tuple[int, ...]:
        """Of its value."""
        return self.kind.shape

    @property
    def size(self) -> int:
        """Number of its values."""
        return self.kind.size

    def numbers(self, vector: Float[Array, " n"]) -> Float[Array, " m"]:
        """Its part of a flat vector."""
        return vector[self.start : self.start + self.size]

    def of(self, vector: Float[Array, " n"]) -> Array:
        """Its value, from a flat vector."""
        return self.kind.unpack(self.numbers(vector))

    @property
    def names(self) -> tuple[str, ...]:
        """One name per value."""
        if self.kind.correlation:
            pairs = zip(*np.tril_indices(self.shape[-1], -1), strict=True)
            return tuple(f"{self.name} {i + 1},{j + 1}" for i, j in pairs)
        return (
            (self.name,)
            if not self.shape
            else tuple(f"{self.name} {i + 1}" for i in range(self.size))
        )


class _Fill(Messenger):  # type: ignore[misc]
    """Sets every sample site to `give(name, distribution)`."""

    def __init__(self, fn: Model, give: Callable[[str, Any], Array]):
        super().__init__(fn)
        self.give = give

    def process_message(self, msg: dict[str, Any]) -> None:
        if msg["type"] == "sample":
            msg["value"] = self.give(msg["name"], msg["fn"])
        elif msg["type"] in ("param", "mutable"):
            raise _refused(
                msg["name"],
                f"a {msg['type']} site",
                "no sites besides sample and deterministic ones",
                "make it a sample site with a prior, or a number.",
            )


class ModelPrior(Prior):
    """The prior of the sites that are not observed, in the order of the model."""

    model: Model = eqx.field(static=True)
    sites: tuple[Site, ...] = eqx.field(static=True)
    # Any design: the prior may not depend on it.
    somewhere: tuple[float, ...] = eqx.field(static=True)
    quantities: tuple[Quantity, ...] = eqx.field(static=True)

    def from_latent(self, z: Float[Array, " k"]) -> Float[Array, " k"]:
        parts: list[Array] = []
        by_name = {site.name: site for site in self.sites}

        def give(name: str, distribution: Any) -> Array:
            if name not in by_name:
                return jnp.zeros(distribution.shape())
            site = by_name[name]
            value = site.kind.draw(name, distribution, site.numbers(z))
            parts.append(site.kind.pack(value))
            return value

        _Fill(self.model, give)(jnp.asarray(self.somewhere))
        return jnp.concatenate(parts)

    def log_prob(self, theta: Float[Array, " k"]) -> Scalar:
        return _log_prob(
            self.model,
            jnp.asarray(self.somewhere),
            {s.name: s.of(theta) for s in self.sites},
            self.sites,
        )


class NumpyroTask(IID):
    """Steps are independent given the parameters. Made by `from_numpyro`."""

    model: Model = eqx.field(static=True)
    horizon: int = eqx.field(static=True)
    prior: ModelPrior
    designs: Space = eqx.field(static=True)
    outcomes: tuple[Quantity, ...] = eqx.field(static=True)
    observed: tuple[Site, ...] = eqx.field(static=True)
    additive_noise: bool = eqx.field(static=True)
    interest: tuple[str, ...] = eqx.field(static=True)  # type: ignore[misc]
    constraint: Constraint | None = eqx.field(static=True)  # type: ignore[misc]
    cost: DesignCost | None = eqx.field(static=True)  # type: ignore[misc]

    def outcome(
        self,
        theta: Float[Array, " k"],
        state: None,
        xi: Float[Array, " dx"],
        noise: Float[Array, " dy"],
    ) -> Float[Array, " dy"]:
        del state
        latent = {site.name: site.of(theta) for site in self.prior.sites}
        parts: dict[str, Array] = {}
        by_name = {site.name: site for site in self.observed}

        def give(name: str, distribution: Any) -> Array:
            if name in latent:
                return latent[name]
            site = by_name[name]
            parts[name] = site.kind.draw(name, representable(distribution), site.numbers(noise))
            return parts[name]

        _Fill(self.model, give)(xi)
        return jnp.concatenate([parts[site.name].reshape(-1) for site in self.observed])

    def log_prob(
        self,
        y: Float[Array, " dy"],
        theta: Float[Array, " k"],
        state: None,
        xi: Float[Array, " dx"],
    ) -> Scalar:
        del state
        values = {site.name: site.of(theta) for site in self.prior.sites} | {
            s.name: s.of(y) for s in self.observed
        }
        return _log_prob(self.model, xi, values, self.observed, representable)


def from_numpyro(
    model: Model,
    *,
    designs: Space,
    observe: str | Sequence[str],
    horizon: int,
    units: dict[str, str] | None = None,
    additive_noise: bool = False,
    interest: Sequence[str] = (),
    constraint: Constraint | None = None,
    cost: DesignCost | None = None,
    at_most: Mapping[str, int] | None = None,
) -> NumpyroTask | NumpyroDiscrete:
    """A task with independent steps from a NumPyro model of one step.

    Sites that are not observed are the parameters. The values of a site x with a shape are called
    "x 1", "x 2" and so on.

    Arguments:
        model: the model, `model(xi)`.
        designs: the design space; see `ranges` and `unbounded`.
        observe: names of the sites that are measured.
        horizon: number of steps, T.
        units: units by site.
        additive_noise: whether y = mean(θ, ξ) + constant · noise.
        interest: names of the parameters of interest; all if left out.
        constraint: what ties designs together; see `ordered` and `steps_at_most`.
        cost: what a design costs; see `priced`.
        at_most: the largest count to tell apart, by site, of distributions without one.

    Returns:
        The task.

    Raises:
        InvalidValueError: if a parameter is discrete, a site cannot be made of normal numbers,
            discrete and continuous outcomes are mixed, or a name or size does not fit the model.
        UnknownNameError: if a name in `interest` or `constraint` does not exist.

    Example:
        >>> import numpyro
        >>> import numpyro.distributions as dist
        >>> def model(xi):
        ...     rate = numpyro.sample("rate", dist.LogNormal(0.0, 0.5))
        ...     numpyro.sample("y", dist.Normal(jnp.exp(-rate * xi[0]), 0.1))
        >>> times = sb.ranges({"time [h]": (0.0, 5.0)})
        >>> sb.from_numpyro(model, designs=times, observe="y", horizon=4).prior.dim
        1
    """
    require(
        horizon >= 1,
        "a task from NumPyro",
        got=f"horizon={horizon}",
        expected="at least one step",
        fix="give the number of steps of an experiment.",
    )
    wanted = (observe,) if isinstance(observe, str) else tuple(observe)
    middle = designs.constrain(jnp.zeros(designs.dim))
    shapes, discrete = _shapes(model, middle, wanted)
    missing = [name for name in wanted if name not in shapes]
    require(
        not missing and len(wanted) > 0,
        "the observed sites",
        got=", ".join(missing) or "none",
        expected=f"some of {', '.join(shapes)}",
        fix="name the sites that are measured.",
    )
    latent, observed = (
        _sites(shapes, [n for n in shapes if n not in wanted]),
        _sites(shapes, list(wanted)),
    )
    require(
        len(latent) > 0,
        "the parameters of the model",
        got="none",
        expected="a site that is not observed",
        fix="give every unknown a prior.",
    )
    named = [
        tuple(Quantity(n, (units or {}).get(s.name, "")) for s in sites for n in s.names)
        for sites in (latent, observed)
    ]
    prior = ModelPrior(
        model=model, sites=latent, somewhere=tuple(float(x) for x in middle), quantities=named[0]
    )
    if discrete:
        return _discrete_task(
            prior,
            discrete,
            observed,
            units or {},
            at_most or {},
            horizon=horizon,
            designs=designs,
            interest=tuple(interest),
            constraint=constraint,
            cost=cost,
        )
    task = NumpyroTask(
        model=model,
        horizon=horizon,
        prior=prior,
        designs=designs,
        outcomes=named[1],
        observed=observed,
        additive_noise=additive_noise,
        interest=tuple(interest),
        constraint=constraint,
        cost=cost,
    )
    of_interest(task)
    _ = task.feasible  # refuses a constraint that does not fit
    # Sites without a latent map are refused here rather than during training.
    z, noise = jnp.zeros(prior.dim), jnp.zeros(task.outcome_dim)
    jax.eval_shape(lambda z: task.outcome(prior.from_latent(z), None, middle, noise), z)
    return task


def _discrete_task(
    prior: ModelPrior,
    distributions: Mapping[str, Any],
    observed: Sequence[Site],
    units: Mapping[str, str],
    at_most: Mapping[str, int],
    *,
    designs: Space,
    **rest: Any,
) -> NumpyroDiscrete:
    """The task of a model whose outcomes are all discrete."""
    mixed = [site.name for site in observed if site.name not in distributions]
    if mixed:
        raise _refused(
            mixed[0],
            "a continuous outcome beside discrete ones",
            "outcomes of one kind",
            "observe one kind of them.",
        )

    def of(theta: Array, xi: Array, value: float) -> dict[str, Any]:
        latent = {site.name: site.of(theta) for site in prior.sites}
        found: dict[str, Any] = {}

        def give(name: str, distribution: Any) -> Array:
            if name in latent:
                return latent[name]
            found[name] = distribution
            return jnp.full(distribution.shape(), value)

        _Fill(prior.model, give)(xi)
        return found

    def at(z: Array, u: Array) -> dict[str, Any]:
        return of(prior.from_latent(z), designs.constrain(u), 0.0)

    outcomes: list[Quantity] = []
    beyond = []
    for site in observed:
        dims = (prior.dim, designs.free_dim)
        count, goes_on = largest(site.name, distributions[site.name], at_most, at, dims)
        beyond += [site.name] if goes_on else []
        outcomes += [listed(name, units.get(site.name, ""), count) for name in site.names]
    sites = tuple((site.name, site.size) for site in observed)
    theta = prior.from_latent(jnp.zeros(prior.dim))
    require_independent(of, theta, jnp.asarray(prior.somewhere), sites)
    task = NumpyroDiscrete(
        observed=of,
        unbounded=tuple(beyond),
        sites=sites,
        prior=prior,
        designs=designs,
        outcomes=tuple(outcomes),
        **rest,
    )
    of_interest(task)
    _ = task.feasible  # refuses a constraint that does not fit
    return task


def _shapes(
    model: Model, xi: Float[Array, " dx"], observed: Sequence[str]
) -> tuple[dict[str, SiteShape], dict[str, Any]]:
    """The sample sites of a model and their shapes, in order, and the distributions of discrete
    outcomes. Refuses discrete parameters, and vectors and matrices that no map makes.
    """
    found: dict[str, SiteShape] = {}
    discrete: dict[str, Any] = {}

    def give(name: str, distribution: Any) -> Array:
        kind = type(distribution).__name__
        if kind == "Unit":
            raise _refused(
                name,
                "a factor",
                "distributions alone",
                "express it as a prior or an outcome.",
            )
        if getattr(distribution.support, "is_discrete", False):
            if name not in observed:
                raise _refused(
                    name,
                    f"the discrete {kind}",
                    "a continuous distribution",
                    "whole numbers have no gradient; use a continuous approximation.",
                )
            discrete[name] = distribution
            found[name] = SiteShape(tuple(distribution.batch_shape))
            return jnp.zeros(found[name].shape)
        found[name] = shape = _site_shape(name, distribution, observed=name in observed)
        return jnp.asarray(shape.draw(name, distribution, jnp.zeros(shape.size)))

    _Fill(model, give)(xi)
    return found, discrete


def _site_shape(name: str, distribution: Any, *, observed: bool) -> SiteShape:
    """The shape of a site, refused if it is a vector or matrix that cannot be made."""
    kind, event, batch = type(distribution), distribution.event_shape, distribution.batch_shape
    simplex, correlation = kind is dist.Dirichlet, kind in (dist.LKJ, dist.LKJCholesky)
    known = simplex or correlation or kind is dist.MultivariateNormal or kind is dist.Independent
    independent = kind in (dist.Independent, dist.ExpandedDistribution)
    if event and (not known or (batch and not independent) or (observed and not _smooth(kind))):
        where = " as an outcome" if observed and known else " in a plate" if batch and known else ""
        raise _refused(
            name,
            f"{kind.__name__}{where}",
            f"one of {WORKING}",
            "write its numbers as successive sites, each given the ones before.",
        )
    return SiteShape((*batch, *event), correlation, kind is dist.LKJCholesky)


def _smooth(kind: type) -> bool:
    """Whether a vector of outcomes has a density in all of its numbers."""
    return kind in (dist.MultivariateNormal, dist.Independent)


def _sites(shapes: dict[str, SiteShape], names: Sequence[str]) -> tuple[Site, ...]:
    sites, start = [], 0
    for name in names:
        sites.append(Site(name, shapes[name], start))
        start += sites[-1].size
    return tuple(sites)


def _draw(name: str, distribution: Any, z: Array) -> Array:
    numbers = jnp.atleast_1d(z)
    try:
        return jnp.broadcast_to(latent_map(distribution)(numbers), numbers.shape).reshape(z.shape)
    except ScorebedError as error:
        raise _refused(
            name,
            f"{type(distribution).__name__}, which has no quantile function",
            f"one of {WORKING}",
            "write it as a transformation of one of these.",
        ) from error


def _log_prob(
    model: Model,
    xi: Array,
    values: dict[str, Array],
    sites: Sequence[Site],
    made: Callable[[Any], Any] = lambda distribution: distribution,
) -> Scalar:
    """Of the sites' values, under the distributions that are `made` of the model's."""
    terms: list[Scalar] = []
    names = {site.name for site in sites}

    def give(name: str, distribution: Any) -> Array:
        value = values[name] if name in values else jnp.zeros(distribution.shape())
        if name in names:
            terms.append(made(distribution).log_prob(value).sum())
        return value

    _Fill(model, give)(xi)
    return sum(terms[1:], start=terms[0])


def _refused(site: str, got: str, expected: str, fix: str) -> ScorebedError:
    return InvalidValueError(f"the site '{site}' of the model", got=got, expected=expected, fix=fix)
