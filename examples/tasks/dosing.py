"""How much to give next: the amount in the body depends on all doses so far, and on θ."""

import jax.numpy as jnp
import numpyro.distributions as dist

from scorebed.tasks.base import Gaussian, History
from scorebed.tasks.declare import measured, parameters, ranges


class Dosing(History, Gaussian):
    horizon = 6
    prior = parameters(
        {"clearance [l/h]": dist.LogNormal(0.0, 0.4), "volume [l]": dist.LogNormal(2.3, 0.2)}
    )
    designs = ranges({"dose [mg]": (0.0, 50.0)})
    outcomes = measured("concentration [mg/l]")
    additive_noise = True

    def initial(self, theta):
        return jnp.zeros(())  # mg in the body before the first dose

    def mean(self, theta, state, xi):
        return jnp.stack([self.advance(theta, state, xi, None) / theta[1]])

    def scale(self, theta, state, xi):
        return [0.2]

    def advance(self, theta, state, xi, y):
        return (state + xi[0]) * jnp.exp(-theta[0] / theta[1])  # an hour later
