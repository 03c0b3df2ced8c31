"""Bounds of the expected information gain by sequential Monte Carlo from both sides (Grosse et al.,
2015), for posteriors that no proposal density describes, such as that of ten sources.

For a history (y, ξ) of parameters θ_0 = f(z_0), particles are annealed from a normalised density
b(z) to the posterior:

    π_λ(z) ∝ b(z) e^{λ G(z)},   G(z) = log N(z; 0, I) p(y | f(z), ξ) / b(z),   λ_l = (l/L)²

A level resamples if weights have become uneven, moves every particle by steps that leave π_λ as it
is, and multiplies its weight by e^{(λ_l − λ_{l−1}) G}. The product of the means of the weights, Ẑ,
estimates the marginal likelihood p(y|ξ).

**Upper.** Ẑ of such a run is unbiased, so that E[log Ẑ] ≤ log p(y|ξ), and log p(y|θ_0,ξ)/Ẑ is an
upper bound on average.

**Lower.** Given the history, z_0 is a draw of the posterior. A path to it is made backwards, from
level L to level 1, by the same moves, which are reversible; then a second run keeps that path as
its first particle, whatever is resampled. The law of all its particles is Ẑ/p(y|ξ) times that of a
run that keeps none, so that E[1/Ẑ] = 1/p(y|ξ) and E[log Ẑ] ≥ log p(y|ξ).

Both need a ladder and moves that are made from the history alone: nothing adapts to the particles.
Neither needs good moves: poor ones make the bounds wide, not wrong. With L = 1 these are importance
bounds, with particles for draws.

For more exchangeable blocks than can be ordered, b(z) = Π_k g(z_k) with g from
`inference/blocks.py`; for any other task it is the proposal of its importance bounds. A step moves
one part z_k, to a draw of g or to √(1−β²) z_k + β ε with β down to 2⁻⁶."""

import math
from collections.abc import Callable
from typing import ClassVar, NamedTuple, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jax.tree_util import Partial
from jaxtyping import Array, Float, Int, PRNGKeyArray, Scalar

from scorebed.bounds.base import Bound, Bounds, OnGroup, require_density, silent, size
from scorebed.bounds.grouped import bounds_by_groups
from scorebed.bounds.importance import (
    OUTER,
    TrajectoryBounds,
    TrajectoryGroups,
    usual_proposal,
)
from scorebed.errors import require
from scorebed.inference.blocks import block_density, exchangeable_blocks
from scorebed.inference.gaussian_mixture import Density, standard_normal_log_prob
from scorebed.inference.resampling import effective_sample_size, multinomial_resample
from scorebed.policies.base import Policy
from scorebed.rollout import log_likelihood, log_likelihoods
from scorebed.tasks.base import Task
from scorebed.tasks.nuisance import refuse_nuisance

GROUP = 64  # trajectories at once: a move is so little work that fewer leave a CPU waiting
PARTICLES = 64
LEVELS = 512
MOVES = 4
UNEVEN = 0.5  # effective particles, as a share of all, below which they are resampled
DRAWS = 0.7  # of the moves; the others are steps of all sizes
OCTAVES = 6.0


class Start(NamedTuple):
    """b(z) = Π_k g(z_k) over equal parts of z, and how many likelihoods of the history it
    took.
    """

    density: Density
    parts: int
    histories: Int[Array, ""]


# (task, ys, xis, *, key) → Start. It is never given the parameters that made the history.
Begin: TypeAlias = Callable[..., Start]


