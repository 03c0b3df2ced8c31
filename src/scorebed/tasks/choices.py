"""Designs of which some come from a list: numbers, such as the doses that there are, or names, such
as the antibody to use.

    designs = ranges({"time [h]": (0.0, 24.0), "dose [mg]": [5, 10, 20], "route": ["oral", "vein"]})

Every design is one of the listed; how a policy chooses it depends on what the list holds.

- **Numbers** have one unconstrained u, as in a box, that moves along the list. The design is the
  nearest listed number, with the gradient of the number between: the model is never asked about
  others, but has to be smooth in it.
- **Names** are 0, 1, … to the model, and have one u each, their preference; the largest wins, which
  has no gradient. Training draws them with the probabilities softmax(u) and learns those
  (`policies/exploring.py`)."""

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from scorebed.tasks.spaces import Box, Quantity, Space

PREFERRED = 4.0  # u of a name that is given, the others having 0


@dataclasses.dataclass(frozen=True)
class Choices(Space):
    """Bounded designs, of which those with `values` take these alone."""

    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    bounded: ClassVar[bool] = True

    def __post_init__(self) -> None:
        Box(self.quantities, self.low, self.high)  # refuses what does not fit

    @property
    def limits(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        return self.low, self.high

    @property
    def typical_size(self) -> tuple[float, ...]:
        return tuple((b - a) / 2 for a, b in zip(self.low, self.high, strict=True))

    @property
    def free_dim(self) -> int:
        return sum(map(_size, self.quantities))

    def constrain(self, u: Float[Array, "*b f"]) -> Float[Array, "*b dx"]:
        return self.choose(u, jnp.zeros_like(u))

    def choose(self, u: Float[Array, "*b f"], noise: Float[Array, "*b f"]) -> Float[Array, "*b dx"]:
        """ξ(u), with noise on the preferences of names: Gumbel noise draws from softmax(u)."""
        found = []
        for i, (part, quantity) in enumerate(zip(self._parts(u), self.quantities, strict=True)):
            if quantity.labels:
                index = (part + self._parts(noise)[i]).argmax(-1)
                found.append(jnp.asarray(quantity.values, u.dtype)[index])
            elif quantity.values:
                found.append(_along_list(part[..., 0], quantity))
            else:
                middle, half = (self.low[i] + self.high[i]) / 2, (self.high[i] - self.low[i]) / 2
                found.append(middle + half * jnp.tanh(part[..., 0]))
        return jnp.stack(found, axis=-1)

    def log_choice(self, u: Float[Array, "*b f"], xi: Float[Array, "*b dx"]) -> Float[Array, "*b"]:
        total = jnp.zeros(u.shape[:-1], u.dtype)
        for i, (part, quantity) in enumerate(zip(self._parts(u), self.quantities, strict=True)):
            if quantity.labels:
                each = jax.nn.log_softmax(part)
                index = _index(quantity, xi[..., i])[..., None]
                total = total + jnp.take_along_axis(each, index, axis=-1)[..., 0]
        return total

    def unconstrain(self, xi: Float[Array, "*b dx"]) -> Float[Array, "*b f"]:
        edge = 1 - jnp.finfo(xi.dtype).epsneg
        found = []
        for i, quantity in enumerate(self.quantities):
            x, count = xi[..., i], len(quantity.values)
            if quantity.labels:
                found.append(PREFERRED * jax.nn.one_hot(_index(quantity, x), count, dtype=xi.dtype))
                continue
            if quantity.values:
                place = (_index(quantity, x).astype(xi.dtype) - (count - 1) / 2) / (count / 2)
            else:
                middle, half = (self.low[i] + self.high[i]) / 2, (self.high[i] - self.low[i]) / 2
                place = (x - middle) / half
            found.append(jnp.arctanh(jnp.clip(place, -edge, edge))[..., None])
        return jnp.concatenate(found, axis=-1)

    def log_jacobian(self, u: Float[Array, "*b f"]) -> Float[Array, "*b f"]:
        """Zero for what is listed, which has no density."""
        found = []
        for i, (part, quantity) in enumerate(zip(self._parts(u), self.quantities, strict=True)):
            if quantity.values:
                found.append(jnp.zeros_like(part))
            else:
                box = Box((quantity,), (self.low[i],), (self.high[i],))
                found.append(box.log_jacobian(part))
        return jnp.concatenate(found, axis=-1)

    def normalise(self, xi: Float[Array, "*b dx"]) -> Float[Array, "*b f"]:
        """Names are one-hot."""
        found = []
        for i, quantity in enumerate(self.quantities):
            if quantity.labels:
                index = _index(quantity, xi[..., i])
                found.append(jax.nn.one_hot(index, len(quantity.values), dtype=xi.dtype))
            else:
                middle, half = (self.low[i] + self.high[i]) / 2, (self.high[i] - self.low[i]) / 2
                found.append(((xi[..., i] - middle) / half)[..., None])
        return jnp.concatenate(found, axis=-1)

    def evenly(self, places: Float[Array, "*b dx"]) -> Float[Array, "*b dx"]:
        found = []
        for i, quantity in enumerate(self.quantities):
            x, count = places[..., i], len(quantity.values)
            if count:
                index = jnp.clip((count * x).astype(int), 0, count - 1)
                found.append(jnp.asarray(quantity.values, places.dtype)[index])
            else:
                found.append(self.low[i] + (self.high[i] - self.low[i]) * x)
        return jnp.stack(found, axis=-1)

    def nearest(self, xi: Float[Array, "*b dx"]) -> Float[Array, "*b dx"]:
        found = [
            jnp.asarray(q.values, xi.dtype)[_index(q, xi[..., i])] if q.values else xi[..., i]
            for i, q in enumerate(self.quantities)
        ]
        return jnp.stack(found, axis=-1)

    def _parts(self, u: Float[Array, "*b f"]) -> list[Float[Array, "*b n"]]:
        """The unconstrained numbers of each design."""
        found, start = [], 0
        for quantity in self.quantities:
            found.append(u[..., start : start + _size(quantity)])
            start += _size(quantity)
        return found


def _size(quantity: Quantity) -> int:
    """Unconstrained numbers of a design."""
    return len(quantity.labels) or 1


def _index(quantity: Quantity, x: Float[Array, "*b"]) -> Int[Array, "*b"]:
    """The place of the nearest listed value."""
    values = jnp.asarray(quantity.values, x.dtype)
    return jnp.abs(x[..., None] - values).argmin(-1)


def _along_list(u: Float[Array, "*b"], quantity: Quantity) -> Float[Array, "*b"]:
    """The listed number nearest to a place that moves along the list, with the gradient of the
    number between. Places reach half a step past both ends, so that all have the same share.
    """
    values = jnp.asarray(quantity.values, u.dtype)
    count = len(quantity.values)
    place = (count - 1) / 2 + count / 2 * jnp.tanh(u)
    index = jnp.clip(jnp.round(place), 0, count - 1).astype(int)
    lower = jnp.clip(jnp.floor(place), 0, count - 2).astype(int)
    slope = jax.lax.stop_gradient(values[lower + 1] - values[lower])
    return values[index] + slope * (place - jax.lax.stop_gradient(place))
