"""Smooth curves of random complexity: low-rank projections of Gaussian noise (paper, "Choice of
design sampling distribution").

    u = s Φ z,   z ~ N(0, I_{r × d}),   s ~ U(low, high)
    r uniform on {2, …, 8},   Φ ∈ R^{T × r} one of three bases

The paper names the bases without their equations. Ours are, at τ_t = (t − ½)/T, the first r columns
of

    sinusoidal   sin πτ, sin 2πτ, sin 3πτ, …
    Fourier      1/√2, cos 2πτ, sin 2πτ, cos 4πτ, sin 4πτ, …
    spiral       τ cos 2πτ, τ sin 2πτ, τ cos 4πτ, τ sin 4πτ, …

divided by one number per basis and rank so that rows of Φ have squared length one on average. The
designs then have mean square s² per coordinate, averaged over a trajectory, for every basis, rank
and horizon. With a pair of spiral columns each coordinate is a growing oscillation of random size
and phase, so the designs wind outwards."""

import math

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, Scalar

from scorebed.errors import NoDensityError
from scorebed.samplers.base import Unconstrained
from scorebed.samplers.gaussian import require_scales
from scorebed.tasks.spaces import Space

RANKS = (2, 3, 4, 5, 6, 7, 8)


class LowRank(Unconstrained):
    """Smooth designs, similar to those of a trained location-finding policy. They have no density:
    given a basis, the draws fill only r·d of the T·d dimensions.
    """

    horizon: int = eqx.field(static=True)
    space: Space = eqx.field(static=True)
    low: float = eqx.field(static=True, default=0.5)
    high: float = eqx.field(static=True, default=2.0)

    def __check_init__(self) -> None:
        require_scales(self.low, self.high)

    def sample_unconstrained(self, *, key: PRNGKeyArray) -> Float[Array, "T dx"]:
        key_hyper, key_normal = jr.split(key)
        bases = jnp.asarray(time_bases(self.horizon), jnp.result_type(float))
        which, size = jr.uniform(key_hyper, (2,))
        basis = bases[jnp.floor(which * len(bases)).astype(int)]
        sigma = self.low + (self.high - self.low) * size
        z = sigma * jr.normal(key_normal, (RANKS[-1], self.space.dim))
        # A sum of products, since a matrix product may round to half precision on an accelerator.
        return (basis[:, :, None] * z).sum(axis=1)

    def log_prob_unconstrained(self, us: Float[Array, "T dx"]) -> Scalar:
        del us
        raise NoDensityError(
            "the density of LowRank designs, got a sampler whose draws lie on a set of lower "
            "dimension, expected one with a density. "
            "Fix: use AR1 or RandomScaleGaussian where a density is needed."
        )


def time_bases(horizon: int) -> Float[np.ndarray, "bases T columns"]:
    """All combinations of a family and a rank, equally likely; columns beyond the rank are zero."""
    tau = (np.arange(horizon) + 0.5) / horizon
    columns = np.arange(RANKS[-1])
    half_waves = np.sin(math.pi * tau[:, None] * (columns + 1))
    waves = 2 * math.pi * tau[:, None] * np.arange(1, RANKS[-1] // 2 + 1)
    rotations = np.stack([np.cos(waves), np.sin(waves)], axis=2).reshape(horizon, -1)
    fourier = np.concatenate([np.full((horizon, 1), math.sqrt(0.5)), rotations[:, :-1]], axis=1)
    spiral = tau[:, None] * rotations
    bases = [
        family * (columns < rank) for family in (half_waves, fourier, spiral) for rank in RANKS
    ]
    return np.stack([basis / np.sqrt((basis**2).sum() / horizon) for basis in bases])
