"""When to draw blood: a drug is absorbed and cleared; the assay's error grows with its level."""

import jax.numpy as jnp
import numpyro.distributions as dist

from scorebed.tasks.base import IID, Gaussian
from scorebed.tasks.declare import measured, ordered, parameters, ranges


class SamplingTimes(IID, Gaussian):
    horizon = 5
    prior = parameters(
        {"absorption [1/h]": dist.LogNormal(0.4, 0.3), "clearance [1/h]": dist.LogNormal(-2.0, 0.3)}
    )
    designs = ranges({"time [h]": (0.1, 24.0)})
    constraint = ordered(gap=0.5)  # samples in order, at least half an hour apart
    outcomes = measured("concentration [mg/l]")
    additive_noise = False  # the noise depends on the concentration, and so on θ and ξ

    def mean(self, theta, state, xi):
        (absorption, clearance), (time,) = theta, xi
        decay = jnp.exp(-clearance * time) - jnp.exp(-absorption * time)
        return jnp.stack([20.0 * absorption / (absorption - clearance) * decay])

    def scale(self, theta, state, xi):
        return [0.1 + 0.1 * self.mean(theta, state, xi)[0]]
