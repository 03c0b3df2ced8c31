"""Posterior of θ by adaptive tempered sequential Monte Carlo, in the latent coordinates z of the
prior, θ = f(z).

    π_λ(z) ∝ N(z; 0, I) p(y_{1:T} | ξ_{1:T}, f(z))^λ,   0 = λ_0 < λ_1 < … = 1

A level picks the largest λ that keeps the effective sample size of the increment above a share of
the particles, resamples, and moves every particle by several Metropolis steps that leave π_λ
unchanged. The product of the mean increments estimates the marginal likelihood. blackjax supplies
the level, its root finder and the Metropolis kernel; this is the only module that knows of it, and
imports it when it is needed: most runs never do.

Moves are differential: z' = z + γ (z_a − z_b) + jitter, with a, b drawn from the particles as they
were resampled. The differences within a mode have that mode's size and shape, those between modes
lead from one to the other, so no covariance has to be fitted to a posterior that may be a ring or
have several modes. Each particle keeps its log-likelihood, so a move costs one likelihood of the
history and nothing else does: N T (1 + levels · moves) NLE in all.

When wrong: modes that no particle found at a low λ stay unfound; with few particles (below some
hundreds) the adaptation biases evidence and posterior by O(1/N); and if no particle of the start
can have made the data at all, everything is NaN."""

import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, PRNGKeyArray, Scalar

from scorebed.errors import require
from scorebed.inference.resampling import systematic_resample
from scorebed.rollout import log_likelihoods, step_log_likelihoods
from scorebed.tasks.base import Task, require_data_states

PARTICLES = 1024
MOVES = 8
TARGET = 0.5
LEVELS = 64
# Of the moves, this share has γ = 1, which leads from mode to mode; the others spread γ over three
# octaves below 2.38/√(2k), the best step for a Gaussian, because rings and narrow modes want
# smaller ones.
JUMPS = 0.25
SCALES = 3.0
JITTER = 0.02


class SMCPosterior(eqx.Module):
    """N equally weighted posterior particles and the record of how they came about. A `vmap` over
    histories adds an axis.

    `ladder` holds λ after each level and `acceptance` the share of accepted moves there, NaN past
    the last level. A `ladder_ess` far below the target share means that `levels` ran out and the
    last jump was forced."""

    z: Float[Array, "N k"]
    theta: Float[Array, "N k"]
    log_evidence: Scalar
    ladder: Float[Array, " levels"]
    ladder_ess: Float[Array, " levels"]
    acceptance: Float[Array, " levels"]
    passes: Int[Array, ""]
    steps: Int[Array, ""]

    @property
    def weights(self) -> Float[Array, "*b N"]:
        """1/N each: the last level resamples."""
        return jnp.full(self.z.shape[:-1], 1 / self.z.shape[-2], self.z.dtype)

    @property
    def nle(self) -> int:
        """Likelihood evaluations of the algorithm, exact and over all histories of a batch; not
        inside compiled code.

        Levels that a batch computes for a history that is done already are not counted.
        """
        passes = np.asarray(self.passes, np.int64) * np.asarray(self.steps, np.int64)
        return int(passes.sum()) * self.z.shape[-2]


class _Particles(NamedTuple):
    """Latent positions with their cached log-likelihoods: of the earlier data, and of the new
    data.
    """

    z: Float[Array, "*N k"]
    known: Float[Array, "*N"]
    new: Float[Array, "*N"]


