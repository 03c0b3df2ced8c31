"""Random Fourier features (Tancik et al., 2020): γ(v) = [cos 2πBv, sin 2πBv], with the entries of
B from N(0, σ²).
"""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from scorebed.errors import require


class FourierFeatures(eqx.Module):
    """`inputs` numbers → `features` numbers, half cosines and half sines. The frequencies are not
    trained.

    σ is in cycles per unit of input: with standardised inputs σ = 10 resolves tenths of a standard
    deviation."""

    frequencies: Float[Array, "n half"]

    def __init__(self, inputs: int, features: int, *, sigma: float = 10.0, key: PRNGKeyArray):
        require(
            inputs >= 1 and features >= 2 and features % 2 == 0 and sigma > 0,
            "Fourier features",
            got=f"inputs={inputs}, features={features}, sigma={sigma}",
            expected="at least one input, an even number of features and a positive sigma",
            fix="features counts cosines and sines together.",
        )
        self.frequencies = sigma * jr.normal(key, (inputs, features // 2))

    def __call__(self, v: Float[Array, "*b n"]) -> Float[Array, "*b features"]:
        angles = 2 * math.pi * (v @ jax.lax.stop_gradient(self.frequencies))
        return jnp.concatenate([jnp.cos(angles), jnp.sin(angles)], axis=-1)
