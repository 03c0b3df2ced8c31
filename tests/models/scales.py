"""Units from 1e-9 to 1e9: a diffusion constant, a density, a distance and a count rate."""

import jax.numpy as jnp
import numpyro.distributions as dist

from scorebed.tasks.base import IID, Gaussian
from scorebed.tasks.declare import measured, parameters, ranges


class Diffusion(IID, Gaussian):
    horizon = 4
    prior = parameters(
        {
            "diffusion [m2/s]": dist.LogNormal(-20.7, 0.5),  # 1e-9
            "density [1/m3]": dist.Normal(1e9, 2e8),
        }
    )
    designs = ranges({"distance [m]": (1e-5, 3e-4)})
    outcomes = measured("rate [1/m3]")
    additive_noise = True

    def mean(self, theta, state, xi):
        diffusion, density = theta
        return jnp.stack([density * jnp.exp(-(xi[0] ** 2) / (4 * diffusion * 5.0))])

    def scale(self, theta, state, xi):
        return [3e7]
