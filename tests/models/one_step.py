"""A single measurement: at which dose to look for the threshold."""

import jax
import jax.numpy as jnp
import numpyro.distributions as dist

from scorebed.tasks.base import IID, Gaussian
from scorebed.tasks.declare import measured, parameters, ranges


class Threshold(IID, Gaussian):
    horizon = 1
    prior = parameters({"threshold [mg]": dist.Normal(3.0, 1.0)})
    designs = ranges({"dose [mg]": (0.0, 10.0)})
    outcomes = measured("response")
    additive_noise = True

    def mean(self, theta, state, xi):
        return jnp.stack([jax.nn.sigmoid(2 * (xi[0] - theta[0]))])

    def scale(self, theta, state, xi):
        return [0.1]
