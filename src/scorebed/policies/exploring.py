"""A policy in training whose choices among names are drawn: from softmax(u) in place of the largest
u, so that their probabilities can be learned. In use it takes the largest."""

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray, Scalar

from scorebed.policies.base import Memory, Policy
from scorebed.tasks.spaces import Space


class Exploring(Policy):
    """The policy inside, with drawn names. Its noise is that of the policy inside, and Gumbel
    numbers.
    """

    inside: Policy
    space: Space = eqx.field(static=True)

    @property
    def adaptive(self) -> bool:
        return self.inside.adaptive

    @property
    def max_steps(self) -> int | None:
        return self.inside.max_steps

    def sample_noise(self, horizon: int, *, key: PRNGKeyArray) -> Float[Array, "T n"]:
        key_inside, key_names = jr.split(key)
        own = self.inside.sample_noise(horizon, key=key_inside)
        return jnp.concatenate([own, jr.gumbel(key_names, (horizon, self.space.free_dim))], axis=1)

    def init(self) -> Memory:
        return self.inside.init()

    def design(self, memory: Memory, noise: Float[Array, " n"]) -> Float[Array, " dx"]:
        own, gumbel = self._split(noise)
        return self.space.choose(self.inside.preferences(memory, own), gumbel)

    def update(self, memory: Memory, xi: Float[Array, " dx"], y: Float[Array, " dy"]) -> Memory:
        return self.inside.update(memory, xi, y)

    def log_choices(
        self, ys: Float[Array, "T dy"], xis: Float[Array, "T dx"], noise: Float[Array, "T n"]
    ) -> Float[Array, " T"]:
        """log of the probabilities with which the names of an experiment were drawn."""

        def step(memory: Memory, data: Sequence[Array]) -> tuple[Memory, Scalar]:
            y, xi, eps = data
            log_p = self.space.log_choice(self.inside.preferences(memory, self._split(eps)[0]), xi)
            return self.inside.update(memory, xi, y), log_p

        return jax.lax.scan(step, self.init(), (ys, xis, noise))[1]

    def _split(self, noise: Float[Array, " n"]) -> tuple[Float[Array, " m"], Float[Array, " f"]]:
        names = self.space.free_dim
        return noise[: noise.shape[0] - names], noise[noise.shape[0] - names :]


def in_training(policy: Policy, space: Space) -> Policy:
    """The policy as it is trained: itself, unless designs have names to choose among."""
    return Exploring(policy, space) if space.named else policy
