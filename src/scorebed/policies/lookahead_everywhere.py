"""Looking one step ahead with candidates from all over the space: the design whose outcome is
expected to tell most about particles of the posterior.

    I(ξ) = E[log p(y | z_s, ξ) − log Σ_r w_r p(y | z_r, ξ)],   s ~ w, y ~ p(y | z_s, ξ)

Finitely many outcomes are enumerated, so that I is exact for the particles; of others some dozen
are predicted, by particles in the order of their outcomes and with noise spread evenly over it.
The S particles are carried from step to step as in `policies/lookahead.py`. Candidates are designs
from all over the space, those around the last design, and then those around the best so far, by
distances of all sizes: after twenty outcomes a posterior may be a thousandth as wide as the prior.
Where all designs come from short lists, every one of them is a candidate, and no other.

Nothing is trained and nothing is random: equal histories lead to equal designs.

For independent steps with a density. Cost in NLE: S (1 + levels · moves · t) for the particles
after t steps, and S for every candidate, n times as much with n predicted outcomes. When wrong:
nothing beyond the next step is seen; with tens of parameters S particles are a poor posterior; of
predicted outcomes those that are rarer than one in n are not seen."""

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
from scorebed.policies.lookahead import ordered_noise, quantiles, rough_order
from scorebed.tasks.base import Task, frozen
from scorebed.tasks.spaces import Space

MOVES = 4  # for every part of a particle
SPREAD = 1.5  # of designs from all over an unbounded space, in its units
NEAREST, FARTHEST = -6.0, 0.5  # log distance of candidates from a design, in units of the space
ANY_NAME = 10.0  # size of a step among names: larger than the preference of one that was chosen
EVERY = 1024  # designs: from lists that have no more of them together all are candidates
GROUP = 16  # outcomes of candidates at once
ENUMERATING, PREDICTING = 512, 256  # particles, if left out


class HistoryCloud(eqx.Module):
    """The history, in arrays whose shapes do not change with t, and the particles."""

    ys: Float[Array, "T dy"]
    xis: Float[Array, "T dx"]
    steps: Int[Array, ""]
    cloud: Cloud


class LookaheadEverywhere(Policy):
    """Designs by looking one step ahead, for outcomes of any kind. Deterministic; nothing is
    trained.

    Arguments:
        task: the experiment.
        particles: of the posterior, S; 512 if left out, or 256 where outcomes are predicted.
        outcomes: predicted outcomes of a design, n, where they are not finitely many.
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
    noise: Float[Array, "n dy"] | None
    levels: int = eqx.field(static=True)
    moves: int = eqx.field(static=True)

    def __init__(
        self,
        task: Task,
        *,
        particles: int | None = None,
        outcomes: int = 32,
        levels: int = 3,
        moves: int | None = None,
        candidates: int = 32,
        rounds: int = 3,
        key: PRNGKeyArray,
    ):
        del key  # the same designs for all keys
        self.task = _independent(task)
        enumerated = task.discrete_outcomes
        moves = MOVES * parts_of(task) if moves is None else moves
        particles = particles or (ENUMERATING if enumerated else PREDICTING)
        require(
            min(levels, moves, rounds) >= 1
            and min(particles, candidates) >= 8
            and 1 <= outcomes <= particles,
            "the sizes of the policy 'lookahead'",
            got=f"{particles=}, {outcomes=}, {levels=}, {moves=}, {candidates=}, {rounds=}",
            expected="at least 8 particles and candidates, one level, one move and one round, and "
            "from one outcome to as many as there are particles",
            fix="leave them out for the usual ones.",
        )
        self.noise = None if enumerated else ordered_noise(task, outcomes)
        space = task.designs
        self.base = jnp.asarray(prior_points(task, particles))
        self.options = _all_designs(space)
        self.wide = _everywhere(space, 4 * candidates).reshape(4, candidates, -1)
        self.near = _steps(space, rounds + 1, candidates)
        self.levels, self.moves = levels, moves

    def sample_noise(self, horizon: int, *, key: PRNGKeyArray) -> Float[Array, "T 0"]:
        del key
        return jnp.zeros((horizon, 0))

    def init(self) -> HistoryCloud:
        task, dtype = self.task, self.base.dtype
        return HistoryCloud(
            ys=jnp.zeros((task.horizon, task.outcome_dim), dtype),
            xis=jnp.zeros((task.horizon, task.designs.dim), dtype),
            steps=jnp.zeros((), int),
            cloud=prior_cloud(self.base),
        )

    def design(self, memory: HistoryCloud, noise: Float[Array, " 0"]) -> Float[Array, " dx"]:
        del noise
        memory = jax.lax.stop_gradient(memory)
        last = memory.xis[jnp.maximum(memory.steps - 1, 0)]
        started = memory.steps > 0
        u = self.task.designs.unconstrain(jnp.where(started, last, self._middle(last.dtype)))
        return self.search(memory.cloud, u)

    def update(
        self, memory: HistoryCloud, xi: Float[Array, " dx"], y: Float[Array, " dy"]
    ) -> HistoryCloud:
        memory, xi, y = jax.lax.stop_gradient((memory, xi, y))
        t = memory.steps
        ys, xis = memory.ys.at[t].set(y), memory.xis.at[t].set(xi)
        sizes = {"levels": self.levels, "moves": self.moves}
        key = jr.fold_in(jr.key(0), t)
        cloud = after_outcome(frozen(self.task), memory.cloud, ys, xis, t, **sizes, key=key)
        return HistoryCloud(ys, xis, t + 1, cloud)

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
        searched = of_rounds if self.options is None else len(self.options)
        return updates + T * S * searched * (1 if self.noise is None else len(self.noise))

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
            noise = self.noise
            size = max(1, GROUP // (task.outcome_count if noise is None else len(noise)))
            found = jax.lax.map(
                lambda xi: (
                    expected_gain(task, theta, weights, xi)
                    if noise is None
                    else predicted_gain(task, theta, weights, xi, noise.astype(theta.dtype))
                ),
                xis,
                batch_size=size,
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


def predicted_gain(
    task: Task,
    theta: Float[Array, "k S"],
    weights: Float[Array, " S"],
    xi: Float[Array, " dx"],
    noise: Float[Array, "n dy"],
) -> Scalar:
    """I(ξ) for weighted particles, from n predicted outcomes. S n NLE. Outcomes that are not finite
    do not count.
    """
    quiet = jnp.zeros(task.outcome_dim, theta.dtype)
    outcome = jax.vmap(lambda theta, e: task.outcome(theta, None, xi, e), in_axes=(1, None))
    order = rough_order(outcome(theta, quiet)[:, 0])
    maker = order[quantiles(weights[order], len(noise))]
    ys = jax.vmap(lambda i, e: task.outcome(theta[:, i], None, xi, e))(maker, noise)

    def surprise(y: Array, maker: Array) -> Scalar:
        each = jax.vmap(lambda theta: task.log_prob(y, theta, None, xi), in_axes=1)(theta)
        each = jnp.where(jnp.isnan(each), -jnp.inf, each)
        return each[maker] - jax.nn.logsumexp(each, b=weights)

    gains = jax.vmap(surprise)(ys, maker)
    return jnp.where(jnp.isfinite(gains), gains, 0).mean()


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
    """The task, refused unless its steps are independent and it has a density."""
    if task.exchangeable_steps and task.has_density:
        return task
    raise InvalidValueError(
        "a task for the policy 'lookahead'",
        got=type(task).__name__,
        expected="independent steps with a density",
        fix="write it as IID with `log_prob`, or use another policy.",
    )
