"""Source location finding: K hidden sources in R^d, and a sensor that is moved T times (paper,
appendix "BED tasks").

    θ_k ~ N(0, I_d),   y | θ, ξ ~ N(log μ(θ, ξ), σ²),   μ(θ, ξ) = b + Σ_k α / (m + ‖θ_k − ξ‖²)

y is the *logarithm* of the measured intensity, as the paper's log-normal observation model has it.
"""

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Scalar

from scorebed.errors import require
from scorebed.tasks.base import IID, BlockGuess, Gaussian
from scorebed.tasks.priors import Prior, standard_normal
from scorebed.tasks.sketch import HiddenObjects, Positions, Profile, Sketch
from scorebed.tasks.spaces import Quantity, Real, Space

FAINTEST = 0.05  # intensity above the background; noise may leave less, or nothing


def _axis(i: int, d: int) -> str:
    return "xyz"[i] if d <= 3 else f"x{i + 1}"


class LocationFinding(IID, Gaussian):
    """Find hidden sources by their intensity; θ lists the sources one after another.

    Arguments:
        dim: number of dimensions, d.
        sources: number of sources, K.
        horizon: number of measurements, T.
        background: the intensity b without sources.
        floor: m, which limits the intensity at a source.
        strength: the strength α of every source.
        noise: standard deviation of the log-intensity, σ.

    Raises:
        InvalidValueError: if a size is below 1 or another number is not positive.

    Example:
        >>> hidden = sb.LocationFinding(sources=3, horizon=10)
        >>> hidden.exchangeable, hidden.prior.dim
        (3, 6)
    """

    horizon: int = eqx.field(static=True)
    sources: int = eqx.field(static=True)
    prior: Prior
    designs: Space = eqx.field(static=True)
    outcomes: tuple[Quantity, ...] = eqx.field(static=True)
    background: float = eqx.field(static=True)
    floor: float = eqx.field(static=True)
    strength: float = eqx.field(static=True)
    noise: float = eqx.field(static=True)
    additive_noise: bool = eqx.field(static=True, default=True)
    few_modes: ClassVar[bool] = True
    preset_file: ClassVar[str] = "location-finding.toml"

    def __init__(
        self,
        *,
        dim: int = 2,
        sources: int = 2,
        horizon: int = 30,
        background: float = 0.1,
        floor: float = 1e-4,
        strength: float = 1.0,
        noise: float = 0.5,
    ):
        require(
            min(dim, sources, horizon) >= 1,
            "a location-finding task",
            got=f"dim={dim}, sources={sources}, horizon={horizon}",
            expected="whole numbers from 1",
            fix="give at least one dimension, source and step.",
        )
        require(
            min(background, floor, strength, noise) > 0,
            "a location-finding task",
            got=f"background={background}, floor={floor}, strength={strength}, noise={noise}",
            expected="positive numbers",
            fix="all four must be greater than zero.",
        )
        self.horizon, self.sources = horizon, sources
        self.background, self.floor, self.strength, self.noise = background, floor, strength, noise
        self.prior = standard_normal(
            tuple(
                Quantity(f"source {k + 1} {_axis(i, dim)}")
                for k in range(sources)
                for i in range(dim)
            )
        )
        self.designs = Real(tuple(Quantity(f"sensor {_axis(i, dim)}") for i in range(dim)))
        self.outcomes = (Quantity("log intensity"),)
        self.additive_noise = True

    @property
    def exchangeable(self) -> int:  # type: ignore[override]
        """The sources. Their prior is standard normal, so sources in z are sources in θ."""
        return self.sources

    @property
    def narrow_posterior(self) -> bool:
        """A single source, too, can be approached."""
        return True

    def guess_block(self, ys: Float[Array, "T 1"], xis: Float[Array, "T d"]) -> BlockGuess:
        """Balls around the sensors, of standard deviation min(1, r_t/√d) with r_t² = α / (e^{y_t} −
        b): the distance of a source that made the intensity e^{y_t} alone.
        """
        alone = self.strength / jnp.maximum(jnp.exp(ys[:, 0]) - self.background, FAINTEST)
        return BlockGuess(xis, jnp.sqrt(jnp.minimum(alone / xis.shape[1], 1)))

    def intensity(self, theta: Float[Array, " k"], xi: Float[Array, " dx"]) -> Scalar:
        """μ(θ, ξ)."""
        d = self.designs.dim
        mu = jnp.full((), self.background, xi.dtype)
        for k in range(self.sources):
            distance2 = sum((theta[k * d + i] - xi[i]) ** 2 for i in range(d))
            mu = mu + self.strength / (self.floor + distance2)
        return mu

    def mean(
        self, theta: Float[Array, " k"], state: None, xi: Float[Array, " dx"]
    ) -> Float[Array, " 1"]:
        del state
        return jnp.log(self.intensity(theta, xi))[None]

    def scale(
        self, theta: Float[Array, " k"], state: None, xi: Float[Array, " dx"]
    ) -> tuple[float]:
        del theta, state, xi
        return (self.noise,)

    def sketch(self) -> Sketch:
        d = self.designs.dim
        places = tuple(tuple(range(k * d, (k + 1) * d)) for k in range(self.sources))
        hidden = HiddenObjects("source", places)
        return Profile(hidden) if d == 1 else Positions(hidden)