def smc_bounds(
    task: Task,
    policy: Policy,
    *,
    outer: int = OUTER,
    inner: int = PARTICLES,
    levels: int = LEVELS,
    moves: int = MOVES,
    begin: Begin | None = None,
    on_group: OnGroup = silent,
    key: PRNGKeyArray,
) -> Bounds:
    """Bounds by sequential Monte Carlo from both sides: two runs of particles per trajectory.

    (2 · inner + 1) · (1 + levels · moves) · T NLE a trajectory, and what the start takes;
    particles, levels and moves are worth about the same for the likelihoods they take. The n-th
    trajectory depends on `key` and n alone. It is that of importance bounds up to rounding, which a
    policy that searches as it goes (`modes`) may turn into another experiment.

    Arguments:
        task: the experiment, with a density and no nuisance parameters.
        policy: the policy whose designs are judged.
        outer: number of trajectories, N.
        inner: particles of each run.
        levels: levels from the start to the posterior; more make the bounds tighter.
        moves: Metropolis steps at each level.
        begin: makes the density that particles start from, `begin(task, ys, xis, *, key)`;
            `usual_start` if left out.
        on_group: called with the number of groups done and of all groups.
        key: the random key.

    Returns:
        `Bounds` in nats.

    Raises:
        NoDensityError: if the task has no density.
        InvalidValueError: if the task has nuisance parameters, or a size is too small.

    Example:
        >>> many = sb.make_task("location-finding", sources=5, horizon=2)
        >>> designs = sb.make_policy("static", many, key=jr.key(0))
        >>> found = sb.smc_bounds(many, designs, outer=2, inner=4, levels=2, key=jr.key(1))
        >>> found.inner
        4
    """
    groups = smc_groups(task, outer, inner, levels, moves, begin or usual_start)
    return bounds_by_groups(groups, policy, on_group=on_group, key=key)


def smc_groups(
    task: Task, outer: int, inner: int, levels: int, moves: int, begin: Begin
) -> TrajectoryGroups:
    """The same as groups."""
    require(
        outer >= 2 and inner >= 2 and levels >= 1 and moves >= 1,
        "the size of a bound by SMC",
        got=f"outer={outer}, inner={inner}, levels={levels}, moves={moves}",
        expected="at least two trajectories and particles, and one level and move",
        fix=f"{OUTER}, {PARTICLES}, {LEVELS} and {MOVES} are usual.",
    )
    require_annealing(task)
    of_one = Partial(
        smc_trajectory_bounds,
        task,
        begin=begin,
        particles=inner,
        levels=levels,
        moves=moves,
    )
    return TrajectoryGroups(task, of_one, outer, inner, GROUP)


def require_annealing(task: Task) -> None:
    """Refuse a task that SMC bounds are not for: without a density, or with nuisance parameters."""
    require_density(task, "bounds by SMC")
    refuse_nuisance(task, "bounds by SMC", "use contrastive bounds.")


class SMC(Bound):
    """Particles annealed to the posterior from both sides: tight for any number of exchangeable
    blocks.
    """

    name: ClassVar[str] = "smc"

    outer: int = eqx.field(static=True, default=OUTER)
    """Number of trajectories, N."""
    inner: int = eqx.field(static=True, default=PARTICLES)
    """Number of particles of each run."""
    levels: int = eqx.field(static=True, default=LEVELS)
    """Number of levels from the start to the posterior; more make the bounds tighter."""
    moves: int = eqx.field(static=True, default=MOVES)
    """Metropolis steps at each level."""

    def __call__(
        self,
        task: Task,
        policy: Policy,
        *,
        outer: int | None = None,
        inner: int | None = None,
        on_group: OnGroup = silent,
        key: PRNGKeyArray,
    ) -> Bounds:
        return smc_bounds(
            task,
            policy,
            outer=size(outer, self.outer),
            inner=size(inner, self.inner),
            levels=self.levels,
            moves=self.moves,
            on_group=on_group,
            key=key,
        )

    def grouped(
        self, task: Task, *, outer: int | None = None, inner: int | None = None
    ) -> TrajectoryGroups:
        n, m = size(outer, self.outer), size(inner, self.inner)
        return smc_groups(task, n, m, self.levels, self.moves, usual_start)

    def supports(self, task: Task) -> None:
        require_annealing(task)

    def nle(self, task: Task, outer: int, inner: int) -> int | None:
        """Exact where the start takes no likelihood: with more blocks than can be ordered."""
        if task.can_order_blocks:
            return None
        return outer * (2 * inner + 1) * (1 + self.levels * self.moves) * task.horizon


def usual_start(
    task: Task, ys: Float[Array, "T dy"], xis: Float[Array, "T dx"], *, key: PRNGKeyArray
) -> Start:
    """The proposal of importance bounds, or for many exchangeable blocks the density of one."""
    if not task.can_order_blocks:
        return Start(block_density(task, ys, xis), exchangeable_blocks(task), jnp.zeros((), int))
    density, histories = usual_proposal(task, ys, xis, key=key)
    return Start(density, 1, histories)


