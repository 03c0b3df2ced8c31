"""Yes or no: does a seed germinate at this temperature and moisture? A bell in each, of unknown
place and width, and seeds that never do.
"""

import jax
import jax.numpy as jnp
import numpyro.distributions as dist

from scorebed.tasks.base import IID
from scorebed.tasks.declare import categories, parameters, ranges
from scorebed.tasks.discrete import Discrete


class Germination(IID, Discrete):
    horizon = 15
    prior = parameters(
        {
            "best temperature [°C]": dist.Normal(20.0, 5.0),
            "best moisture": dist.Beta(4.0, 4.0),
            "width [°C]": dist.LogNormal(1.5, 0.4),
            "alive": dist.Beta(9.0, 2.0),
        }
    )
    designs = ranges({"temperature [°C]": (0.0, 40.0), "moisture": (0.0, 1.0)})
    outcomes = categories("germinates", ("no", "yes"))

    def probabilities(self, theta, state, xi):
        (best, wet, width, alive), (temperature, moisture) = theta, xi
        away = ((temperature - best) / width) ** 2 + ((moisture - wet) / 0.15) ** 2
        yes = alive * jax.nn.sigmoid(3.0 - away)
        return jnp.stack([1 - yes, yes])
