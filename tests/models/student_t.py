"""A NumPyro model with heavy-tailed noise, whose degrees of freedom are unknown too."""

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist

from scorebed.tasks.declare import ranges
from scorebed.tasks.numpyro import from_numpyro


def model(xi):
    rate = numpyro.sample("rate", dist.Gamma(3.0, 3.0))
    level = numpyro.sample("level", dist.TruncatedNormal(1.0, 0.5, low=0.2))
    freedom = numpyro.sample("freedom", dist.InverseGamma(4.0, 12.0))
    numpyro.sample("signal", dist.StudentT(freedom, level * jnp.exp(-rate * xi[0]), 0.1))


task = from_numpyro(model, designs=ranges({"time [h]": (0.0, 5.0)}), observe="signal", horizon=5)
