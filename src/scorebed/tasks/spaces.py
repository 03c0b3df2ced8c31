"""Design spaces: named coordinates with units, and the map from unconstrained u to designs ξ.

Policies and design samplers work in unconstrained coordinates; `constrain` is the paper's output
activation: ξ = scale · u for an open space and ξ = centre + half-width · tanh(u) for a box."""

import abc
import dataclasses
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

    def __str__(self) -> str:
        return f"{self.name} [{self.unit}]" if self.unit else self.name


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
