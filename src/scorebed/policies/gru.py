"""The stochastic recurrent policy of Iqbal et al. (2024), the paper's policy for dynamical systems.

h_t = GRU(h_{t−1}, encoder(y_t, ξ_t)),   h_0 = 0
ξ_{t+1} = constrain(u),   u ~ N(emitter(h_t), diag σ²)
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jax.scipy.stats import norm
from jaxtyping import Array, Float, PRNGKeyArray, Scalar

from scorebed.nets import GRU, MLP
from scorebed.policies.base import StochasticPolicy
from scorebed.tasks.base import Task
from scorebed.tasks.spaces import Space


class GRUPolicy(StochasticPolicy):
    """Gaussian in unconstrained u; memory is the state of every recurrent layer, and designs follow
    from the top one.

    σ is learned, one per design coordinate and equal at all steps, and starts at 1.
    """

    encoder: MLP
    cells: GRU
    emitter: MLP
    log_std: Float[Array, " f"]
    space: Space = eqx.field(static=True)

    def __init__(
        self,
        task: Task,
        *,
        encoder_hidden: tuple[int, ...] = (256, 256),
        encoding: int = 64,
        state: int = 64,
        layers: int = 2,
        emitter_hidden: tuple[int, ...] = (256, 256),
        key: PRNGKeyArray,
    ):
        key_encoder, key_cells, key_emitter = jr.split(key, 3)
        dx = task.designs.free_dim
        self.encoder = MLP(
            (task.outcome_dim + dx, *encoder_hidden, encoding), jax.nn.relu, key=key_encoder
        )
        self.cells = GRU(encoding, state, layers, key=key_cells)
        self.emitter = MLP((state, *emitter_hidden, dx), jax.nn.relu, key=key_emitter)
        self.log_std = jnp.zeros(dx)
        self.space = task.designs

    @property
    def noise_leaves(self) -> tuple[str, ...]:
        return ("log_std",)

    def sample_noise(self, horizon: int, *, key: PRNGKeyArray) -> Float[Array, "T f"]:
        return jr.normal(key, (horizon, self.space.free_dim))

    def init(self) -> Float[Array, "layers state"]:
        return self.cells.init()

    def design(
        self, memory: Float[Array, "layers state"], noise: Float[Array, " f"]
    ) -> Float[Array, " dx"]:
        return self.space.constrain(self.preferences(memory, noise))

    def preferences(
        self, memory: Float[Array, "layers state"], noise: Float[Array, " f"]
    ) -> Float[Array, " f"]:
        return self.emitter(memory[-1]) + jnp.exp(self.log_std) * noise

    def update(
        self, memory: Float[Array, "layers state"], xi: Float[Array, " dx"], y: Float[Array, " dy"]
    ) -> Float[Array, "layers state"]:
        return self.cells(memory, self.encoder(jnp.concatenate([y, self.space.normalise(xi)])))

    def log_prob(self, xi: Float[Array, " dx"], memory: Float[Array, "layers state"]) -> Scalar:
        """log π(ξ | h) = log N(u; μ, σ²) − log |dξ/du| at u = unconstrain(ξ).

        On a box u is recovered from ξ: in single precision it is off by about 3·10⁻⁴ at |u| = 5 and
        by 0.02 at 7."""
        u = self.space.unconstrain(xi)
        density = norm.logpdf(u, self.emitter(memory[-1]), jnp.exp(self.log_std))
        return (density - self.space.log_jacobian(u)).sum()
