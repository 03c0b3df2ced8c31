"""A plan with feedback: designs chosen before the experiment, and what a recurrent network adds
once outcomes are in.

    ξ_t = constrain( u_t + emitter(h_{t−1}) ),   h_t = GRU(h_{t−1}, encoder(y_t, ξ_t)),   h_0 = 0

In the dynamical systems nearly all of the information comes from a good sequence of inputs, which a
recurrent policy has to produce from its hidden state. Here it is a table, as quick to learn as
static designs, and the network learns what can be gained beyond it."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Int, PRNGKeyArray

from scorebed.errors import require
from scorebed.nets import GRU, MLP
from scorebed.policies.base import Policy
from scorebed.policies.static import DESIGNED_TOGETHER, no_further_designs, with_rows
from scorebed.tasks.base import Task
from scorebed.tasks.spaces import Space

# The table holds u / UNIT. Designs are of order one and need steps of 0.03, a network 0.001: with
# this scale one learning rate serves both.
UNIT = 30.0

PlanMemory = tuple[Int[Array, ""], Float[Array, "layers state"]]


class Plan(Policy):
    """Deterministic, and made for at most T steps. Memory is the number of steps taken and the
    state of the network.
    """

    table: Float[Array, "T f"]
    encoder: MLP
    cells: GRU
    emitter: MLP
    space: Space = eqx.field(static=True)

    def __init__(self, task: Task, *, width: int = 64, spread: float = 0.5, key: PRNGKeyArray):
        key_table, key_encoder, key_cells, key_emitter = jr.split(key, 4)
        dx = task.designs.free_dim
        self.table = spread / UNIT * jr.normal(key_table, (task.horizon, dx))
        self.encoder = MLP((task.outcome_dim + dx, width, width), jax.nn.relu, key=key_encoder)
        self.cells = GRU(width, width, 1, key=key_cells)
        self.emitter = MLP((width, width, dx), jax.nn.relu, key=key_emitter)
        self.space = task.designs

    @property
    def max_steps(self) -> int:
        return self.table.shape[0]

    def extended(self, horizon: int, *, key: PRNGKeyArray) -> "Plan":
        longer: Plan = eqx.tree_at(
            lambda plan: plan.table, self, with_rows(self.table, horizon, key=key)
        )
        return longer

    @property
    def beyond_training(self) -> str:
        return no_further_designs(self.max_steps)

    @property
    def short_of_training(self) -> str:
        return DESIGNED_TOGETHER

    def sample_noise(self, horizon: int, *, key: PRNGKeyArray) -> Float[Array, "T 0"]:
        del key
        require(
            horizon <= len(self.table),
            "the horizon of a plan",
            got=f"{horizon} steps",
            expected=f"at most {len(self.table)}",
            fix="train a plan for that many steps.",
        )
        return jnp.zeros((horizon, 0))

    def init(self) -> PlanMemory:
        return jnp.zeros((), jnp.int32), self.cells.init()

    def design(self, memory: PlanMemory, noise: Float[Array, " 0"]) -> Float[Array, " dx"]:
        return self.space.constrain(self.preferences(memory, noise))

    def preferences(self, memory: PlanMemory, noise: Float[Array, " 0"]) -> Float[Array, " f"]:
        del noise
        step, state = memory
        planned = UNIT * jax.lax.dynamic_index_in_dim(self.table, step, keepdims=False)
        return planned + self.emitter(state[-1])

    def update(
        self, memory: PlanMemory, xi: Float[Array, " dx"], y: Float[Array, " dy"]
    ) -> PlanMemory:
        step, state = memory
        return step + 1, self.cells(
            state, self.encoder(jnp.concatenate([y, self.space.normalise(xi)]))
        )
