"""Skeleton: your own policy, for your own task or a built-in one. Change the lines marked with «.

scorebed train policy.py:task --policy mine --minutes 5
scorebed live RUN --task policy.py:task
"""

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr

import scorebed as sb
from scorebed.policies.base import Policy

task = sb.make_task("pendulum")  # « or: from my_task import MyTask as task


@sb.register_policy("mine")  # « its name for --policy
class Mine(Policy):
    """ξ_{t+1} = constrain(A y_t + b), with y_0 = 0. «"""

    gain: jnp.ndarray  # arrays of floats are trained
    offset: jnp.ndarray
    space: object = eqx.field(static=True)  # anything else is not

    def __init__(self, task, *, key):
        self.gain = 0.1 * jr.normal(key, (task.designs.dim, task.outcome_dim))
        self.offset = jnp.zeros(task.designs.dim)
        self.space = task.designs

    def sample_noise(self, horizon, *, key):
        """All of its randomness, one row per step; rows of length zero if there is none. «"""
        return jnp.zeros((horizon, 0))

    def init(self):
        """The memory before the first step. «"""
        return jnp.zeros(self.gain.shape[1])

    def design(self, memory, noise):
        """The next design, from the memory. «"""
        return self.space.constrain(self.gain @ memory + self.offset)

    def update(self, memory, xi, y):
        """The memory after a design and its outcome. «"""
        return y
