"""How strong was the taste: none, faint, clear or strong? Where a taster draws the lines."""

import jax
import jax.numpy as jnp
import numpyro.distributions as dist

from scorebed.tasks.base import IID
from scorebed.tasks.declare import categories, parameters, ranges
from scorebed.tasks.discrete import Discrete


class Tasting(IID, Discrete):
    horizon = 10
    prior = parameters(
        {
            "first line": dist.Normal(-1.0, 0.8),
            "second gap": dist.LogNormal(-0.3, 0.5),
            "third gap": dist.LogNormal(-0.3, 0.5),
            "sureness": dist.LogNormal(1.2, 0.4),
        }
    )
    designs = ranges({"log concentration": (-4.0, 4.0)})
    outcomes = categories("taste", ("none", "faint", "clear", "strong"))

    def probabilities(self, theta, state, xi):
        first, second, third, sure = theta
        lines = jnp.stack([first, first + second, first + second + third])
        above = jax.nn.sigmoid(sure * (xi[0] - lines))
        one, none = jnp.ones(1, above.dtype), jnp.zeros(1, above.dtype)
        return -jnp.diff(jnp.concatenate([one, above, none]))
