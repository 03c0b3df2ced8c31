"""Growth by a hundred Euler steps: finite at draws of the prior, and overflowing where the rate is
more than four standard deviations above its mean.
"""

import jax
import jax.numpy as jnp
import numpyro.distributions as dist

from scorebed.tasks.base import IID, Gaussian
from scorebed.tasks.declare import measured, parameters, ranges

STEPS = 100


class Growth(IID, Gaussian):
    horizon = 4
    prior = parameters(
        {"rate [1/h]": dist.LogNormal(0.5, 0.5), "capacity [g]": dist.LogNormal(1.0, 0.3)}
    )
    designs = ranges({"time [h]": (0.1, 20.0)})
    outcomes = measured("biomass [g]")
    additive_noise = True

    def mean(self, theta, state, xi):
        (rate, capacity), (time,) = theta, xi

        def euler(x, _):
            return x + time / STEPS * rate * x * (1 - x / capacity), None

        return jnp.stack([jax.lax.scan(euler, jnp.float32(0.01), None, length=STEPS)[0]])

    def scale(self, theta, state, xi):
        return [0.1]
