"""Money now or more money later: what discounts the future for a person (Foster et al., 2021).

A person is offered R now or 100 after D days, and answers with the larger of

    V_now = R,   V_later = 100 / (1 + k D),   P(later) = ε + (1 − 2ε) Φ(s (V_later − V_now) / α)

with slips of ε = 1%. Vincent (2016) has the model; the prior and the twenty questions are those of
"Deep Adaptive Design", whose best policy gains 5.021 to 5.123 nats. Its text has s = 1; the program
that its figures come from has erf(·/α) in place of Φ, which is s = √2: less noise, about 0.1 nats
more to learn. `Discounting` is the task of the program, and `as_printed` that of the text.
"""

import math

import equinox as eqx
import jax.numpy as jnp
import numpyro.distributions as dist
from jax.scipy.special import ndtr

from scorebed.tasks.base import IID
from scorebed.tasks.declare import categories, parameters, ranges
from scorebed.tasks.discrete import Discrete

SLIPS = 0.01
LEAST_NOISE = 1e-3  # added to α


class Discounting(IID, Discrete):
    """Find how a person discounts rewards by their delay."""

    horizon = 20
    prior = parameters(
        {"log discount rate": dist.Normal(-4.25, 1.5), "noise": dist.HalfNormal(2.0)}
    )
    designs = ranges({"now": (0.0, 100.0), "log delay [log days]": (-2.0, 11.0)})
    outcomes = categories("answer", ("now", "later"))
    steepness: float = eqx.field(static=True, default=math.sqrt(2))

    def probabilities(self, theta, state, xi):
        (log_k, alpha), (now, log_delay) = theta, xi
        gain = 100 / (1 + jnp.exp(log_k + log_delay)) - now
        later = SLIPS + (1 - 2 * SLIPS) * ndtr(self.steepness * gain / (alpha + LEAST_NOISE))
        return jnp.stack([1 - later, later])


as_printed = Discounting(steepness=1.0)
