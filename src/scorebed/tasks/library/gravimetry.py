"""Gravimetry: find the position, depth and strength of an underground void from the gravity anomaly
above it.

    g(ξ; θ) = κ z / (‖ξ − x₀‖² + z²)^{3/2}  in µGal,   y ~ N(g, σ²),   σ = 1 µGal
    x₀ ~ N(0, 30²),   z = max(exp N(ln 10, 0.5²), 3)
    κ = G · 4/3 π R³ Δρ / 10⁻⁸,   R ~ U(1.5, 4)
"""

import math
from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpyro.distributions as dist
from jaxtyping import Array, Float
from numpyro.distributions.transforms import AffineTransform, PowerTransform

from scorebed.errors import require
from scorebed.tasks.base import IID, Gaussian
from scorebed.tasks.priors import Floored, Independent, Marginal, Prior
from scorebed.tasks.sketch import HiddenObjects, Positions, Profile, Sketch
from scorebed.tasks.spaces import Quantity, Real, Space

GRAVITATIONAL_CONSTANT = 6.674e-11
DENSITY_CONTRAST = -2200.0
MICROGAL = 1e-8
KAPPA_PER_CUBIC_METRE = GRAVITATIONAL_CONSTANT * 4 / 3 * math.pi * DENSITY_CONTRAST / MICROGAL


class Gravimetry(IID, Gaussian):
    """Find an underground void, θ = (x₀…, z, κ), from its gravity anomaly.

    Arguments:
        dim: 1 for measurements on a line, as in the paper, or 2 for a plane.
        horizon: number of measurements, T.
        noise: their standard deviation, in µGal.

    Raises:
        InvalidValueError: if a size is out of range.

    Example:
        >>> [str(q) for q in sb.Gravimetry(dim=2).designs.quantities]
        ['sensor x [m]', 'sensor y [m]']
    """

    horizon: int = eqx.field(static=True)
    prior: Prior
    designs: Space = eqx.field(static=True)
    outcomes: tuple[Quantity, ...] = eqx.field(static=True)
    noise: float = eqx.field(static=True)
    additive_noise: bool = eqx.field(static=True, default=True)
    few_modes: ClassVar[bool] = True
    preset_file: ClassVar[str] = "gravimetry.toml"
    design_scales: ClassVar[tuple[float, float] | None] = (0.3, 1.2)

    def __init__(self, *, dim: int = 1, horizon: int = 20, noise: float = 1.0):
        require(
            dim in (1, 2) and horizon >= 1 and noise > 0,
            "a gravimetry task",
            got=f"dim={dim}, horizon={horizon}, noise={noise}",
            expected="dim 1 (a line) or 2 (a plane), at least one step, positive noise",
            fix="leave them out for the paper's 1, 20 and 1.",
        )
        self.horizon, self.noise = horizon, noise
        axes = "xy"[:dim]
        kappa = dist.TransformedDistribution(
            dist.Uniform(1.5, 4.0),
            [PowerTransform(3.0), AffineTransform(0.0, KAPPA_PER_CUBIC_METRE)],
        )
        self.prior = Independent(
            (
                Marginal(tuple(Quantity(f"void {a}", "m") for a in axes), dist.Normal(0.0, 30.0)),
                Marginal(
                    (Quantity("depth", "m"),), Floored(dist.LogNormal(math.log(10.0), 0.5), 3.0)
                ),
                Marginal((Quantity("strength", "µGal m²"),), kappa),
            )
        )
        self.designs = Real(tuple(Quantity(f"sensor {a}", "m") for a in axes), scale=40.0)
        self.outcomes = (Quantity("gravity anomaly", "µGal"),)
        self.additive_noise = True

    def mean(
        self, theta: Float[Array, " k"], state: None, xi: Float[Array, " dx"]
    ) -> Float[Array, " 1"]:
        del state
        d = self.designs.dim
        depth, kappa = theta[d], theta[d + 1]
        distance2 = sum((xi[i] - theta[i]) ** 2 for i in range(d)) + depth**2
        return (kappa * depth / (distance2 * jnp.sqrt(distance2)))[None]

    def scale(
        self, theta: Float[Array, " k"], state: None, xi: Float[Array, " dx"]
    ) -> tuple[float]:
        del theta, state, xi
        return (self.noise,)

    def sketch(self) -> Sketch:
        d = self.designs.dim
        void = HiddenObjects("void", (tuple(range(d)),), radius)
        return Profile(void, depth=1) if d == 1 else Positions(void)


def radius(theta: Float[Array, " k"]) -> float:
    """R of the void, from κ = const · R³."""
    return float(theta[-1] / KAPPA_PER_CUBIC_METRE) ** (1 / 3)
