"""The posterior of a task with Gaussian outcomes as a mixture of Gaussians at its modes, without a
single draw.

    q(z) = Σ_j w_j N(z; z_j, P_j⁻¹),   w_j ∝ e^{−value(z_j)} |P_j|^{−1/2} / #{i : z_i = z_j}

z_j are where Levenberg–Marquardt ends from J starts (`inference/modes.py`), and P_j the curvature
there. A mode that several starts have found counts once. As a proposal it costs J (2 · iterations +
1) likelihoods of the history, an order of magnitude fewer than tempered SMC, and is at its best
where SMC is at its worst: where the posterior is narrow. When wrong: flat or curved posteriors,
which weights show as a wide gap between the bounds."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from scorebed.inference.blocks import canonical, exchangeable_blocks
from scorebed.inference.gaussian_mixture import (
    SHARE,
    Defensive,
    Exchangeable,
    HeavyTailedMixture,
    Proposal,
)
from scorebed.inference.modes import (
    DAMPING,
    SAME,
    Data,
    descend,
    gaussian_task,
    log_mass,
    point,
    starts,
)
from scorebed.tasks.base import Task

# Starts and iterations: with independent steps the modes have to be searched for; a driven system
# is seen in all of its states.
SEARCH, FOLLOW = (32, 24), (2, 8)


def laplace_posterior(
    task: Task,
    ys: Float[Array, "T dy"],
    xis: Float[Array, "T dx"],
    *,
    key: PRNGKeyArray | None = None,
) -> Proposal:
    """Gaussians at the modes, and 5% of the prior; a proposal for importance bounds. It is
    deterministic.
    """
    del key
    particles, iterations = _effort(task)
    task = gaussian_task(task, "a Laplace proposal")
    k, blocks = task.prior.dim, exchangeable_blocks(task)
    data = Data(ys, task.states_before(ys), xis, jnp.ones(len(ys), bool))
    first, damping = (
        jnp.asarray(starts(particles, k), ys.dtype),
        jnp.full(particles, DAMPING, ys.dtype),
    )
    modes, _ = descend(task, first, damping, data, iterations=iterations)
    modes = jax.vmap(lambda z: canonical(z, blocks))(modes)
    points = jax.vmap(lambda z: point(task, z, data))(modes)
    factors, eye = jnp.linalg.cholesky(jnp.linalg.inv(points.curvature)), jnp.eye(k, dtype=ys.dtype)
    found = (jnp.abs(modes[:, None] - modes).max(-1) < SAME).sum(1).astype(ys.dtype)
    mass = jax.vmap(log_mass)(points) - jnp.log(found)
    # A start that ran into NaN has found nothing.
    sound = jnp.isfinite(modes).all(1) & jnp.isfinite(factors).all((1, 2)) & jnp.isfinite(mass)
    log_weights = jax.nn.log_softmax(jnp.where(sound, mass, jnp.finfo(ys.dtype).min / 2))
    modes, factors = (
        jnp.where(sound[:, None], modes, 0),
        jnp.where(sound[:, None, None], factors, eye),
    )
    mixture = HeavyTailedMixture(jnp.zeros(k, ys.dtype), eye, log_weights, modes, factors)
    histories = jnp.asarray(laplace_histories(task))
    return Proposal(Defensive(Exchangeable(mixture, blocks), k, SHARE), histories)


def laplace_histories(task: Task) -> int:
    """Likelihoods of the whole history that a Laplace posterior takes; one is T NLE."""
    particles, iterations = _effort(task)
    return particles * (2 * iterations + 1)


def _effort(task: Task) -> tuple[int, int]:
    """Starts and iterations."""
    return SEARCH if task.exchangeable_steps else FOLLOW
