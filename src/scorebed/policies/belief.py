"""A network that sees the posterior: designs from the likelihoods of fixed points of the prior.

    L_m = Σ_{s<t} log p(y_s | ξ_s, f(z_m)),   w^β = softmax(β L)
    ξ_t = constrain(network(mean and spread of z under some w^β, Σ_{s<t} encoder(y_s, ξ_s), t))

The likelihoods of some points z_m spread over the prior say where the posterior is, whatever the
outcomes are: numbers, answers or counts. A network that begins from there has to learn what to
measure next, not what was learned so far. Under β < 1 more points count: where few of them lie in
the posterior, its place is still seen. The encodings of the steps tell what the points are too far
apart for.

Deterministic. M·T NLE for the designs of an experiment. Needs a density, and states that follow
from the data. When wrong: with many parameters no point is near the posterior, and the policy is a
DAD network with useless inputs."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray, Scalar

from scorebed.errors import require
from scorebed.inference.modes import starts
from scorebed.nets import MLP
from scorebed.policies.base import Policy
from scorebed.tasks.base import State, Task, frozen, require_data_states

POINTS = 128
EXPONENTS = (0.1, 0.3, 1.0)
LEAST = 1e-2  # of a variance: points lie farther apart, and the slope of its logarithm is bounded
SMALL = 0.05  # of the weights of a fresh last layer: first designs lie near the middle


class BeliefMemory(NamedTuple):
    """The likelihoods of the points so far, the sum of the encodings, the state of the task, and
    the share of the steps that were taken.
    """

    log_likelihoods: Float[Array, " M"]
    code: Float[Array, " e"]
    state: State
    done: Scalar


class Belief(Policy):
    """Deterministic; what the data say enters by likelihoods."""

    task: Task
    points: Float[Array, "M k"]
    encoder: MLP
    emitter: MLP

    def __init__(
        self,
        task: Task,
        *,
        points: int = POINTS,
        width: int = 128,
        encoding: int = 32,
        key: PRNGKeyArray,
    ):
        require(
            task.has_density,
            "a task for the policy belief",
            got=f"{type(task).__name__}, a model without a density",
            expected="one with `log_prob`",
            fix="use the policy dad or gru.",
        )
        self.task = require_data_states(
            task, "the policy belief", fix="use the policy gru, which needs no state."
        )
        key_encoder, key_emitter = jr.split(key)
        k, dx = task.prior.dim, task.designs.free_dim
        self.points = jnp.asarray(starts(points, k), jnp.result_type(float))
        self.encoder = MLP((task.outcome_dim + dx, width, encoding), jax.nn.silu, key=key_encoder)
        self.emitter = MLP(
            (2 * k * len(EXPONENTS) + encoding + 1, width, width, dx),
            jax.nn.silu,
            last_bound=SMALL,
            key=key_emitter,
        )

    @property
    def design_nle(self) -> int:
        return len(self.points) * self.task.horizon

    @property
    def not_exported(self) -> str:
        return "designs that follow from the task's likelihood"

    def sample_noise(self, horizon: int, *, key: PRNGKeyArray) -> Float[Array, "T 0"]:
        del key
        return jnp.zeros((horizon, 0))

    def init(self) -> BeliefMemory:
        size = self.encoder.layers[-1].bias.shape[0]
        dtype = self.points.dtype
        state = self.task.initial(self._thetas()[0])
        likelihoods, code = jnp.zeros(len(self.points), dtype), jnp.zeros(size, dtype)
        return BeliefMemory(likelihoods, code, state, jnp.zeros((), dtype))

    def design(self, memory: BeliefMemory, noise: Float[Array, " 0"]) -> Float[Array, " dx"]:
        return self.task.designs.constrain(self.preferences(memory, noise))

    def preferences(self, memory: BeliefMemory, noise: Float[Array, " 0"]) -> Float[Array, " f"]:
        del noise
        points = jax.lax.stop_gradient(self.points)
        features = []
        for exponent in EXPONENTS:
            weights = jax.nn.softmax(exponent * memory.log_likelihoods)
            mean = weights @ points
            features += [mean, 0.5 * jnp.log(weights @ (points - mean) ** 2 + LEAST)]
        inputs = jnp.concatenate([*features, memory.code, memory.done[None]])
        return self.emitter(inputs)

    def update(
        self, memory: BeliefMemory, xi: Float[Array, " dx"], y: Float[Array, " dy"]
    ) -> BeliefMemory:
        task, thetas = frozen(self.task), self._thetas()
        log_prob = jax.vmap(task.log_prob, in_axes=(None, 1, None, None))
        code = self.encoder(jnp.concatenate([y, task.designs.normalise(xi)]))
        T = task.horizon
        return BeliefMemory(
            memory.log_likelihoods + log_prob(y, thetas.T, memory.state, xi),
            memory.code + code / T**0.5,
            task.advance(thetas[0], memory.state, xi, y),
            memory.done + 1 / T,
        )

    def _thetas(self) -> Float[Array, "M k"]:
        points = jax.lax.stop_gradient(self.points)
        return jax.vmap(frozen(self.task).prior.from_latent)(points)
