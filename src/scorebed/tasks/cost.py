"""What a design costs, set against nats: a policy is then trained to raise EIG − price · Σ_t
cost(ξ_t).

    cost = priced("drug given [mg]", lambda xi: xi[0], nats=0.02)  # a nat is worth 50 mg

A cost belongs to the experimenter, not to the model: scores and bounds are those of the model
alone, so one score serves any price."""

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
    """cost(ξ) of one design in its own unit, and `price`: how many nats a unit is worth."""

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
            fix="say how many nats a unit is worth, as in nats=0.1.",
        )

    def of(self, xi: Float[Array, " dx"]) -> Scalar:
        """In the cost's own unit."""
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
        """Σ_t cost(ξ_t), in the cost's own unit."""
        return jax.vmap(self.of)(xis).sum()
