"""Conditional SMC over trajectories, the middle layer of IO-SMC² (`training.py` has its equations).

N trajectories pass through an experiment together, each with parameter particles (`ibis.py`). Their
weights, W_t ∝ W_{t−1} exp(η r_t), resample informative ones more often. The reference, if there is
one, takes the first place and survives; with it, drawing the next reference from the final weights
leaves the tempered distribution of trajectories unchanged, however few they are."""

import functools
import math
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, UInt32

from scorebed.baselines.iosmc.ibis import (
    USE_ANOTHER,
    ParameterParticles,
    log_increments,
    move_degenerate,
    reweigh,
    start_particles,
)
from scorebed.baselines.iosmc.settings import IOSMCSettings
from scorebed.inference.resampling import multinomial_resample, normalised_sample_size
from scorebed.policies.base import Memory, StochasticPolicy
from scorebed.rollout import price
from scorebed.tasks.base import State, Task, require_data_states


class Reference(eqx.Module):
    """A trajectory, and the seeds that its particles were started and moved with."""

    ys: Float[Array, "*N T dy"]
    xis: Float[Array, "*N T dx"]
    seeds: UInt32[Array, "*N T_1 2"]


class Faults(eqx.Module):
    """The step (from 1) at which a particle set was first found degenerate; 0 for never."""

    weights: Int[Array, ""]
    collapsed: Int[Array, ""]
    trajectories: Int[Array, ""]


class Swept(eqx.Module):
    """One pass of SMC: N weighted trajectories with their information gains, and what is drawn from
    them.

    `moves` is Σ t over all pairs of a trajectory and a step t that ended in moves and are counted.
    """

    trajectories: Reference
    log_weights: Float[Array, " N"]
    gains: Float[Array, " N"]
    chosen: Int[Array, ""]  # the next reference
    learned: Int[Array, " n"]  # what the policy learns from
    moves: Int[Array, ""]
    faults: Faults

    @property
    def reference(self) -> Reference:
        """The next reference."""
        following: Reference = jax.tree.map(lambda a: a[self.chosen], self.trajectories)
        return following


class _Cloud(NamedTuple):
    """N trajectories in the middle of their experiments."""

    past: Reference
    memory: Memory
    particles: ParameterParticles
    gains: Float[Array, " N"]
    log_weights: Float[Array, " N"]


