"""Four spectral lines that can be exchanged: places and heights."""

import jax.numpy as jnp
import numpyro.distributions as dist

from scorebed.tasks.base import IID, Gaussian
from scorebed.tasks.declare import measured, parameters, ranges

LINES = 4


class FourPeaks(IID, Gaussian):
    horizon = 8
    prior = parameters(
        {
            name: distribution
            for i in range(1, LINES + 1)
            for name, distribution in (
                (f"place {i} [nm]", dist.Uniform(400.0, 700.0)),
                (f"height {i}", dist.LogNormal(0.0, 0.3)),
            )
        }
    )
    designs = ranges({"wavelength [nm]": (400.0, 700.0)})
    outcomes = measured("intensity")
    additive_noise = True
    exchangeable = LINES

    def mean(self, theta, state, xi):
        places, heights = theta[0::2], theta[1::2]
        return (heights / (1 + ((xi[0] - places) / 20.0) ** 2)).sum()[None]

    def scale(self, theta, state, xi):
        return jnp.asarray([0.05])
