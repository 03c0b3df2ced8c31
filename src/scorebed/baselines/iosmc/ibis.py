"""Iterated batch importance sampling (Chopin, 2002): the posterior of a trajectory, updated as its
outcomes come in.

M weighted particles stand for p(θ | h_t), in the latent z of the prior, θ = f(z). An outcome
multiplies their weights,

    ℓ_m = p(y_t | ξ_t, θ_m, h_{t−1}),      W′_m ∝ W_m ℓ_m,      p(y_t | ξ_t, h_{t−1}) ≈ Σ_m W_m ℓ_m

and when the effective sample size falls below a share of M, the particles are resampled and moved
by R random-walk Metropolis steps with their weighted covariance, each of which evaluates the whole
history again. z is N(0, I), so where log θ ∝ z, as on the dynamical tasks, it is a walk in
log-parameters. M NLE a step, and M·R·t where step t ends in moves.

When wrong: the covariance and the decision to move come from the particles themselves, which biases
by O(1/M); modes that no particle found stay unfound. The product of the evidences is unbiased
without moves."""

import functools
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, Int, Key, PRNGKeyArray, Scalar, UInt32

from scorebed.inference.resampling import normalised_sample_size, systematic_resample
from scorebed.tasks.base import State, Task, require_data_states

# Trajectories whose particles move at once: with M = 512, vectors that fit into the cache.
CHUNK = 16
USE_ANOTHER = "use another method."

_dot = functools.partial(jnp.matmul, precision="highest")


class ParameterParticles(eqx.Module):
    """p(θ | h_t) of one trajectory. Particles are columns, so that each scalar of the task is a
    contiguous vector.
    """

    z: Float[Array, "*N k M"]
    log_weights: Float[Array, "*N M"]  # normalised
    # Of the history so far: a move need not evaluate where it starts from.
    log_likelihoods: Float[Array, "*N M"]


class Filtered(eqx.Module):
    """IBIS along N given histories. `moves` is Σ t over the steps t at which each moved: the cost
    is M (T + R · moves) NLE.
    """

    particles: ParameterParticles
    log_evidence: Float[Array, " N"]
    moves: Int[Array, " N"]


def start_particles(task: Task, particles: int, seed: UInt32[Array, " 2"]) -> ParameterParticles:
    """The prior."""
    z = jr.normal(_key(seed), (task.prior.dim, particles))
    return ParameterParticles(z, jnp.full(particles, -math.log(particles)), jnp.zeros(particles))


def log_increments(
    task: Task,
    particles: ParameterParticles,
    y: Float[Array, " dy"],
    state: State,
    xi: Float[Array, " dx"],
) -> Float[Array, " M"]:
    """log ℓ_m = log p(y_t | ξ_t, θ_m, h_{t−1}). M NLE."""
    return _log_probs(task, _thetas(task, particles.z), y, state, xi)


def reweigh(
    particles: ParameterParticles, increments: Float[Array, " M"]
) -> tuple[ParameterParticles, Scalar, Scalar]:
    """Particles after an outcome, its log evidence log Σ_m W_m ℓ_m, and its information gain Σ_m
    W′_m log ℓ_m − log evidence.
    """
    log_weights = particles.log_weights + increments
    log_evidence = jax.nn.logsumexp(log_weights)
    log_weights = log_weights - log_evidence
    weights = jnp.exp(log_weights)
    gain = jnp.where(weights > 0, weights * increments, 0).sum() - log_evidence  # 0 · log 0 = 0
    return (
        ParameterParticles(particles.z, log_weights, particles.log_likelihoods + increments),
        log_evidence,
        gain,
    )


def move(
    task: Task,
    particles: ParameterParticles,
    ys: Float[Array, "T dy"],
    xis: Float[Array, "T dx"],
    steps: Int[Array, ""],
    moves: int,
    seed: UInt32[Array, " 2"],
) -> ParameterParticles:
    """Resample, then Metropolis steps that leave p(z | h_steps) ∝ N(z; 0, I) p(y_{1:steps} |
    ξ_{1:steps}, f(z)) unchanged.

    Rows of the history past `steps` may hold anything. M·R·steps NLE.
    """
    key_resample, key_moves = jr.split(_key(seed))
    M = particles.z.shape[-1]
    weights = jnp.exp(particles.log_weights)
    away = particles.z - _dot(particles.z, weights)[:, None]
    covariance = _dot(away * weights, away.T)
    # Two particles in three dimensions have a singular covariance. Particles at one point stay
    # there, and are reported as collapsed.
    ridge = 1e-6 * jnp.trace(covariance) * jnp.eye(len(covariance), dtype=covariance.dtype)
    scale = jnp.linalg.cholesky(covariance + ridge)
    chosen = systematic_resample(key_resample, weights, M)

    def step(carry: tuple[Array, Array], key: PRNGKeyArray) -> tuple[tuple[Array, Array], None]:
        z, log_likelihoods = carry
        key_step, key_accept = jr.split(key)
        proposal = z + _dot(scale, jr.normal(key_step, z.shape, z.dtype))
        proposed = _history(task, proposal, ys, xis, steps)
        log_ratio = proposed - log_likelihoods - 0.5 * ((proposal**2).sum(0) - (z**2).sum(0))
        # A proposal that is not a number compares as false, and is refused.
        accept = jnp.log(jr.uniform(key_accept, (M,), z.dtype)) < log_ratio
        return (jnp.where(accept, proposal, z), jnp.where(accept, proposed, log_likelihoods)), None

    start = (particles.z[:, chosen], particles.log_likelihoods[chosen])
    z, log_likelihoods = (
        jax.lax.scan(step, start, jr.split(key_moves, moves))[0] if moves else start
    )
    return ParameterParticles(z, jnp.full(M, -math.log(M), z.dtype), log_likelihoods)


