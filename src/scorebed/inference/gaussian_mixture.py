"""Normalised densities over the latent z that can be drawn from: what importance sampling needs and
particles cannot give.

    q(z) = Σ_c w_c Σ_s v_s N(z; m_c, s² Σ_c)

(w, m, Σ) come from expectation maximisation on posterior particles, or from modes. Every component
appears at three widths s, so that its tails are heavier than those of the fitted Gaussian: weights
p(z)p(y|z)/q(z) stay small where the particles were too few to show the posterior's tails.
Covariances shrink towards the pooled one, by as much as k + 2 particles would pull.

`Defensive` mixes in the prior, which bounds every weight by p(y|z) over its share; `Exchangeable`
averages over all orders of exchangeable blocks. Both keep a normalised density normalised."""

import abc
import itertools
import math
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float, Int, PRNGKeyArray, Scalar

from scorebed.errors import require
from scorebed.tasks.base import LARGEST_ORDERED

SCALES = (1.0, 1.5, 3.0)
SCALE_WEIGHTS = (0.6, 0.3, 0.1)
ROUNDS = 30
# Share of the variance of all particles that is added to every component, without which a Cholesky
# factor in single precision may fail.
RIDGE = 1e-5
SHARE = 0.05  # of the prior in a proposal


class Density(eqx.Module):
    """q(z), normalised."""

    @abc.abstractmethod
    def sample(self, *, key: PRNGKeyArray) -> Float[Array, " k"]:
        """z ~ q."""

    @abc.abstractmethod
    def log_prob(self, z: Float[Array, " k"]) -> Scalar:
        """log q(z). No NLE."""


class Proposal(NamedTuple):
    """A density made from a history, and how many likelihoods of that history it took."""

    density: Density
    histories: Int[Array, ""]


class HeavyTailedMixture(Density):
    """Σ_c w_c Σ_s v_s N(m_c, s² L_c L_cᵀ) over x, in the frame of the particles, z = centre +
    frame x.
    """

    centre: Float[Array, " k"]
    frame: Float[Array, "k k"]
    log_weights: Float[Array, " C"]
    means: Float[Array, "C k"]
    factors: Float[Array, "C k k"]

    def sample(self, *, key: PRNGKeyArray) -> Float[Array, " k"]:
        key_component, key_scale, key_normal = jr.split(key, 3)
        dtype = self.means.dtype
        c = jr.categorical(key_component, self.log_weights)
        s = jr.categorical(key_scale, jnp.log(jnp.asarray(SCALE_WEIGHTS, dtype)))
        normal = jr.normal(key_normal, self.centre.shape, dtype)
        x = self.means[c] + jnp.asarray(SCALES, dtype)[s] * (self.factors[c] @ normal)
        return self.centre + self.frame @ x

    def log_prob(self, z: Float[Array, " k"]) -> Scalar:
        x = solve_triangular(self.frame, z - self.centre, lower=True)
        each = _log_normals(x[None], self.means, self.factors, SCALES)[..., 0]
        weights = self.log_weights + jnp.log(jnp.asarray(SCALE_WEIGHTS, z.dtype))[:, None]
        return jax.nn.logsumexp(weights + each) - jnp.log(jnp.diag(self.frame)).sum()


class Defensive(Density):
    """share · N(z; 0, I) + (1 − share) · base(z): no weight exceeds p(y | z) / share."""

    base: Density
    dim: int = eqx.field(static=True)
    share: float = eqx.field(static=True)

    def sample(self, *, key: PRNGKeyArray) -> Float[Array, " k"]:
        key_which, key_prior, key_base = jr.split(key, 3)
        z = self.base.sample(key=key_base)
        return jnp.where(
            jr.uniform(key_which) < self.share, jr.normal(key_prior, (self.dim,), z.dtype), z
        )

    def log_prob(self, z: Float[Array, " k"]) -> Scalar:
        fitted = math.log1p(-self.share) + self.base.log_prob(z)
        return jnp.logaddexp(math.log(self.share) + standard_normal_log_prob(z), fitted)


class Exchangeable(Density):
    """q(z) = 1/K! Σ_π base(π z) over all orders π of the K blocks that z lists one after
    another.
    """

    base: Density
    blocks: int = eqx.field(static=True)

    def __check_init__(self) -> None:
        require(
            1 <= self.blocks <= LARGEST_ORDERED,
            "the exchangeable blocks of a density",
            got=self.blocks,
            expected=f"1 to {LARGEST_ORDERED}",
            fix="K! orders are too many to sum over.",
        )

    def sample(self, *, key: PRNGKeyArray) -> Float[Array, " k"]:
        key_order, key_base = jr.split(key)
        z = self.base.sample(key=key_base)
        orders = self._orders(z.size)
        return z[orders[jr.randint(key_order, (), 0, len(orders))]]

    def log_prob(self, z: Float[Array, " k"]) -> Scalar:
        orders = self._orders(z.size)
        return jax.nn.logsumexp(jax.vmap(self.base.log_prob)(z[orders])) - math.log(len(orders))

    def _orders(self, k: int) -> Array:
        """Coordinates of z in every order of its blocks, one row each."""
        rows = np.arange(k).reshape(self.blocks, -1)
        return jnp.asarray(
            [rows[list(order)].reshape(-1) for order in itertools.permutations(range(self.blocks))]
        )