def smc_trajectory_bounds(
    task: Task,
    z: Float[Array, " k"],
    ys: Float[Array, "T dy"],
    xis: Float[Array, "T dx"],
    *,
    begin: Begin,
    particles: int,
    levels: int,
    moves: int,
    key: PRNGKeyArray,
) -> TrajectoryBounds:
    """Bounds of a history that the latent z made; `saturated` if its path is once more than half of
    all weight.
    """
    key_start, key_free, key_path, key_kept = jr.split(key, 4)
    density, parts, histories = begin(task, ys, xis, key=key_start)
    annealing = Annealing(task, ys, xis, density, parts, levels, moves)
    free = annealing.run(particles, None, key=key_free)
    kept = annealing.run(particles, annealing.path_to(z, key=key_path), key=key_kept)
    log_p0 = log_likelihood(task, task.prior.from_latent(z), ys, xis)
    evaluations = (2 * particles + 1) * (1 + levels * moves)
    return TrajectoryBounds(
        log_p0 - kept.log_evidence,
        log_p0 - free.log_evidence,
        log_p0 - kept.alone,
        kept.crowded,
        histories + evaluations,
    )


class AnnealedParticles(NamedTuple):
    """Positions, log g(z_k) of their parts, and G(z); a path has an axis for its levels in front of
    all.

    The particles are the last axis: many short vectors next to each other are what a compiler is
    fast with."""

    z: Float[Array, "... k N"]
    parts: Float[Array, "... K N"]
    gain: Float[Array, "... N"]


class AnnealedRun(NamedTuple):
    """log Ẑ, what it would be were the first particle alone, and whether that ever had more than
    half of the weight.
    """

    log_evidence: Scalar
    alone: Scalar
    crowded: Array


class _State(NamedTuple):
    particles: AnnealedParticles
    log_weights: Float[Array, " N"]
    run: AnnealedRun


