"""Skeleton: a system that is observed in part, and with noise. Change the lines marked with «.

scorebed check state_space.py:Mine
scorebed train state_space.py:Mine --minutes 5
"""

import jax.numpy as jnp
import numpyro.distributions as dist

from scorebed.tasks.base import Gaussian, History
from scorebed.tasks.declare import measured, parameters, ranges, steps_at_most


class Mine(History, Gaussian):
    """What the system is. «"""

    horizon = 6  # « steps of an experiment
    prior = parameters(
        {"coupling [1/min]": dist.LogNormal(-1.0, 0.3), "loss [1/min]": dist.LogNormal(-2.0, 0.3)}
    )  # «
    designs = ranges({"power [kW]": (0.0, 2.0)})  # « the input
    constraint = steps_at_most({"power [kW]": 1.0}, start={"power [kW]": 0.0})  # « or leave it out
    outcomes = measured("temperature [K]")  # « the part that is observed
    additive_noise = True  # « False if the noise depends on ξ, θ or the state

    def initial(self, theta):
        """The state before the first step, observed or not. «"""
        return jnp.zeros(2)

    def advance(self, theta, state, xi, y):
        """One step of the system. «"""
        (coupling, loss), (heater, sample) = theta, state
        flow = coupling * (heater - sample)
        return jnp.stack([heater + 5.0 * xi[0] - flow, sample + flow - loss * sample])

    def mean(self, theta, state, xi):
        """The observed part of the state after this step, without noise. «"""
        return jnp.stack([self.advance(theta, state, xi, None)[1]])

    def scale(self, theta, state, xi):
        """The standard deviation of each observation. «"""
        return [0.2]
