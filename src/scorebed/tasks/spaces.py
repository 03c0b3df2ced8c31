"""Design spaces: named coordinates with units, and the map from unconstrained u to designs ξ.

Policies and design samplers work in unconstrained coordinates; `constrain` is the paper's output
activation: ξ = scale · u for an open space and ξ = centre + half-width · tanh(u) for a box."""

import abc
import dataclasses
import itertools
import math
from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from scorebed.errors import require


@dataclasses.dataclass(frozen=True)
class Quantity:
    """A named number with its unit; the unit is empty for pure numbers."""

    name: str
    unit: str = ""
    # The only values that it takes, rising; empty if any number will do. And their names, if they
    # have some.
    values: ClassVar[tuple[float, ...]] = ()
    labels: ClassVar[tuple[str, ...]] = ()

    def __str__(self) -> str:
        return f"{self.name} [{self.unit}]" if self.unit else self.name

    def label(self, value: float) -> str | None:
        """The name of a value; None if values have none, or this is not one of them."""
        if not self.labels or value not in self.values:
            return None
        return self.labels[self.values.index(value)]

    def show(self, value: float, digits: int = 6) -> str:
        """A value for people: its name if it has one, else its number."""
        return self.label(value) or f"{value:.{digits}g}"


@dataclasses.dataclass(frozen=True)
class Listed(Quantity):
    """A quantity that takes finitely many values: numbers, or names for the numbers 0, 1, … Made by
    `categories`, `counts` and `choices`.
    """

    values: tuple[float, ...] = ()  # type: ignore[misc]
    labels: tuple[str, ...] = ()  # type: ignore[misc]

    def __post_init__(self) -> None:
        require(
            len(self.values) >= 2
            and all(a < b for a, b in itertools.pairwise(self.values))
            and all(map(math.isfinite, self.values)),
            f"the values of '{self.name}'",
            got=self.values,
            expected="at least two finite numbers in rising order",
            fix="list each of them once.",
        )
        named = len(set(self.labels)) == len(self.labels) in (0, len(self.values))
        require(
            named and all(label.strip() == label != "" for label in self.labels),
            f"the names of the values of '{self.name}'",
            got=self.labels,
            expected=f"{len(self.values)} different names",
            fix="give one name per value.",
        )