def tempered_smc(
    task: Task,
    ys: Float[Array, "T dy"],
    xis: Float[Array, "T dx"],
    *,
    particles: int = PARTICLES,
    moves: int = MOVES,
    target: float = TARGET,
    levels: int = LEVELS,
    key: PRNGKeyArray,
) -> SMCPosterior:
    """Particles from p(θ | y_{1:T}, ξ_{1:T}), starting from the prior; `log_evidence` estimates log
    p(y_{1:T} | ξ_{1:T}).
    """

    def evaluate(z: Float[Array, "N k"]) -> _Particles:
        theta = jax.vmap(task.prior.from_latent)(z)
        return _Particles(z, jnp.zeros(len(z), z.dtype), log_likelihoods(task, theta, ys, xis))

    require_settings(particles, moves, target, levels)
    key_start, key_levels = jr.split(key)
    z = jr.normal(key_start, (task.prior.dim * particles,), ys.dtype).reshape(-1, particles).T
    steps = jnp.asarray(len(ys))
    return _temper(
        task, evaluate, z, steps, moves=moves, target=target, levels=levels, key=key_levels
    )


def update_smc(
    task: Task,
    z: Float[Array, "N k"],
    ys: Float[Array, "T dy"],
    xis: Float[Array, "T dx"],
    *,
    known: int | Int[Array, ""],
    observed: int | Int[Array, ""],
    moves: int = MOVES,
    target: float = TARGET,
    levels: int = LEVELS,
    key: PRNGKeyArray,
) -> SMCPosterior:
    """Carry equally weighted particles `z` from p(θ | h_known) to p(θ | h_observed); known = 0
    means the prior.

    Only the steps known < t ≤ observed are tempered, so a single new outcome takes a level or two.
    `log_evidence` is that of the new outcomes given the known ones. Rows of the history past
    `observed` are padding and may hold anything: with a fixed T, one compiled function serves a
    whole experiment. N · observed · (1 + levels · moves) NLE."""
    require_data_states(task, "updating particles", fix="use tempered_smc.")
    require_settings(len(z), moves, target, levels)
    t = jnp.arange(len(ys))[:, None]
    # Padding is replaced before it meets the likelihood, not after: 0 · NaN is NaN.
    ys, xis = jnp.where(t < observed, ys, 0), jnp.where(t < observed, xis, 0)

    def evaluate(z: Float[Array, "N k"]) -> _Particles:
        each = step_log_likelihoods(task, jax.vmap(task.prior.from_latent)(z), ys, xis)
        each = jnp.where(jnp.isnan(each), -jnp.inf, each)  # the model overflows there
        before, after = t < known, (t >= known) & (t < observed)
        return _Particles(z, jnp.where(before, each, 0).sum(0), jnp.where(after, each, 0).sum(0))

    steps = jnp.asarray(observed)
    return _temper(task, evaluate, z, steps, moves=moves, target=target, levels=levels, key=key)


class _Loop(NamedTuple):
    """What a level hands to the next."""

    level: Int[Array, ""]
    particles: _Particles
    temperature: Scalar
    log_evidence: Scalar
    ladder: Float[Array, "3 levels"]


def _temper(
    task: Task,
    evaluate: Callable[[Float[Array, "N k"]], _Particles],
    z: Float[Array, "N k"],
    steps: Int[Array, ""],
    *,
    moves: int,
    target: float,
    levels: int,
    key: PRNGKeyArray,
) -> SMCPosterior:
    """Raise λ from 0 to 1."""
    from blackjax.smc import base, ess, solver

    def level(loop: _Loop) -> _Loop:
        last = loop.level == levels - 1
        new = loop.particles.new
        # Relative to the largest: the effective sample size is a difference of two sums that would
        # drown in a constant.
        relative = jnp.maximum(new - new.max(), jnp.finfo(new.dtype).min / 4)
        left = 1 - loop.temperature
        delta = ess.ess_solver(lambda values: values, relative, target, left, solver.dichotomy)
        # Particles of likelihood zero may leave no increment that is small enough; the least one
        # drops them.
        delta = jnp.where(last, left, jnp.clip(delta, 1e-12, left))
        log_weights = delta * relative
        log_total = jax.nn.logsumexp(log_weights)
        weights = jnp.exp(log_weights - log_total)
        temperature = jnp.where(delta >= left, 1.0, loop.temperature + delta).astype(new.dtype)
        key_step, key_moves = jr.split(jr.fold_in(key, loop.level))
        state, info = base.step(
            key_step,
            base.SMCState(loop.particles, weights, None),
            functools.partial(_move, evaluate, temperature, moves, key_moves),
            lambda particles: jnp.zeros_like(particles.new),
            systematic_resample,
        )
        record = jnp.stack([temperature, 1 / (weights**2).sum(), info.update_info])
        log_evidence = loop.log_evidence + log_total - math.log(len(z)) + delta * new.max()
        ladder = loop.ladder.at[:, loop.level].set(record)
        return _Loop(loop.level + 1, state.particles, temperature, log_evidence, ladder)

    def unfinished(loop: _Loop) -> Bool[Array, ""]:
        return (loop.temperature < 1) & (loop.level < levels)

    zero = jnp.zeros((), z.dtype)
    start = _Loop(jnp.asarray(0), evaluate(z), zero, zero, jnp.full((3, levels), jnp.nan, z.dtype))
    end = jax.lax.while_loop(unfinished, level, start)
    theta = jax.vmap(task.prior.from_latent)(end.particles.z)
    ladder, ladder_ess, acceptance = end.ladder
    passes = 1 + end.level * moves
    return SMCPosterior(
        end.particles.z, theta, end.log_evidence, ladder, ladder_ess, acceptance, passes, steps
    )


