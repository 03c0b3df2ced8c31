"""Deep adaptive design (Foster et al., 2021): a sum-pooling network, the paper's policy for
location finding.

ξ_t = constrain(W Σ_{s<t} encoder(y_s, ξ_s) + b)
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from scorebed.nets import MLP, Linear
from scorebed.policies.base import Policy
from scorebed.tasks.base import Task
from scorebed.tasks.spaces import Space

EMPTY_HISTORY = 0.01  # every coordinate of its encoding


class DAD(Policy):
    """Deterministic, and blind to the order of the history. Memory is one vector: the sum of the
    encodings.

    Right for exchangeable steps; elsewhere it throws away the information in their order. The
    emitter's weights start small, so that untrained policies stay near their first design.

    They start as in the authors' program, where the bias is zero and the encoding of the empty
    history 0.01 · 1: W (0.01 + Σ) is W Σ + b with b = 0.01 W 1, so that the first designs lie near
    the origin of u but, symmetric as it may be, not at it."""

    encoder: MLP
    emitter: Linear
    space: Space = eqx.field(static=True)

    def __init__(
        self,
        task: Task,
        *,
        hidden: tuple[int, ...] = (256,),
        encoding: int = 16,
        emitter_bound: float = 0.05,
        key: PRNGKeyArray,
    ):
        key_encoder, key_emitter = jr.split(key)
        dx = task.designs.free_dim
        self.encoder = MLP((task.outcome_dim + dx, *hidden, encoding), jax.nn.relu, key=key_encoder)
        emitter = Linear(encoding, dx, weight_bound=emitter_bound, key=key_emitter)
        bias = EMPTY_HISTORY * emitter.weight.sum(0)
        self.emitter = eqx.tree_at(lambda layer: layer.bias, emitter, bias)
        self.space = task.designs

    @property
    def beyond_training(self) -> str:
        return (
            "The policy adds up what it has seen, and the sum becomes larger than any in training: "
            "designs there are extrapolation. Refining trains it for this end."
        )

    def sample_noise(self, horizon: int, *, key: PRNGKeyArray) -> Float[Array, "T 0"]:
        del key
        return jnp.zeros((horizon, 0))

    def init(self) -> Float[Array, " encoding"]:
        return jnp.zeros(self.emitter.weight.shape[0], self.emitter.weight.dtype)

    def design(
        self, memory: Float[Array, " encoding"], noise: Float[Array, " 0"]
    ) -> Float[Array, " dx"]:
        return self.space.constrain(self.preferences(memory, noise))

    def preferences(
        self, memory: Float[Array, " encoding"], noise: Float[Array, " 0"]
    ) -> Float[Array, " f"]:
        del noise
        return self.emitter(memory)

    def update(
        self, memory: Float[Array, " encoding"], xi: Float[Array, " dx"], y: Float[Array, " dy"]
    ) -> Float[Array, " encoding"]:
        return memory + self.encoder(jnp.concatenate([y, self.space.normalise(xi)]))
