"""Photons counted from a decaying sample: a NumPyro model with Poisson outcomes."""

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist

from scorebed.tasks.declare import ranges
from scorebed.tasks.numpyro import from_numpyro


def model(xi):
    lifetime = numpyro.sample("lifetime", dist.LogNormal(1.0, 0.7))
    bright = numpyro.sample("brightness", dist.Gamma(6.0, 0.3))
    dark = numpyro.sample("background", dist.HalfNormal(1.0))
    delay, exposure = xi
    seen = bright * jnp.exp(-delay / lifetime) * (1 - jnp.exp(-exposure / lifetime))
    numpyro.sample("photons", dist.Poisson(seen + dark * exposure))


task = from_numpyro(
    model,
    designs=ranges({"delay [ns]": (0.0, 20.0), "exposure [ns]": (0.1, 10.0)}),
    observe="photons",
    horizon=6,
    at_most={"photons": 60},
)
