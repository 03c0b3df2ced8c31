"""Random Fourier features (Tancik et al., 2020): γ(v) = [cos ωᵀv, sin ωᵀv], with the entries of ω
from N(0, σ²).
"""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from scorebed.errors import require

CYCLE = 2 * math.pi


class FourierFeatures(eqx.Module):
    """`inputs` numbers → `features` numbers, half cosines and half sines. The frequencies are not
    trained.

    σ is in radians per unit of input: with standardised inputs σ = 0.1 gives features that are
    nearly linear and bend far out. It is in other units where `unit` says how many radians they
    have: `CYCLE` for cycles, as Tancik et al. count them.

    Frequencies that are high in units of the inputs' spread make every feature noise to a network
    that is differentiated in its inputs: docs/decisions/026."""

    frequencies: Float[Array, "n half"]
    unit: float = eqx.field(static=True)

    def __init__(
        self, inputs: int, features: int, *, sigma: float, unit: float = 1.0, key: PRNGKeyArray
    ):
        require(
            inputs >= 1 and features >= 2 and features % 2 == 0 and sigma > 0,
            "Fourier features",
            got=f"inputs={inputs}, features={features}, sigma={sigma}",
            expected="at least one input, an even number of features and a positive sigma",
            fix="features counts cosines and sines together.",
        )
        self.frequencies = sigma * jr.normal(key, (inputs, features // 2))
        self.unit = unit

    def __call__(self, v: Float[Array, "*b n"]) -> Float[Array, "*b features"]:
        angles = self.unit * (v @ jax.lax.stop_gradient(self.frequencies))
        return jnp.concatenate([jnp.cos(angles), jnp.sin(angles)], axis=-1)
