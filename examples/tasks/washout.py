"""When to look: a tracer washes out at a rate that differs between vessels. It has no density."""

import jax.numpy as jnp
import numpyro.distributions as dist

from scorebed.tasks.base import IID, Implicit
from scorebed.tasks.declare import measured, parameters, ranges


class Washout(IID, Implicit):
    horizon = 4
    prior = parameters({"rate [1/h]": dist.LogNormal(-1.0, 0.7)})
    designs = ranges({"time [h]": (0.1, 12.0)})
    outcomes = measured("signal")
    extra_noise = 1  # besides one number of noise per outcome
    additive_noise = False

    def outcome(self, theta, state, xi, noise):
        rate = theta[0] * jnp.exp(0.3 * noise[1])  # of this vessel
        return jnp.stack([jnp.exp(-rate * xi[0]) + 0.05 * noise[0]])