def sweep(
    task: Task,
    policy: StochasticPolicy,
    settings: IOSMCSettings,
    reference: Reference,
    conditional: Bool[Array, ""],
    *,
    key: PRNGKeyArray,
) -> Swept:
    """N trajectories through an experiment; with `conditional`, the first of them is the
    reference.
    """
    require_data_states(task, "IO-SMC²", fix=USE_ANOTHER)
    N, T = settings.trajectories, task.horizon
    key_start, key_steps, key_chosen, key_learned = jr.split(key, 4)

    def inherit(drawn: Array, given: Array) -> Array:
        return drawn.at[0].set(jnp.where(conditional, given, drawn[0]))

    def resample(cloud: _Cloud, key: PRNGKeyArray) -> _Cloud:
        ancestors = multinomial_resample(key, jnp.exp(cloud.log_weights), N)
        ancestors = inherit(ancestors, jnp.zeros_like(ancestors[0]))
        survivors: _Cloud = jax.tree.map(lambda a: a[ancestors], cloud)
        return survivors._replace(log_weights=jnp.full(N, -math.log(N)))

    def act(
        memory: Memory, particles: ParameterParticles, state: State, key: PRNGKeyArray
    ) -> tuple[Array, Array, Array]:
        """y_t, ξ_t, and the seed of what IBIS does about them."""
        key_design, key_theta, key_outcome, key_seed = jr.split(key, 4)
        xi = policy.design(memory, policy.sample_noise(1, key=key_design)[0])
        (one,) = multinomial_resample(key_theta, jnp.exp(particles.log_weights), 1)
        theta = task.prior.from_latent(particles.z[:, one])
        y = task.outcome(theta, state, xi, jr.normal(key_outcome, (task.outcome_dim,)))
        return y, xi, jr.bits(key_seed, (2,), jnp.uint32)

    def step(
        carry: tuple[_Cloud, Array, Faults], t: Array
    ) -> tuple[tuple[_Cloud, Array, Faults], None]:
        cloud, moves, faults = carry
        key_resample, key_act = jr.split(jr.fold_in(key_steps, t))
        effective = normalised_sample_size(cloud.log_weights)
        cloud = jax.lax.cond(
            effective < settings.outer_threshold * N, resample, lambda c, _: c, cloud, key_resample
        )
        states = jax.vmap(lambda y: task.state_before(y, t))(cloud.past.ys)
        drawn = jax.vmap(act)(cloud.memory, cloud.particles, states, jr.split(key_act, N))
        y, xi, seed = map(
            inherit, drawn, (reference.ys[t], reference.xis[t], reference.seeds[t + 1])
        )
        before = jnp.where(
            t > 0, cloud.past.xis[:, t - 1], task.designs.constrain(jnp.zeros(task.designs.dim))
        )
        past = Reference(
            cloud.past.ys.at[:, t].set(y),
            cloud.past.xis.at[:, t].set(xi),
            cloud.past.seeds.at[:, t + 1].set(seed),
        )
        # One evaluation serves the weights of trajectories and of particles; it is counted for
        # both.
        increments = jax.vmap(functools.partial(log_increments, task))(
            cloud.particles, y, states, xi
        )
        particles, log_evidence, gains = jax.vmap(reweigh)(cloud.particles, increments)
        spent = settings.penalty * ((xi - before) ** 2).sum(1) + jax.vmap(
            lambda xi: price(task, xi[None])
        )(xi)
        log_weights = cloud.log_weights + settings.tempering * (gains - spent)
        log_weights = log_weights - jax.nn.logsumexp(log_weights)
        particles, moved, collapsed = move_degenerate(
            task,
            particles,
            past.ys,
            past.xis,
            t + 1,
            seed,
            moves=settings.moves,
            threshold=settings.inner_threshold,
        )
        counted = moved.at[0].set(moved[0] & ~conditional)
        faults = Faults(
            _first(faults.weights, ~jnp.isfinite(log_evidence).all(), t),
            _first(faults.collapsed, collapsed, t),
            _first(faults.trajectories, ~jnp.isfinite(log_weights.max()), t),
        )
        memory = jax.vmap(policy.update)(cloud.memory, xi, y)
        after = _Cloud(past, memory, particles, cloud.gains + gains, log_weights)
        return (after, moves + (t + 1) * counted.sum(dtype=jnp.int32), faults), None

    seeds = inherit(jr.bits(key_start, (N, 2), jnp.uint32), reference.seeds[0])
    empty = jax.tree.map(lambda a: jnp.zeros((N, *a.shape), a.dtype), reference)
    past = Reference(empty.ys, empty.xis, empty.seeds.at[:, 0].set(seeds))
    memory = jax.tree.map(lambda a: jnp.broadcast_to(a, (N, *a.shape)), policy.init())
    particles = jax.vmap(lambda seed: start_particles(task, settings.particles, seed))(seeds)
    cloud = _Cloud(past, memory, particles, jnp.zeros(N), jnp.full(N, -math.log(N)))
    zero = jnp.zeros((), jnp.int32)
    start = (cloud, zero, Faults(zero, zero, zero))
    (cloud, moves, faults), _ = jax.lax.scan(step, start, jnp.arange(T, dtype=jnp.int32))
    weights = jnp.exp(cloud.log_weights)
    (chosen,) = multinomial_resample(key_chosen, weights, 1)
    learned = multinomial_resample(key_learned, weights, settings.updates * min(settings.batch, N))
    return Swept(cloud.past, cloud.log_weights, cloud.gains, chosen, learned, moves, faults)


def _first(step: Int[Array, ""], now: Bool[Array, ""], t: Int[Array, ""]) -> Int[Array, ""]:
    return jnp.where((step == 0) & now, t + 1, step)
