"""The posterior of any task as a density that can be drawn from: tempered SMC, and a density fitted
to its particles.

Particles have no density, so they are never weighed themselves; what is fitted to them is only as
good as they are, and weights show it. `gaussian_mixture.py` has the densities."""

import jax
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from scorebed.inference.blocks import canonical, exchangeable_blocks
from scorebed.inference.gaussian_mixture import (
    SHARE,
    Defensive,
    Exchangeable,
    Proposal,
    fit_heavy_tailed,
)
from scorebed.inference.smc import tempered_smc
from scorebed.tasks.base import Task

PARTICLES = 192
MOVES = 4
COMPONENTS = 6


def fitted_posterior(
    task: Task,
    ys: Float[Array, "T dy"],
    xis: Float[Array, "T dx"],
    *,
    particles: int = PARTICLES,
    moves: int = MOVES,
    components: int = COMPONENTS,
    key: PRNGKeyArray,
) -> Proposal:
    """Particles of the posterior by tempered SMC, a density fitted to them, and 5% of the prior.

    A mixture of Gaussians; up to four exchangeable blocks are described in canonical order, and
    every order gets its share. particles (1 + levels · moves) evaluations of the history."""
    blocks = exchangeable_blocks(task)
    key_particles, key_fit = jr.split(key)
    posterior = tempered_smc(task, ys, xis, particles=particles, moves=moves, key=key_particles)
    ordered = jax.vmap(lambda z: canonical(z, blocks))(posterior.z)
    density = Exchangeable(fit_heavy_tailed(ordered, components, key=key_fit), blocks)
    histories = particles * posterior.passes
    return Proposal(Defensive(density, task.prior.dim, SHARE), histories)
