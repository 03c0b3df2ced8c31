"""Where to put a sensor in the plane to find a hidden source, whatever its strength."""

import jax.numpy as jnp
import numpyro.distributions as dist

from scorebed.tasks.base import IID, Gaussian
from scorebed.tasks.declare import measured, parameters, unbounded


class SensorPlacement(IID, Gaussian):
    horizon = 6
    prior = parameters(
        {
            ("source x [m]", "source y [m]"): dist.Normal(0.0, 10.0),
            "strength": dist.LogNormal(3.0, 0.5),
        }
    )
    interest = ("source x", "source y")  # the strength is a nuisance
    designs = unbounded("sensor x [m]", "sensor y [m]", scale=10.0)
    outcomes = measured("log signal")
    additive_noise = True

    def mean(self, theta, state, xi):
        (x, y, strength), (a, b) = theta, xi
        return jnp.stack([jnp.log(0.1 + strength / (1.0 + (x - a) ** 2 + (y - b) ** 2))])

    def scale(self, theta, state, xi):
        return [0.3]
