"""Looking one step ahead where outcomes are finitely many: the design whose outcome is expected to
tell most about particles of the posterior.

    I(ξ) = H(Σ_s w_s p(· | z_s, ξ)) − Σ_s w_s H(p(· | z_s, ξ))

Outcomes are enumerated, so I is exact for the particles, of which S are carried from step to step
as in `policies/lookahead.py`. Candidates are designs from all over the space, those around the last
design, and then those around the best so far, by distances of all sizes: after twenty answers a
posterior may be a thousandth as wide as the prior. Where all designs come from short lists, every
one of them is a candidate, and no other.

Nothing is trained and nothing is random: equal histories lead to equal designs.

For independent steps. Cost in NLE: S (1 + levels · moves · t) for the particles after t steps, and
S for every candidate. When wrong: nothing beyond the next step is seen; with tens of parameters S
particles are a poor posterior."""

import itertools
import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, Scalar

from scorebed.errors import InvalidValueError, require
from scorebed.inference.resample_move import (
    Cloud,
    after_outcome,
    parts_of,
    prior_cloud,
    prior_points,
    spread_normals,
    thetas_of,
    update_nle,
)
from scorebed.policies.base import Policy
from scorebed.tasks.base import Task, frozen
from scorebed.tasks.spaces import Space

MOVES = 4  # for every part of a particle
SPREAD = 1.5  # of designs from all over an unbounded space, in its units
NEAREST, FARTHEST = -6.0, 0.5  # log distance of candidates from a design, in units of the space
ANY_NAME = 10.0  # size of a step among names: larger than the preference of one that was chosen
EVERY = 1024  # designs: from lists that have no more of them together all are candidates
GROUP = 16  # outcomes of candidates at once


class DiscreteLookaheadMemory(eqx.Module):
    """The history, in arrays whose shapes do not change with t, and the particles."""

    ys: Float[Array, "T dy"]
    xis: Float[Array, "T dx"]
    steps: Int[Array, ""]
    cloud: Cloud


