"""Static designs: ξ_{1:T} themselves are the parameters, chosen before the experiment and blind to
its outcomes.

Here too what tables of designs, one row per step, have in common with `Plan`: their number of rows
is the largest number of steps, and they can be given more."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Int, PRNGKeyArray

from scorebed.errors import require
from scorebed.policies.base import Policy
from scorebed.tasks.spaces import Space

DESIGNED_TOGETHER = (
    "The designs were chosen together with later ones, which are now left out. Refining chooses "
    "the remaining ones for this end."
)


class Static(Policy):
    """ξ_t = constrain(u_t) with learnable u; memory is the number of steps taken.

    Made for at most T steps: drawing noise for more is an error, and a `design` past the last one
    repeats it."""

    us: Float[Array, "T f"]
    space: Space = eqx.field(static=True)

    def __check_init__(self) -> None:
        require(
            self.us.shape[0] >= 1 and self.us.shape[-1] == self.space.free_dim,
            "static designs",
            got=f"an array of shape {self.us.shape}",
            expected=f"at least one row of {self.space.free_dim} numbers",
            fix="give one row per step and one column per design coordinate.",
        )

    @classmethod
    def random(
        cls, horizon: int, space: Space, scale: float = 1.0, *, key: PRNGKeyArray
    ) -> "Static":
        """u ~ N(0, scale²)."""
        return cls(scale * jr.normal(key, (horizon, space.free_dim)), space)

    @classmethod
    def from_designs(cls, xis: Float[Array, "T dx"], space: Space) -> "Static":
        """The given designs. On the edge of a box they are stuck: the gradient with respect to u is
        almost zero there.
        """
        return cls(space.unconstrain(xis), space)

    @property
    def adaptive(self) -> bool:
        return False

    @property
    def max_steps(self) -> int:
        return self.us.shape[0]

    def extended(self, horizon: int, *, key: PRNGKeyArray) -> "Static":
        return Static(with_rows(self.us, horizon, key=key), self.space)

    @property
    def beyond_training(self) -> str:
        return no_further_designs(self.max_steps)

    @property
    def short_of_training(self) -> str:
        return DESIGNED_TOGETHER

    def sample_noise(self, horizon: int, *, key: PRNGKeyArray) -> Float[Array, "T 0"]:
        del key
        require(
            horizon <= self.us.shape[0],
            "the horizon of a static policy",
            got=f"{horizon} steps",
            expected=f"at most {self.us.shape[0]}",
            fix="make a static policy with a design for every step.",
        )
        return jnp.zeros((horizon, 0))

    def init(self) -> Int[Array, ""]:
        return jnp.zeros((), jnp.int32)

    def design(self, memory: Int[Array, ""], noise: Float[Array, " 0"]) -> Float[Array, " dx"]:
        return self.space.constrain(self.preferences(memory, noise))

    def preferences(self, memory: Int[Array, ""], noise: Float[Array, " 0"]) -> Float[Array, " f"]:
        del noise
        # The index is clamped, not checked: a check here is a host callback, which an exported
        # program cannot hold.
        return jax.lax.dynamic_index_in_dim(self.us, memory, keepdims=False)

    def update(
        self, memory: Int[Array, ""], xi: Float[Array, " dx"], y: Float[Array, " dy"]
    ) -> Int[Array, ""]:
        del xi, y
        return memory + 1


def with_rows(
    table: Float[Array, "T dx"], rows: int, *, key: PRNGKeyArray
) -> Float[Array, "rows dx"]:
    """A table cut or filled up to `rows` rows: those it lacks are drawn from N(0, s²), s the
    standard deviation of all of its entries.
    """
    spread = jnp.maximum(table.std(), jnp.finfo(table.dtype).eps)
    missing = max(rows - len(table), 0)
    further = spread * jr.normal(key, (missing, table.shape[1]), table.dtype)
    return jnp.concatenate([table[:rows], further])


def no_further_designs(rows: int) -> str:
    """What a table of designs has to say about longer experiments."""
    return f"The policy has no designs beyond its {rows}: refine before then."
