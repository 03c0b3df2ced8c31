"""A long experiment: two hundred settings of a noisy heater, whose losses are unknown."""

import jax.numpy as jnp
import numpyro.distributions as dist

from scorebed.tasks.base import Gaussian, Markov
from scorebed.tasks.declare import measured, parameters, ranges


class Heater(Markov, Gaussian):
    horizon = 200
    prior = parameters({"loss": dist.Beta(2.0, 8.0), "gain [K/kW]": dist.Gamma(8.0, 4.0)})
    designs = ranges({"power [kW]": (-1.0, 1.0)})
    outcomes = measured("temperature [K]")
    additive_noise = True

    def start(self):
        return jnp.zeros(1)

    def mean(self, theta, state, xi):
        loss, gain = theta
        return jnp.stack([(1 - loss) * state[0] + gain * xi[0]])

    def scale(self, theta, state, xi):
        return [0.5]