@dataclasses.dataclass(frozen=True)
class Space(abc.ABC):
    """The designs of one experiment step."""

    quantities: tuple[Quantity, ...]
    # Whether every coordinate has a lower and an upper limit.
    bounded: ClassVar[bool] = False

    @property
    def dim(self) -> int:
        """Number of design coordinates, dx."""
        return len(self.quantities)

    @property
    def free_dim(self) -> int:
        """Number of unconstrained numbers u, and of normalised ones; dx, but for names."""
        return self.dim

    @property
    def listed(self) -> bool:
        """Whether some designs come from a list."""
        return any(quantity.values for quantity in self.quantities)

    @property
    def named(self) -> bool:
        """Whether some designs are names, among which no gradient leads."""
        return any(quantity.labels for quantity in self.quantities)

    def choose(self, u: Float[Array, "*b f"], noise: Float[Array, "*b f"]) -> Float[Array, "*b dx"]:
        """ξ(u), with noise on the preferences among names."""
        del noise
        return self.constrain(u)

    def log_choice(self, u: Float[Array, "*b f"], xi: Float[Array, "*b dx"]) -> Float[Array, "*b"]:
        """log of the probability of the names in ξ, drawn with preferences u; 0 without names."""
        del xi
        return jnp.zeros(u.shape[:-1], u.dtype)

    def nearest(self, xi: Float[Array, "*b dx"]) -> Float[Array, "*b dx"]:
        """The nearest designs of the lists, where there are any."""
        return xi

    def evenly(self, places: Float[Array, "*b dx"]) -> Float[Array, "*b dx"]:
        """Designs from places between 0 and 1, of a bounded space."""
        low, high = (jnp.asarray(end, places.dtype) for end in self.limits)
        return low + (high - low) * places

    @property
    def limits(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Lower and upper limits, coordinate by coordinate; infinite in an unbounded space."""
        return (-math.inf,) * self.dim, (math.inf,) * self.dim

    @property
    def typical_size(self) -> tuple[float, ...]:
        """The size of a usual design, coordinate by coordinate."""
        return (1.0,) * self.dim

    @property
    def loss_unit(self) -> tuple[float, ...]:
        """The unit of a design in the paper's loss of scores, coordinate by coordinate: the scale
        of an open space, and 1 in a box.
        """
        return (1.0,) * self.dim

    @abc.abstractmethod
    def constrain(self, u: Float[Array, "*b dx"]) -> Float[Array, "*b dx"]:
        """ξ(u), coordinate by coordinate."""

    @abc.abstractmethod
    def unconstrain(self, xi: Float[Array, "*b dx"]) -> Float[Array, "*b dx"]:
        """u(ξ), the inverse of `constrain`. At the edge of a box it is the largest u that the
        precision can represent.
        """

    @abc.abstractmethod
    def log_jacobian(self, u: Float[Array, "*b dx"]) -> Float[Array, "*b dx"]:
        """log dξ/du, coordinate by coordinate."""

    @abc.abstractmethod
    def normalise(self, xi: Float[Array, "*b dx"]) -> Float[Array, "*b dx"]:
        """ξ divided by its range or scale, so that it is of order one: the input of networks."""


@dataclasses.dataclass(frozen=True)
class Real(Space):
    """Unbounded designs ξ = scale · u; `scale` is the typical size of a design."""

    scale: float = 1.0

    def __post_init__(self) -> None:
        require(
            0 < self.scale < float("inf"),
            "the scale of a design space",
            got=self.scale,
            expected="a positive number",
            fix="give the typical size of a design.",
        )

    @property
    def typical_size(self) -> tuple[float, ...]:
        return (self.scale,) * self.dim

    @property
    def loss_unit(self) -> tuple[float, ...]:
        return self.typical_size

    def constrain(self, u: Float[Array, "*b dx"]) -> Float[Array, "*b dx"]:
        return self.scale * u

    def unconstrain(self, xi: Float[Array, "*b dx"]) -> Float[Array, "*b dx"]:
        return xi / self.scale

    def log_jacobian(self, u: Float[Array, "*b dx"]) -> Float[Array, "*b dx"]:
        return jnp.full_like(u, jnp.log(self.scale))

    def normalise(self, xi: Float[Array, "*b dx"]) -> Float[Array, "*b dx"]:
        return xi / self.scale


@dataclasses.dataclass(frozen=True)
class Box(Space):
    """Bounded designs low < ξ < high, reached by ξ = centre + half-width · tanh(u)."""

    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    bounded: ClassVar[bool] = True

    def __post_init__(self) -> None:
        fits = len(self.low) == len(self.high) == len(self.quantities)
        require(
            fits and all(a < b for a, b in zip(self.low, self.high, strict=True)),
            "the limits of a box",
            got=f"low={self.low}, high={self.high}",
            expected=f"{len(self.quantities)} pairs with low < high",
            fix="give one finite lower and upper limit per design coordinate.",
        )

    @property
    def limits(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        return self.low, self.high

    @property
    def typical_size(self) -> tuple[float, ...]:
        return tuple((b - a) / 2 for a, b in zip(self.low, self.high, strict=True))

    @property
    def _centre(self) -> Float[Array, " dx"]:
        return jnp.asarray([(a + b) / 2 for a, b in zip(self.low, self.high, strict=True)])

    @property
    def half_width(self) -> Float[Array, " dx"]:
        """Half of high − low."""
        return jnp.asarray([(b - a) / 2 for a, b in zip(self.low, self.high, strict=True)])

    def constrain(self, u: Float[Array, "*b dx"]) -> Float[Array, "*b dx"]:
        return self._centre + self.half_width * jnp.tanh(u)

    def unconstrain(self, xi: Float[Array, "*b dx"]) -> Float[Array, "*b dx"]:
        edge = 1 - jnp.finfo(xi.dtype).epsneg
        return jnp.arctanh(jnp.clip(self.normalise(xi), -edge, edge))

    def log_jacobian(self, u: Float[Array, "*b dx"]) -> Float[Array, "*b dx"]:
        # log(1 − tanh² u) = 2 (log 2 − u − softplus(−2u)), which stays precise where tanh u rounds
        # to ±1.
        return jnp.log(self.half_width) + 2 * (
            jnp.log(2.0).astype(u.dtype) - u - jax.nn.softplus(-2 * u)
        )

    def normalise(self, xi: Float[Array, "*b dx"]) -> Float[Array, "*b dx"]:
        return (xi - self._centre) / self.half_width