def _move(
    evaluate: Callable[[Float[Array, "N k"]], _Particles],
    temperature: Scalar,
    moves: int,
    key: PRNGKeyArray,
    keys: Key[Array, " N"],
    particles: _Particles,
    parameters: None,
) -> tuple[_Particles, Scalar]:
    """Metropolis steps of all particles, and the share that was accepted."""
    from blackjax.mcmc.random_walk import RWState, build_rmh

    del keys, parameters  # blackjax makes a key per particle, for moves that are written for one
    metropolis = build_rmh()
    others = particles.z
    n, k = others.shape
    jitter = JITTER * others.std(0)

    def density(particle: _Particles) -> Scalar:
        return -0.5 * (particle.z**2).sum() + particle.known + temperature * particle.new

    def propose(z: Float[Array, "N k"], key: PRNGKeyArray) -> Float[Array, "N k"]:
        # One long row of numbers: a draw with a short last axis takes XLA four times as long to
        # compile.
        pick_a, pick_b, jump, scale, *noise = jr.uniform(key, ((4 + k) * n,), z.dtype).reshape(
            4 + k, n
        )
        a, b = (jnp.minimum(n * pick, n - 1).astype(int) for pick in (pick_a, pick_b))
        gamma = jnp.where(jump < JUMPS, 1, 2.38 / math.sqrt(2 * k) * jnp.exp2(-SCALES * scale))
        return z + gamma[:, None] * (others[a] - others[b]) + jitter * (2 * jnp.stack(noise, 1) - 1)

    def accept(
        key: PRNGKeyArray, particle: _Particles, proposal: _Particles
    ) -> tuple[_Particles, Array]:
        state, info = metropolis(
            key, RWState(particle, density(particle)), density, lambda *_: proposal
        )
        return state.position, info.is_accepted

    def move(particles: _Particles, key: PRNGKeyArray) -> tuple[_Particles, Scalar]:
        keys = jr.split(key, n + 1)
        proposals = evaluate(propose(particles.z, keys[n]))
        particles, accepted = jax.vmap(accept)(keys[:n], particles, proposals)
        return particles, accepted.mean(dtype=others.dtype)

    particles, rates = jax.lax.scan(move, particles, jr.split(key, moves))
    return particles, rates.mean()


def require_settings(particles: int, moves: int, target: float, levels: int) -> None:
    """Refuse settings under which no ladder can be climbed."""
    require(
        particles >= 2 and moves >= 1 and levels >= 1 and 0 < target < 1,
        "the settings of tempered SMC",
        got=f"particles={particles}, moves={moves}, target={target}, levels={levels}",
        expected="at least two particles, one move and one level, and a target between 0 and 1",
        fix="leave them out for 1024, 8, 0.5 and 64.",
    )
