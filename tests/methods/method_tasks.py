"""A task with finitely many outcomes."""

import jax
import jax.numpy as jnp
import numpyro.distributions as dist

import scorebed as sb


class Threshold(sb.IID, sb.Discrete):
    """Is a stimulus seen?"""

    horizon = 2
    prior = sb.parameters({"threshold": dist.Normal(0.0, 1.0)})
    designs = sb.ranges({"stimulus": (-3.0, 3.0)})
    outcomes = sb.categories("seen", ("no", "yes"))

    def probabilities(self, theta, state, xi):
        del state
        yes = 0.02 + 0.96 * jax.nn.sigmoid(4 * (xi[0] - theta[0]))
        return jnp.stack([1 - yes, yes])
