"""The posterior of any task as a density that can be drawn from: tempered SMC, and a density fitted to its particles.

Particles have no density, so they are never weighed themselves; what is fitted to them is only as good as they are, and weights
show it. See `proposal.py` for the densities.
"""

import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from scorebed.errors import require
from scorebed.inference.proposal import (
    LARGEST_ORDERED,
    LARGEST_SLOTS,
    SHARE,
    Defensive,
    Density,
    Exchangeable,
    Proposal,
    fit_mixture,
    fit_slots,
)
from scorebed.inference.smc import tempered_smc
from scorebed.rollout import log_likelihoods
from scorebed.tasks.base import Task
from scorebed.tasks.location import canonical, sources_of

PARTICLES = 192
MOVES = 4
COMPONENTS = 6
# Steps of single sources where there are many, and over how many octaves below the prior's width their sizes are spread.
SOURCE_MOVES = 24
OCTAVES = 3.0


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

    A mixture of Gaussians; of up to four exchangeable sources it describes those in canonical order, and every order gets its
    share. More of them are moved one by one first, and have a Gaussian each. particles (1 + levels · moves) evaluations of the
    history, and 25 particles where there are many sources.
    """
    sources = sources_of(task)
    require(sources <= LARGEST_SLOTS, "the sources of a task for importance bounds", got=sources,
            expected=f"at most {LARGEST_SLOTS}", fix="use contrastive bounds.")  # fmt: skip
    key_particles, key_fit = jr.split(key)
    posterior = tempered_smc(task, ys, xis, particles=particles, moves=moves, key=key_particles)
    histories = particles * posterior.passes
    if sources > LARGEST_ORDERED:
        z = _move_sources(task, posterior.z, ys, xis, sources, key=key_fit)
        density: Density = fit_slots(z.reshape(particles, sources, -1))
        histories = histories + particles * (1 + SOURCE_MOVES)
    else:
        ordered = jax.vmap(lambda z: canonical(z, sources))(posterior.z)
        density = Exchangeable(fit_mixture(ordered, components, key=key_fit), sources)
    return Proposal(Defensive(density, task.prior.dim, SHARE), histories)


def _move_sources(
    task: Task,
    z: Float[Array, "N k"],
    ys: Float[Array, "T dy"],
    xis: Float[Array, "T dx"],
    sources: int,
    *,
    key: PRNGKeyArray,
) -> Float[Array, "N k"]:
    """Metropolis steps of one source at a time: among many of them, hardly any move of all at once is accepted.

    z' = √(1−β²) z + β ε leaves the prior of the source as it is, so that the test is on the likelihoods alone.
    """

    def evaluate(z: Float[Array, "N k"]) -> Float[Array, " N"]:
        return log_likelihoods(task, jax.vmap(task.prior.from_latent)(z), ys, xis)

    n, k = z.shape

    def move(state: tuple[Array, Array], key: PRNGKeyArray) -> tuple[tuple[Array, Array], None]:
        z, values = state
        key_normal, key_uniform = jr.split(key)
        normal = jr.normal(key_normal, (k * n,), z.dtype).reshape(k, n).T
        octave, which, test = jr.uniform(key_uniform, (3 * n,), z.dtype).reshape(3, n)
        source = jnp.arange(k) // (k // sources) == jnp.floor(sources * which).astype(int)[:, None]
        beta = jnp.where(source, jnp.exp2(-OCTAVES * octave)[:, None], 0)
        proposal = jnp.sqrt(1 - beta**2) * z + beta * normal
        new = evaluate(proposal)
        accepted = jnp.log(test) < new - values
        return (jnp.where(accepted[:, None], proposal, z), jnp.where(accepted, new, values)), None

    return jax.lax.scan(move, (z, evaluate(z)), jr.split(key, SOURCE_MOVES))[0][0]
