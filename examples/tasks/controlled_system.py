"""Which input tells most about a linear system: position and velocity, with an unknown gain of the
input.

The posterior of the gain is Gaussian: with a_t = (0, 0.1 ξ_t) its precision is 1 + Σ_t a_tᵀ a_t /
0.05²."""

import jax.numpy as jnp
import numpyro.distributions as dist

from scorebed.tasks.base import Gaussian, Markov
from scorebed.tasks.declare import measured, parameters, ranges


class ControlledSystem(Markov, Gaussian):
    horizon = 8
    prior = parameters({"gain": dist.Normal(1.0, 1.0)})
    designs = ranges({"force [N]": (-1.0, 1.0)})
    outcomes = measured("position [m]", "velocity [m/s]")
    additive_noise = True

    def start(self):
        return jnp.zeros(2)

    def mean(self, theta, state, xi):
        position, velocity = state
        return jnp.stack([position + 0.1 * velocity, 0.9 * velocity + 0.1 * theta[0] * xi[0]])

    def scale(self, theta, state, xi):
        return [0.05, 0.05]