class DiscreteLookahead(Policy):
    """Designs by looking one step ahead, for finitely many outcomes. Deterministic; nothing is
    trained.

    Arguments:
        task: the experiment.
        particles: of the posterior, S.
        levels: levels of an update of the particles.
        moves: Metropolis moves of a level; 4 for every part of a particle if left out.
        candidates: designs in each round.
        rounds: rounds around the best design so far. One goes before them around the last design,
            and four all over the space.
    """

    task: Task
    base: Float[Array, "k S"]
    wide: Float[Array, "W C f"]
    near: Float[Array, "rounds C f"]
    options: Float[Array, "n dx"] | None
    levels: int = eqx.field(static=True)
    moves: int = eqx.field(static=True)

    def __init__(
        self,
        task: Task,
        *,
        particles: int = 512,
        levels: int = 3,
        moves: int | None = None,
        candidates: int = 32,
        rounds: int = 3,
        key: PRNGKeyArray,
    ):
        del key  # the same designs for all keys
        self.task = _independent(task)
        moves = MOVES * parts_of(task) if moves is None else moves
        require(
            min(levels, moves, rounds) >= 1 and min(particles, candidates) >= 8,
            "the sizes of the policy 'lookahead'",
            got=f"{particles=}, {levels=}, {moves=}, {candidates=}, {rounds=}",
            expected="at least 8 particles and candidates, one level, one move and one round",
            fix="leave them out for the usual ones.",
        )
        space = task.designs
        self.base = jnp.asarray(prior_points(task, particles))
        self.options = _all_designs(space)
        self.wide = _everywhere(space, 4 * candidates).reshape(4, candidates, -1)
        self.near = _steps(space, rounds + 1, candidates)
        self.levels, self.moves = levels, moves

    def sample_noise(self, horizon: int, *, key: PRNGKeyArray) -> Float[Array, "T 0"]:
        del key
        return jnp.zeros((horizon, 0))

    def init(self) -> DiscreteLookaheadMemory:
        task, dtype = self.task, self.base.dtype
        return DiscreteLookaheadMemory(
            ys=jnp.zeros((task.horizon, task.outcome_dim), dtype),
            xis=jnp.zeros((task.horizon, task.designs.dim), dtype),
            steps=jnp.zeros((), int),
            cloud=prior_cloud(self.base),
        )

    def design(
        self, memory: DiscreteLookaheadMemory, noise: Float[Array, " 0"]
    ) -> Float[Array, " dx"]:
        del noise
        memory = jax.lax.stop_gradient(memory)
        last = memory.xis[jnp.maximum(memory.steps - 1, 0)]
        started = memory.steps > 0
        u = self.task.designs.unconstrain(jnp.where(started, last, self._middle(last.dtype)))
        return self.search(memory.cloud, u)

    def update(
        self, memory: DiscreteLookaheadMemory, xi: Float[Array, " dx"], y: Float[Array, " dy"]
    ) -> DiscreteLookaheadMemory:
        memory, xi, y = jax.lax.stop_gradient((memory, xi, y))
        t = memory.steps
        ys, xis = memory.ys.at[t].set(y), memory.xis.at[t].set(xi)
        sizes = {"levels": self.levels, "moves": self.moves}
        key = jr.fold_in(jr.key(0), t)
        cloud = after_outcome(frozen(self.task), memory.cloud, ys, xis, t, **sizes, key=key)
        return DiscreteLookaheadMemory(ys, xis, t + 1, cloud)

    @property
    def trainable(self) -> bool:
        return False

    @property
    def max_steps(self) -> int:
        return self.task.horizon

    @property
    def design_nle(self) -> int:
        T, S = self.task.horizon, self.base.shape[1]
        updates = update_nle(T, particles=S, levels=self.levels, moves=self.moves)
        of_rounds = (len(self.wide) + len(self.near)) * self.wide.shape[1]
        return updates + T * S * (of_rounds if self.options is None else len(self.options))

    @property
    def not_exported(self) -> str:
        return "designs that follow from the task's likelihood"

    @property
    def beyond_training(self) -> str:
        return self.short_of_training

    @property
    def short_of_training(self) -> str:
        return "The policy looks one step ahead, whatever the number of steps."

    def search(self, cloud: Cloud, last: Float[Array, " f"]) -> Float[Array, " dx"]:
        """The best candidate one step ahead; `last` is the last design, unconstrained."""
        task, weights, space = frozen(self.task), cloud.weights, self.task.designs
        theta = thetas_of(task, cloud.z)

        def gains(xis: Float[Array, "C dx"]) -> Float[Array, " C"]:
            # In groups: all candidates of a batch of experiments would not fit at once.
            size = max(1, GROUP // task.outcome_count)
            found = jax.lax.map(
                lambda xi: expected_gain(task, theta, weights, xi), xis, batch_size=size
            )
            return jnp.where(jnp.isnan(found), -jnp.inf, found)

        if self.options is not None:
            options = self.options.astype(theta.dtype)
            return options[gains(options).argmax()]

        # One loop, since every further search in the program takes as long to compile again.
        def one_round(best: tuple[Array, Scalar], row: tuple[Array, Array]) -> tuple[Any, None]:
            us = row[1] + jnp.where(row[0], best[0], 0)
            found = gains(space.constrain(us))
            better = found.max() > best[1]
            chosen = jnp.where(better, us[found.argmax()], best[0])
            return (chosen, jnp.where(better, found.max(), best[1])), None

        wide, near = self.wide.astype(theta.dtype), self.near.astype(theta.dtype)
        rows = jnp.concatenate([near[:1], wide, near[1:]])
        around = (jnp.arange(len(rows)) == 0) | (jnp.arange(len(rows)) > len(wide))
        none = last, jnp.full((), -jnp.inf, theta.dtype)
        return space.constrain(jax.lax.scan(one_round, none, (around, rows))[0][0])

    def _middle(self, dtype: Any) -> Float[Array, " dx"]:
        return self.task.designs.constrain(jnp.zeros(self.task.designs.free_dim, dtype))


def expected_gain(
    task: Task, theta: Float[Array, "k S"], weights: Float[Array, " S"], xi: Float[Array, " dx"]
) -> Scalar:
    """I(ξ) for weighted particles, exactly. S NLE."""
    log_p = jax.vmap(lambda theta: task.log_probs(theta, None, xi), in_axes=1)(theta)
    p = jnp.exp(log_p)
    marginal = weights @ p
    tiny = jnp.finfo(p.dtype).tiny
    entropy = -(marginal * jnp.log(jnp.maximum(marginal, tiny))).sum()
    return entropy + weights @ (p * log_p).sum(1)


def _all_designs(space: Space) -> Float[Array, "n dx"] | None:
    """Every design, where all come from lists and together are few."""
    values = [quantity.values for quantity in space.quantities]
    if not 0 < math.prod(map(len, values)) <= EVERY:
        return None
    return jnp.asarray(list(itertools.product(*values)), jnp.result_type(float))


def _everywhere(space: Space, count: int) -> Float[Array, "n f"]:
    """Unconstrained designs from all over the space, spread evenly."""
    if not space.bounded:
        return jnp.asarray(SPREAD * spread_normals(count, space.free_dim))
    from scipy.stats.qmc import Sobol  # which takes longer to import than JAX

    places = Sobol(space.dim, seed=1).random_base2((count - 1).bit_length())[:count]
    return space.unconstrain(space.evenly(jnp.asarray(places, jnp.result_type(float))))


def _steps(space: Space, rounds: int, count: int) -> Float[Array, "rounds C f"]:
    """Normal directions of lengths that differ by orders of magnitude, and none. Every third one
    leads to any name.
    """
    rng, shape = np.random.default_rng(0), (rounds, count, space.free_dim)
    sizes = np.exp(rng.uniform(NEAREST, FARTHEST, (*shape[:-1], 1)))
    found = sizes * rng.normal(size=shape)
    names = [np.full(len(q.labels) or 1, bool(q.labels)) for q in space.quantities]
    of_name = (np.arange(count) % 3 == 1)[:, None] & np.concatenate(names)
    found = np.where(of_name, ANY_NAME * rng.normal(size=shape), found)
    found[:, 0] = 0
    return jnp.asarray(found, jnp.result_type(float))


def _independent(task: Task) -> Task:
    """The task, refused unless its steps are independent and its outcomes finitely many."""
    if task.exchangeable_steps and task.discrete_outcomes and task.has_density:
        return task
    raise InvalidValueError(
        "a task for the policy 'lookahead'",
        got=type(task).__name__,
        expected="Gaussian or finitely many outcomes of independent steps",
        fix="write it as IID with Gaussian or Discrete, or use another policy.",
    )
