"""A memory test: which of four lists, learned how many days ago, and is it remembered?"""

import jax.numpy as jnp
import numpyro.distributions as dist

from scorebed.tasks.base import IID
from scorebed.tasks.declare import categories, parameters, ranges
from scorebed.tasks.discrete import Discrete


class Retention(IID, Discrete):
    horizon = 12
    prior = parameters(
        {
            "rate [1/day]": dist.LogNormal(-1.5, 1.0),
            "power": dist.LogNormal(-0.5, 0.4),
            "ease": dist.Beta(6.0, 2.0),
        }
    )
    designs = ranges({"age [days]": [0.1, 0.3, 1, 2, 4, 8, 16, 32, 64], "kind": ["free", "cued"]})
    outcomes = categories("remembered", ("no", "yes"))

    def probabilities(self, theta, state, xi):
        (rate, power, ease), (age, cued) = theta, xi
        kept = (1 + rate * age) ** -power
        yes = jnp.where(cued == 1, 0.25 + 0.75 * kept, kept) * (0.02 + 0.96 * ease)
        return jnp.stack([1 - yes, yes])
