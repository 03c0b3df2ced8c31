"""Fifty coefficients of a smooth curve, the higher the smaller."""

import jax.numpy as jnp
import numpyro.distributions as dist

from scorebed.tasks.base import IID, Gaussian
from scorebed.tasks.declare import measured, parameters, ranges

COUNT = 50


class Curve(IID, Gaussian):
    horizon = 10
    prior = parameters({f"coefficient {i}": dist.Normal(0.0, 2.0 / i) for i in range(1, COUNT + 1)})
    designs = ranges({"place": (0.0, 1.0)})
    outcomes = measured("value")
    additive_noise = True

    def mean(self, theta, state, xi):
        waves = jnp.sin(jnp.pi * jnp.arange(1, COUNT + 1, dtype=theta.dtype) * xi[0])
        return jnp.dot(waves, theta)[None]

    def scale(self, theta, state, xi):
        return [0.1]