class Annealing(eqx.Module):
    """From b to the posterior of one history."""

    task: Task
    ys: Float[Array, "T dy"]
    xis: Float[Array, "T dx"]
    density: Density
    parts: int = eqx.field(static=True)
    levels: int = eqx.field(static=True)
    moves: int = eqx.field(static=True)

    @property
    def ladder(self) -> Float[Array, " _"]:
        """λ_0 … λ_L."""
        return (jnp.arange(self.levels + 1, dtype=self.ys.dtype) / self.levels) ** 2

    def run(self, count: int, path: AnnealedParticles | None, *, key: PRNGKeyArray) -> AnnealedRun:
        """`count` particles through all levels, of which the first follows a path, if there
        is one.
        """
        key_start, key_levels = jr.split(key)
        keys = jr.split(key_start, (count, self.parts))
        z = jax.vmap(jax.vmap(lambda key: self.density.sample(key=key)))(keys).reshape(count, -1).T
        zero = jnp.zeros((), self.ys.dtype)
        start = _State(
            self._evaluate(z), jnp.zeros(count, self.ys.dtype), AnnealedRun(zero, zero, zero > 0)
        )

        def level(
            state: _State, given: tuple[PRNGKeyArray, Scalar, Scalar, AnnealedParticles | None]
        ) -> tuple[_State, None]:
            key, before, after, kept = given
            key_resample, key_move = jr.split(key)
            uneven = effective_sample_size(state.log_weights) < UNEVEN * count
            picks = jnp.where(
                uneven, _resample(state.log_weights, key=key_resample), jnp.arange(count)
            )
            run = jax.tree.map(
                lambda new, old: jnp.where(uneven, new, old), _gathered(state), state.run
            )
            log_weights = jnp.where(uneven, 0, state.log_weights)
            particles = self._move(
                jax.tree.map(lambda row: row[..., picks], state.particles), before, key=key_move
            )
            if kept is not None:
                particles = jax.tree.map(
                    lambda row, pinned: row.at[..., :1].set(pinned), particles, kept
                )
            return _State(particles, log_weights + (after - before) * particles.gain, run), None

        ladder = self.ladder
        given = (jr.split(key_levels, self.levels), ladder[:-1], ladder[1:], path)
        return _gathered(jax.lax.scan(level, start, given)[0])

    def path_to(self, z: Float[Array, " k"], *, key: PRNGKeyArray) -> AnnealedParticles:
        """Where a particle was at every level that ended at z, a draw of the posterior: made
        backwards by the same moves.
        """

        def back(
            particles: AnnealedParticles, given: tuple[PRNGKeyArray, Scalar]
        ) -> tuple[AnnealedParticles, AnnealedParticles]:
            key, temperature = given
            return self._move(particles, temperature, key=key), particles

        steps = (jr.split(key, self.levels), self.ladder[:-1])
        return jax.lax.scan(back, self._evaluate(z[:, None]), steps, reverse=True)[1]

    def _evaluate(self, z: Float[Array, "k N"]) -> AnnealedParticles:
        parts = jax.vmap(jax.vmap(self.density.log_prob, 1))(z.reshape(self.parts, -1, z.shape[1]))
        return AnnealedParticles(z, parts, self._log_joint(z) - parts.sum(0))

    def _log_joint(self, z: Float[Array, "k N"]) -> Float[Array, " N"]:
        """log N(z; 0, I) p(y | f(z), ξ)."""
        theta = jax.vmap(self.task.prior.from_latent, 1)(z)
        return _log_prior(z) + log_likelihoods(self.task, theta, self.ys, self.xis)

    def _move(
        self, particles: AnnealedParticles, temperature: Scalar, *, key: PRNGKeyArray
    ) -> AnnealedParticles:
        """Metropolis steps of one part at a time, reversible with respect to π_λ."""
        k, n = particles.z.shape
        d = k // self.parts
        draw = jax.vmap(lambda key: self.density.sample(key=key), out_axes=1)

        def move(now: AnnealedParticles, key: PRNGKeyArray) -> tuple[AnnealedParticles, None]:
            key_draw, key_normal, key_uniform = jr.split(key, 3)
            octave, which, kind, test = jr.uniform(key_uniform, (4 * n,), now.z.dtype).reshape(4, n)
            moved = (self.parts * which).astype(int) == jnp.arange(self.parts)[:, None]
            parts = now.z.reshape(self.parts, d, n)
            old = jnp.where(moved[:, None], parts, 0).sum(0)
            # A step that keeps the prior of its part as it is.
            beta = jnp.exp2(-OCTAVES * octave)
            step = jnp.sqrt(1 - beta**2) * old + beta * jr.normal(
                key_normal, (d * n,), old.dtype
            ).reshape(d, n)
            drawn = kind < DRAWS
            new = jnp.where(drawn, draw(jr.split(key_draw, n)), step)
            z = jnp.where(moved[:, None], new, parts).reshape(k, n)
            log_g = jnp.where(moved, jax.vmap(self.density.log_prob, 1)(new), now.parts)
            there = AnnealedParticles(z, log_g, self._log_joint(z) - log_g.sum(0))
            # log π_λ(z')/π_λ(z), minus the log proposal ratio: of g, or of the prior.
            ratio = jnp.where(
                drawn, 0, (log_g - now.parts).sum(0) - _log_prior(new) + _log_prior(old)
            )
            heat = jnp.where(temperature > 0, temperature * (there.gain - now.gain), 0)
            accepted = jnp.log(test) < heat + ratio
            return jax.tree.map(lambda a, b: jnp.where(accepted, a, b), there, now), None

        return jax.lax.scan(move, particles, jr.split(key, self.moves))[0]


def _log_prior(z: Float[Array, "k N"]) -> Float[Array, " N"]:
    return jax.vmap(standard_normal_log_prob, 1)(z)


def _resample(log_weights: Float[Array, " N"], *, key: PRNGKeyArray) -> Int[Array, " N"]:
    """Multinomial: the only scheme under which pinning the first particle stays valid."""
    weights = jnp.exp(log_weights - log_weights.max())
    return multinomial_resample(key, weights, len(weights))


def _gathered(state: _State) -> AnnealedRun:
    """The estimate with the weights that are still to be counted."""
    n = len(state.log_weights)
    total = jax.nn.logsumexp(state.log_weights)
    first = state.log_weights[0]
    return AnnealedRun(
        state.run.log_evidence + total - math.log(n),
        state.run.alone + first - math.log(n),
        state.run.crowded | (first - total > math.log(0.5)),
    )
