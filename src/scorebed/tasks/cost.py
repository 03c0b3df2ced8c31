"""The cost of designs, in units of information: policies are trained to maximise
EIG − price · Σ_t cost(ξ_t).

    cost = priced("drug given [mg]", lambda xi: xi[0], nats=0.02)  # a nat is worth 50 mg

The cost is not part of the model: scores and bounds do not depend on it, so one score serves any
price."""

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Scalar

from scorebed.errors import require
from scorebed.tasks.spaces import Quantity


@dataclasses.dataclass(frozen=True)
class DesignCost:
    """cost(ξ) of one design, in the unit of `quantity`, and its `price` in nats per unit."""

    quantity: Quantity
    function: Any  # ξ ↦ a number
    price: float

    def __post_init__(self) -> None:
        require(
            callable(self.function),
            "the cost of a design",
            got=f"a {type(self.function).__name__}",
            expected="a function of xi",
            fix="write lambda xi: xi[0], or name a function.",
        )
        require(
            0 < self.price < math.inf,
            "the price of a unit of cost",
            got=self.price,
            expected="a positive number of nats",
            fix="give the nats that a unit is worth, as in nats=0.1.",
        )

    def of(self, xi: Float[Array, " dx"]) -> Scalar:
        """cost(ξ), before the price."""
        value = jnp.asarray(self.function(xi), xi.dtype)
        require(
            value.shape == (),
            f"the cost '{self.quantity.name}' of a design",
            got=f"an array of shape {value.shape}",
            expected="a single number",
            fix="end the function with .sum(), or take one coordinate.",
        )
        return value

    def total(self, xis: Float[Array, "T dx"]) -> Scalar:
        """Σ_t cost(ξ_t), before the price."""
        return jax.vmap(self.of)(xis).sum()
