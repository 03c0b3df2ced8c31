"""Where a source of location finding may be, from a history, without a thought of the other
sources.

    g(x) = v N(x; 0, I) + (1 − v) 1/T Σ_t N(x; ξ_t, s_t² I),   s_t² = min(1, r_t²/d),   r_t² = α / (e^{y_t} − b)

r_t is how far from the sensor a source is that made the intensity e^{y_t} alone; the prior is for
sources that no sensor came near. Sources that are drawn from g independently have no order, so that
no sum over K! of them is needed."""

import math

import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray, Scalar

from scorebed.inference.gaussian_mixture import Density
from scorebed.tasks.library.location import LocationFinding

SHARE = 0.7  # of the prior, v
LEAST = 0.05  # intensity above the background, of which noise may leave nothing


class Balls(Density):
    """Σ_c w_c N(x; m_c, s_c² I)."""

    weights: Float[Array, " C"]
    centres: Float[Array, "C d"]
    scales: Float[Array, " C"]

    def sample(self, *, key: PRNGKeyArray) -> Float[Array, " d"]:
        # One row of numbers: millions are drawn, and every further key costs as much as they do.
        which, *normal = jr.normal(key, (1 + self.centres.shape[1],), self.scales.dtype)
        c = (jnp.cumsum(self.weights[:-1]) < jax.scipy.special.ndtr(which)).sum()
        return self.centres[c] + self.scales[c] * jnp.stack(normal)

    def log_prob(self, z: Float[Array, " d"]) -> Scalar:
        squares = sum((z[i] - self.centres[:, i]) ** 2 for i in range(len(z)))
        heights = jnp.log(self.weights) - len(z) * jnp.log(math.sqrt(2 * math.pi) * self.scales)
        return jax.nn.logsumexp(heights - 0.5 * squares / self.scales**2)


def source_density(
    task: LocationFinding, ys: Float[Array, "T 1"], xis: Float[Array, "T d"]
) -> Balls:
    """g, which takes no likelihood at all."""
    steps, d = xis.shape
    alone = task.strength / jnp.maximum(jnp.exp(ys[:, 0]) - task.background, LEAST)
    return Balls(
        jnp.full(steps + 1, (1 - SHARE) / steps, ys.dtype).at[0].set(SHARE),
        jnp.concatenate([jnp.zeros((1, d), xis.dtype), xis]),
        jnp.concatenate([jnp.ones(1, ys.dtype), jnp.sqrt(jnp.minimum(alone / d, 1))]),
    )
