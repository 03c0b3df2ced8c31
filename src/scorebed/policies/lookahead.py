"""A policy that looks ahead: the design whose outcome is expected to tell most about particles of
the posterior; of two steps the first one with regard to the second.

    I(ξ) = 1/S Σ_s E_{y | z_s, ξ} [log p(y | z_s, ξ) − log 1/S Σ_r p(y | z_r, ξ)]
    V(ξ) = I(ξ) + E_y [max_ξ' I'(ξ')],   I' with the weights w'_s ∝ p(y | z_s, ξ)

ξ_t has the largest I among some hundred candidates. ξ_1 is the same in every experiment and is
found once, when the policy is made; it has the largest V where the experiment has two steps. The
particles z_s are carried from step to step by resampling and Metropolis moves
(`inference/resample_move.py`): what limits a policy of this kind is how well its particles describe
the posterior (decision 039). Candidates are the places that particles point to, moved by distances
of all sizes in units of their spread, and designs from all over the space.

Nothing is trained, and nothing is random once the policy is made: its noise is drawn with it, and
equal histories lead to equal designs.

For Gaussian outcomes of independent steps; `lookahead_everywhere.py` serves others. Cost in NLE:
S (1 + levels · moves · t) for the particles after t steps, and S n for every candidate, though only
S of them evaluate the mean. When wrong: S particles can tell apart no more than S values of θ, so
gains near log S are too low; in tens of dimensions they are a poor posterior; of more than two
steps nothing beyond the next is seen."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, Scalar

from scorebed.errors import InvalidValueError, require
from scorebed.inference.blocks import exchangeable_blocks
from scorebed.inference.modes import gaussian_task
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
from scorebed.policies.informative_designs import anchors
from scorebed.tasks.base import Gaussian, Task, frozen

MOVES = 4  # for every part of a particle
HEADS = 2  # linear maps to telling designs, where blocks of z are not places themselves
SPREAD = 1.5  # of designs from all over the space, in its units
NEAREST, FARTHEST = -4.0, 1.0  # log distance of candidates from a place, in units of its spread
CLOSE = 0.02  # distance of the closest ones, in units of the space
TINY = 1e-30  # keeps the logarithm of a density finite
NEGLIGIBLE = -60.0  # exp of less is a denormal in single precision, and slow
GROUP = 8  # candidates at once
STRIDE = 37  # between the particles whose places are candidates
OPENINGS, OPENING_DRAWS, BRANCHES = 64, 512, 64  # designs, draws and outcomes of a first design


class LookaheadMemory(eqx.Module):
    """The history, in arrays whose shapes do not change with t, and the particles."""

    ys: Float[Array, "T dy"]
    xis: Float[Array, "T dx"]
    steps: Int[Array, ""]
    cloud: Cloud


class Predicted(eqx.Module):
    """Outcomes at one design: their densities under every particle and altogether, the information
    that they are expected to give, and log Π scale under every particle.
    """

    densities: Float[Array, "n S"]
    marginal: Float[Array, " n"]
    gain: Scalar
    log_scale: Float[Array, " S"]


class Lookahead(Policy):
    """Designs by looking one step ahead, or two of two. Deterministic; nothing is trained.

    Arguments:
        task: the experiment.
        particles: of the posterior, S.
        outcomes: predicted outcomes of a design, n.
        levels: levels of an update of the particles.
        moves: Metropolis moves of a level; 4 for every part of a particle if left out.
        candidates: designs next to the places that particles point to, in fours; a quarter as many
            are from all over the space.
        rounds: further rounds with a quarter as many candidates around the best.
        first: the first design; None searches for it.
        key: the random key of the candidates and of the particles' moves.
    """

    task: Task
    maps: Float[Array, "heads dx k"]
    shifts: Float[Array, "heads dx"]
    base: Float[Array, "k S"]
    noise: Float[Array, "n dy"]
    wide: Float[Array, "W dx"]
    near: Float[Array, "C dx"]
    around: Float[Array, "rounds R dx"]
    first: Float[Array, " dx"]
    salt: Float[Array, " 2"]
    levels: int = eqx.field(static=True)
    moves: int = eqx.field(static=True)

    def __init__(
        self,
        task: Task,
        *,
        particles: int = 256,
        outcomes: int = 64,
        levels: int = 3,
        moves: int | None = None,
        candidates: int = 96,
        rounds: int = 2,
        first: Float[Array, " dx"] | None = None,
        key: PRNGKeyArray,
    ):
        self.task = _independent(task)
        moves = MOVES * parts_of(task) if moves is None else moves
        require(
            min(levels, moves, rounds + 1) >= 1
            and min(particles, candidates) >= 8
            and 1 <= outcomes <= particles,
            "the sizes of the policy 'lookahead'",
            got=f"{particles=}, {outcomes=}, {levels=}, {moves=}, {candidates=}, {rounds=}",
            expected="at least 8 particles and candidates, one level and one move, and from one "
            "outcome to as many as there are particles",
            fix="leave them out for the usual ones.",
        )
        k, dx, blocks = task.prior.dim, task.designs.dim, exchangeable_blocks(task)
        if blocks * dx == k:
            self.maps, self.shifts = jnp.eye(k).reshape(blocks, dx, k), jnp.zeros((blocks, dx))
        else:
            # The same for all keys: the most informative designs depend on the task alone.
            self.maps, self.shifts = anchors(task, HEADS, key=jr.key(0))
        self.base = jnp.asarray(prior_points(task, particles))
        self.noise = ordered_noise(task, outcomes)
        self.wide = jnp.asarray(SPREAD * spread_normals(candidates // 4, dx))
        key_near, key_around, key_salt = jr.split(key, 3)
        self.near = _moves((4 * len(self.wide), dx), key=key_near)
        self.around = _moves((rounds, len(self.wide), dx), key=key_around)
        self.salt = jr.uniform(key_salt, (2,))
        self.levels, self.moves = levels, moves
        self.first = first_design(task) if first is None else jnp.asarray(first)

    def sample_noise(self, horizon: int, *, key: PRNGKeyArray) -> Float[Array, "T 0"]:
        del key
        return jnp.zeros((horizon, 0))

    def init(self) -> LookaheadMemory:
        task, dtype = self.task, self.base.dtype
        return LookaheadMemory(
            ys=jnp.zeros((task.horizon, task.outcome_dim), dtype),
            xis=jnp.zeros((task.horizon, task.designs.dim), dtype),
            steps=jnp.zeros((), int),
            cloud=prior_cloud(self.base),
        )

    def design(self, memory: LookaheadMemory, noise: Float[Array, " 0"]) -> Float[Array, " dx"]:
        del noise
        memory = jax.lax.stop_gradient(memory)
        return jax.lax.cond(
            memory.steps == 0,
            lambda memory: self.first.astype(memory.xis.dtype),
            lambda memory: self.search(memory.cloud),
            memory,
        )

    def update(
        self, memory: LookaheadMemory, xi: Float[Array, " dx"], y: Float[Array, " dy"]
    ) -> LookaheadMemory:
        memory, xi, y = jax.lax.stop_gradient((memory, xi, y))
        t, key = memory.steps, jr.fold_in(_key_of(self.salt), memory.steps)
        ys, xis = memory.ys.at[t].set(y), memory.xis.at[t].set(xi)
        sizes = {"levels": self.levels, "moves": self.moves}
        cloud = after_outcome(frozen(self.task), memory.cloud, ys, xis, t, **sizes, key=key)
        return LookaheadMemory(ys, xis, t + 1, cloud)

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
        searched = len(self.near) + len(self.wide) + self.around.shape[0] * self.around.shape[1]
        return updates + (T - 1) * searched * S * len(self.noise)

    @property
    def beyond_training(self) -> str:
        return self.short_of_training

    @property
    def short_of_training(self) -> str:
        return "The policy looks one step ahead, whatever the number of steps."

    def search(self, cloud: Cloud) -> Float[Array, " dx"]:
        """The best candidate one step ahead, in rounds that stay with the best so far."""
        task, z, weights = frozen(self.task), cloud.z, cloud.weights
        theta = thetas_of(task, z)
        places = jnp.einsum("hdk,ks->shd", self.maps.astype(z.dtype), z) + self.shifts
        mean = jnp.einsum("s,shd->hd", weights, places)
        spread = jnp.sqrt(jnp.einsum("s,shd->hd", weights, (places - mean) ** 2)) + 1e-3

        def gains(us: Float[Array, "C dx"]) -> Float[Array, " C"]:
            # In groups: all candidates of a batch of experiments would not fit at once.
            def gain(u: Array) -> Scalar:
                return predict(task, theta, weights, task.designs.constrain(u), self.noise).gain

            found = jax.lax.map(gain, us, batch_size=GROUP)
            return jnp.where(jnp.isnan(found), -jnp.inf, found)

        number = jnp.arange(len(self.near))
        which = number % len(self.maps)
        guides = quantiles(weights, len(number))
        centre = places[guides[(STRIDE * number) % len(number)], which]
        scale = jnp.where((number % 3 == 0)[:, None], CLOSE, spread[which])
        start = jnp.concatenate([centre + self.near * scale, self.wide.astype(z.dtype)])

        # One loop, since every further search in the program takes as long to compile again: five
        # rounds with the candidates above, then those around the best so far.
        first, later = start.reshape(-1, *self.wide.shape), self.around.astype(z.dtype)
        close = (jnp.arange(len(self.wide)) % 2 == 0)[:, None]
        moves = later * jnp.where(close, 0.5 * CLOSE, spread.min(0))
        around = jnp.arange(len(first) + len(moves)) >= len(first)

        def one_round(best: tuple[Array, Scalar], row: tuple[Array, Array]) -> tuple[Any, None]:
            us = row[1] + jnp.where(row[0], best[0], 0)
            found = gains(us)
            better = found.max() > best[1]
            chosen = jnp.where(better, us[found.argmax()], best[0])
            return (chosen, jnp.where(better, found.max(), best[1])), None

        none = first[0, 0], jnp.full((), -jnp.inf, z.dtype)
        rows = around, jnp.concatenate([first, moves])
        return task.designs.constrain(jax.lax.scan(one_round, none, rows)[0][0])


def predict(
    task: Task,
    theta: Float[Array, "k S"],
    weights: Float[Array, " S"],
    xi: Float[Array, " dx"],
    noise: Float[Array, "n dy"],
) -> Predicted:
    """Outcomes at ξ, made by particles in proportion to their weights. S n NLE.

    Particles are taken in the order of their means, and noise that is spread evenly with its number
    (`ordered_noise`) then makes outcomes that are spread evenly too."""
    assert isinstance(task, Gaussian)
    gaussian, dtype = task, theta.dtype
    mean = jax.vmap(lambda theta: gaussian.mean(theta, None, xi), in_axes=1)(theta)
    scale = jax.vmap(
        lambda theta: jnp.stack([jnp.asarray(s, dtype) for s in gaussian.scale(theta, None, xi)]),
        in_axes=1,
    )(theta)
    order = rough_order(mean[:, 0])
    maker = order[quantiles(weights[order], len(noise))]
    eps, log_scale = noise.astype(dtype), jnp.log(scale).sum(1)
    ys = mean[maker] + scale[maker] * eps
    squares = sum(
        ((ys[:, i, None] - mean[:, i]) / scale[:, i]) ** 2 for i in range(task.outcome_dim)
    )
    densities = jnp.exp(jnp.maximum(-0.5 * squares - log_scale, NEGLIGIBLE))
    marginal = (densities * weights).sum(1) + TINY
    own = -0.5 * (eps**2).sum(1) - log_scale[maker]
    return Predicted(densities, marginal, (own - jnp.log(marginal)).mean(), log_scale)


def rough_order(values: Float[Array, " S"]) -> Int[Array, " S"]:
    """The order of numbers, up to the last bits of single precision, which hold their indices:
    sorting whole numbers alone takes a fifth of the time of `argsort`.
    """
    low = 2 ** (len(values) - 1).bit_length() - 1
    bits = jax.lax.bitcast_convert_type(values.astype(jnp.float32), jnp.int32)
    # The bits of negative numbers rise as the numbers fall.
    rising = jnp.where(bits < 0, bits ^ 0x7FFFFFFF, bits)
    keys = (rising & ~low) | jnp.arange(len(values), dtype=jnp.int32)
    return jax.lax.sort(keys, is_stable=False) & low


def quantiles(weights: Float[Array, " S"], count: int) -> Int[Array, " n"]:
    """Numbers of particles, in order, each as often as its weight says."""
    level = (jnp.arange(count, dtype=weights.dtype) + 0.5) / count
    return jnp.clip(jnp.searchsorted(jnp.cumsum(weights), level), 0, len(weights) - 1)


def first_design(task: Task) -> Float[Array, " dx"]:
    """The first design: of OPENINGS from all over the space the one of largest I, or of largest V,
    with as many second designs, where the second step is the last. OPENINGS · OPENING_DRAWS² NLE,
    once for a policy.

    Predicted outcomes of a second design come from the prior and are reweighted to what is known
    after the first, which makes the search a product of matrices."""
    noise = ordered_noise(task, OPENING_DRAWS)
    theta = thetas_of(task, jnp.asarray(prior_points(task, OPENING_DRAWS)))
    even = jnp.full(OPENING_DRAWS, 1 / OPENING_DRAWS, theta.dtype)
    wide = jnp.asarray(SPREAD * spread_normals(OPENINGS - 1, task.designs.dim))
    us = jnp.concatenate([jnp.zeros((1, task.designs.dim)), wide])
    xis = jax.vmap(task.designs.constrain)(us)
    each = jax.vmap(lambda xi: predict(task, theta, even, xi, noise))(xis)
    if task.horizon != 2:
        return xis[each.gain.argmax()]

    def value(one: Predicted) -> Scalar:
        some = (jnp.arange(BRANCHES) * OPENING_DRAWS) // BRANCHES + OPENING_DRAWS // BRANCHES // 2
        later = (one.densities / one.marginal[:, None])[some] / OPENING_DRAWS
        marginal = jnp.einsum("os,dns->don", later, each.densities) + TINY
        ratio = marginal / each.marginal[:, None]
        entropy = -(ratio * jnp.log(marginal)).sum(-1) / ratio.sum(-1)
        gain = entropy - 0.5 * task.outcome_dim - each.log_scale @ later.T
        return one.gain + gain.max(0).mean()

    values = jax.lax.map(value, each)
    return xis[jnp.where(jnp.isnan(values), -jnp.inf, values).argmax()]


def _independent(task: Task) -> Task:
    """The task, refused unless its steps are independent and its outcomes Gaussian."""
    if task.exchangeable_steps:
        return gaussian_task(task, "the policy 'lookahead'")
    raise InvalidValueError(
        "a task for the policy 'lookahead'",
        got=type(task).__name__,
        expected="Gaussian outcomes of independent steps",
        fix="write it with `mean` and `scale` as IID, or use another policy.",
    )


def ordered_noise(task: Task, count: int) -> Float[Array, "n dy"]:
    """Noise of outcomes, spread evenly together with its number."""
    points = spread_normals(count, 1 + task.outcome_dim)
    return jnp.asarray(points[np.argsort(points[:, 0]), 1:])


def _moves(shape: tuple[int, ...], *, key: PRNGKeyArray) -> Float[Array, "..."]:
    """Normal directions of lengths that differ by orders of magnitude."""
    key_size, key_way = jr.split(key)
    sizes = jr.uniform(key_size, (*shape[:-1], 1), minval=NEAREST, maxval=FARTHEST)
    return jnp.exp(sizes) * jr.normal(key_way, shape)


def _key_of(numbers: Float[Array, " n"]) -> PRNGKeyArray:
    """A random key from the bits of random numbers."""
    words = jax.lax.bitcast_convert_type(numbers, jnp.uint32).reshape(-1)
    return jax.lax.scan(lambda key, word: (jr.fold_in(key, word), None), jr.key(0), words)[0]