def gaussian_log_prob(
    squares: Float[Array, "*N"], log_det: Float[Array, "..."] | float, *, dim: int
) -> Float[Array, "*N"]:
    """log N(x; m, L Lᵀ) from ‖L⁻¹(x − m)‖² and log det L, in `dim` dimensions: the one formula of
    every Gaussian here, whatever the form of L.
    """
    return -0.5 * squares - log_det - 0.5 * dim * math.log(2 * math.pi)


def standard_normal_log_prob(z: Float[Array, " k"]) -> Scalar:
    """log N(z; 0, I), the prior of every latent."""
    return gaussian_log_prob((z**2).sum(), 0.0, dim=z.size)


def fit_heavy_tailed(
    points: Float[Array, "N k"], components: int, *, key: PRNGKeyArray
) -> HeavyTailedMixture:
    """The mixture that expectation maximisation finds; standard normal if any point is not
    finite.
    """
    n, k = points.shape
    centre = points.mean(0)
    eye = jnp.eye(k, dtype=points.dtype)
    away = points - centre
    covariance = away.T @ away / n
    frame = jnp.linalg.cholesky(covariance + jnp.diag(RIDGE * jnp.diag(covariance) + 1e-14))
    x = solve_triangular(frame, away.T, lower=True).T

    def step(
        mixture: tuple[Array, Array, Array], _: None
    ) -> tuple[tuple[Array, Array, Array], None]:
        log_weights, means, factors = mixture
        each = log_weights[:, None] + _log_normals(x, means, factors, (1.0,))[0]
        shares = jax.nn.softmax(each, axis=0)
        counts = shares.sum(1)
        means = (shares @ x) / jnp.maximum(counts, 1e-6)[:, None]
        away = x - means[:, None]
        scatter = jnp.swapaxes(away * shares[..., None], 1, 2) @ away
        shrink = k + 2
        pooled = (scatter + shrink * scatter.sum(0) / n) / (counts + shrink)[:, None, None]
        return (
            jnp.log((counts + 1) / (n + components)),
            means,
            jnp.linalg.cholesky(pooled + RIDGE * eye),
        ), None

    start = (
        jnp.full(components, -math.log(components), x.dtype),
        _spread(x, components, key=key),
        jnp.broadcast_to(components ** (-1 / k) * eye, (components, k, k)),
    )
    log_weights, means, factors = jax.lax.scan(step, start, None, ROUNDS)[0]
    found = HeavyTailedMixture(centre, frame, log_weights, means, factors)
    sound = jnp.all(jnp.stack([jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(found)]))
    plain = HeavyTailedMixture(
        jnp.zeros_like(centre),
        eye,
        start[0],
        jnp.zeros_like(means),
        jnp.broadcast_to(eye, factors.shape),
    )
    return jax.tree.map(lambda a, b: jnp.where(sound, a, b), found, plain)


def _spread(x: Float[Array, "N k"], count: int, *, key: PRNGKeyArray) -> Float[Array, "count k"]:
    """Points to start from, each drawn in proportion to its squared distance from those before it
    (k-means++).
    """
    gumbels = jr.gumbel(key, (count * len(x),), x.dtype).reshape(count, -1)

    def pick(nearest: Array, gumbel: Array) -> tuple[Array, Array]:
        chosen = x[jnp.argmax(jnp.log(nearest) + gumbel)]
        return jnp.minimum(nearest, ((x - chosen) ** 2).sum(1)), chosen

    return jax.lax.scan(pick, jnp.full(len(x), jnp.inf, x.dtype), gumbels)[1]


def _log_normals(
    x: Float[Array, "N k"],
    means: Float[Array, "C k"],
    factors: Float[Array, "C k k"],
    scales: tuple[float, ...],
) -> Float[Array, "S C N"]:
    """log N(x_n; m_c, s² L_c L_cᵀ)."""
    away = jnp.swapaxes(x - means[:, None], 1, 2)
    squares = (solve_triangular(factors, away, lower=True) ** 2).sum(1)
    log_det = jnp.log(jnp.diagonal(factors, axis1=1, axis2=2)).sum(1)[:, None]
    k = x.shape[1]
    return jnp.stack(
        [gaussian_log_prob(squares / s**2, log_det + k * math.log(s), dim=k) for s in scales]
    )
