"""Clearance of four patients whose mean and spread are unknown: a hierarchical prior."""

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist

from scorebed.tasks.declare import ranges
from scorebed.tasks.numpyro import from_numpyro


def model(xi):
    mean = numpyro.sample("mean", dist.Normal(-1.0, 0.5))
    spread = numpyro.sample("spread", dist.HalfNormal(0.5))
    with numpyro.plate("patients", 4):
        rates = numpyro.sample("rate", dist.LogNormal(mean, spread))
        numpyro.sample("level", dist.LogNormal(-rates * xi[0], 0.1 + jnp.zeros(4)))


task = from_numpyro(model, designs=ranges({"time [h]": (0.1, 8.0)}), observe="level", horizon=3)