def move_degenerate(
    task: Task,
    particles: ParameterParticles,
    ys: Float[Array, "N T dy"],
    xis: Float[Array, "N T dx"],
    steps: Int[Array, ""],
    seeds: UInt32[Array, "N 2"],
    *,
    moves: int,
    threshold: float | Scalar,
) -> tuple[ParameterParticles, Bool[Array, " N"], Bool[Array, ""]]:
    """Move the particles of those of N trajectories that need it; which did, and whether those of
    any are now a single point.

    Most trajectories need no moves at most steps, and moves are nearly all of the work, so this is
    a loop over chunks of those that do. (Under `vmap`, a condition would compute them for all.)"""
    N, M = particles.log_weights.shape
    needs = normalised_sample_size(particles.log_weights) < threshold * M
    count, chunk = needs.sum(dtype=jnp.int32), min(CHUNK, N)
    order = jnp.concatenate(
        [jnp.argsort(~needs).astype(jnp.int32), jnp.full(-N % chunk, N, jnp.int32)]
    )
    moving = jax.vmap(lambda p, y, xi, seed: move(task, p, y, xi, steps, moves, seed))

    def body(carry: tuple[Array, ParameterParticles]) -> tuple[Array, ParameterParticles]:
        first, particles = carry
        lanes = jax.lax.dynamic_slice(order, (first,), (chunk,))
        lanes = jnp.where(first + jnp.arange(chunk, dtype=jnp.int32) < count, lanes, N)
        taken = jax.tree.map(lambda a: a.at[lanes].get(mode="clip"), (particles, ys, xis, seeds))
        # Lanes past the end are computed and dropped.
        return first + chunk, jax.tree.map(
            lambda a, b: a.at[lanes].set(b, mode="drop"), particles, moving(*taken)
        )

    start = (jnp.zeros((), jnp.int32), particles)
    _, particles = jax.lax.while_loop(lambda carry: carry[0] < count, body, start)
    collapsed = jnp.all(particles.z.max(-1) == particles.z.min(-1), axis=-1)
    return particles, needs, jnp.any(collapsed & needs)


def ibis(
    task: Task,
    ys: Float[Array, "N T dy"],
    xis: Float[Array, "N T dx"],
    *,
    particles: int,
    moves: int = 3,
    threshold: float | Scalar = 0.75,
    key: PRNGKeyArray,
) -> Filtered:
    """Particles of p(θ | y_{1:T}, ξ_{1:T}) and estimates of log p(y_{1:T} | ξ_{1:T}) for N
    histories.
    """
    require_data_states(task, "IO-SMC²", fix=USE_ANOTHER)
    N, T = ys.shape[:2]
    seeds = jr.bits(key, (T + 1, N, 2), jnp.uint32)

    def step(carry: Filtered, data: tuple[Array, Array]) -> tuple[Filtered, None]:
        t, seed = data
        states = jax.vmap(lambda y: task.state_before(y, t))(ys)
        increments = jax.vmap(functools.partial(log_increments, task))(
            carry.particles, ys[:, t], states, xis[:, t]
        )
        cloud, log_evidence, _ = jax.vmap(reweigh)(carry.particles, increments)
        cloud, moved, _ = move_degenerate(
            task, cloud, ys, xis, t + 1, seed, moves=moves, threshold=threshold
        )
        total = carry.moves + (t + 1) * moved.astype(jnp.int32)
        return Filtered(cloud, carry.log_evidence + log_evidence, total), None

    start = jax.vmap(lambda seed: start_particles(task, particles, seed))(seeds[0])
    empty = Filtered(start, jnp.zeros(N), jnp.zeros(N, jnp.int32))
    return jax.lax.scan(step, empty, (jnp.arange(T, dtype=jnp.int32), seeds[1:]))[0]


def _history(
    task: Task,
    z: Float[Array, "k M"],
    ys: Float[Array, "T dy"],
    xis: Float[Array, "T dx"],
    steps: Int[Array, ""],
) -> Float[Array, " M"]:
    """log p(y_{1:steps} | ξ_{1:steps}, θ_m): a loop to `steps`, not to T."""
    thetas = _thetas(task, z)
    states = task.states_before(ys)

    def add(s: Array, total: Array) -> Array:
        return total + _log_probs(task, thetas, ys[s], jax.tree.map(lambda a: a[s], states), xis[s])

    return jax.lax.fori_loop(jnp.zeros_like(steps), steps, add, jnp.zeros(z.shape[1], z.dtype))


def _thetas(task: Task, z: Float[Array, "k M"]) -> Float[Array, "k M"]:
    return jax.vmap(task.prior.from_latent, in_axes=1, out_axes=1)(z)


def _log_probs(
    task: Task,
    thetas: Float[Array, "k M"],
    y: Float[Array, " dy"],
    state: State,
    xi: Float[Array, " dx"],
) -> Float[Array, " M"]:
    return jax.vmap(task.log_prob, in_axes=(None, 1, None, None))(y, thetas, state, xi)


def _key(seed: UInt32[Array, " 2"]) -> Key[Array, ""]:
    return jr.wrap_key_data(seed, impl="threefry2x32")
