"""Skeleton: a task with a state that depends on θ. Change the lines marked with «.

scorebed check dosing.py:Mine
scorebed train dosing.py:Mine --minutes 5
"""

import jax.numpy as jnp
import numpyro.distributions as dist

from scorebed.tasks.base import Gaussian, History
from scorebed.tasks.declare import measured, parameters, priced, ranges


class Mine(History, Gaussian):
    """What the experiment is. «"""

    horizon = 4  # « steps of an experiment
    prior = parameters(
        {"clearance [l/h]": dist.LogNormal(0.0, 0.4), "volume [l]": dist.LogNormal(2.3, 0.2)}
    )  # «
    designs = ranges({"dose [mg]": (0.0, 50.0)})  # « what you choose in a step
    outcomes = measured("concentration [mg/l]")  # « what you measure in a step
    additive_noise = True  # « False if the noise depends on ξ, θ or the state
    cost = priced("drug given [mg]", lambda xi: xi[0], nats=0.01)  # « or leave it out

    def initial(self, theta):
        """The state before the first step: any arrays. «"""
        return jnp.zeros(())

    def advance(self, theta, state, xi, y):
        """The state after a step. «"""
        clearance, volume = theta
        return (state + xi[0]) * jnp.exp(-clearance / volume)

    def mean(self, theta, state, xi):
        """What would be measured in this step without noise, one number per outcome. «"""
        return jnp.stack([self.advance(theta, state, xi, None) / theta[1]])

    def scale(self, theta, state, xi):
        """The standard deviation of each outcome. «"""
        return [0.2]
