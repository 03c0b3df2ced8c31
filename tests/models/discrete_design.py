"""Which assay at which dilution? Designs from a list of numbers and a list of names."""

import jax.numpy as jnp
import numpyro.distributions as dist

from scorebed.tasks.base import IID, Gaussian
from scorebed.tasks.declare import measured, parameters, ranges


class Binding(IID, Gaussian):
    horizon = 6
    prior = parameters(
        {
            "log affinity to A": dist.Normal(0.0, 1.5),
            "log affinity to B": dist.Normal(0.0, 1.5),
            "efficiency": dist.Beta(5.0, 2.0),
        }
    )
    designs = ranges(
        {"dilution": [1, 2, 5, 10, 20, 50, 100, 200], "assay": ["A", "B", "both at once"]}
    )
    outcomes = measured("signal")
    additive_noise = False

    def mean(self, theta, state, xi):
        (to_a, to_b, efficiency), (dilution, assay) = theta, xi
        a, b = 1 / (1 + dilution / 10 * jnp.exp(-to_a)), 1 / (1 + dilution / 10 * jnp.exp(-to_b))
        found = jnp.where(assay == 0, a, jnp.where(assay == 1, b, a * b))
        return jnp.stack([efficiency * found])

    def scale(self, theta, state, xi):
        return [jnp.where(xi[1] == 2, 0.02, 0.05)]
