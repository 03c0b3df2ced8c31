"""Particles of the posterior that are carried from one outcome of an experiment to the next
(resample–move; Gilks and Berzuini, 2001).

    π_β(z) ∝ N(z; 0, I) p(h_{t−1} | z) p(y_t | z, ξ_t)^β

β rises from zero to one in `levels` levels, each as far as leaves half of the particles their
weight, the last one to the end. A level resamples and moves every particle by Metropolis steps that
leave π_β as it is: by the difference of two others, of all coordinates or of one part, which fits
itself to narrow and curved posteriors; and by a new draw of one part from the density of a single
block (`inference/blocks.py`), which finds what all particles have lost. Parts are the exchangeable
blocks of a task, or else its coordinates. Differences of blocks mean something only if equal blocks
stand at equal places: each level gives all particles the order of the best one.

For independent steps. An update costs S (1 + levels · moves · t) NLE after t outcomes. When wrong:
the posterior that S particles describe is no better than they are, and with tens of parameters a
few dozen moves do not forget where a particle came from.

Particles that still are worth MANY stay where they are, with weights: those of the prior are spread
evenly, which random ones of the same number are not."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, Scalar

from scorebed.inference.blocks import Balls, block_density, exchangeable_blocks
from scorebed.inference.resampling import effective_sample_size, systematic_resample
from scorebed.tasks.base import Task

MANY = 256  # effective particles above which nothing is resampled or moved
ENOUGH = 0.5  # share of the particles that a level has to leave their weight
HALVINGS = 12  # of the interval in which β is searched
REDRAWN = 0.25  # of the moves; the others go by differences
WHOLE = 0.35  # of the differences move all coordinates
JUMPS = 0.15  # of them are taken in full, from one mode to another
OCTAVES = 3.0  # by which the others are shortened
JITTER = 1e-2  # in standard deviations of the particles
ALIKE = 1e-4  # squared distance below which two blocks are at the same place


class Cloud(eqx.Module):
    """Particles with their weights, and the likelihoods of the history so far. The particles are
    the last axis, which is what compilers are fast with.
    """

    z: Float[Array, "k S"]
    log_likelihood: Float[Array, " S"]
    log_weights: Float[Array, " S"]

    @property
    def weights(self) -> Float[Array, " S"]:
        """They sum to one."""
        return jax.nn.softmax(self.log_weights)


class _State(eqx.Module):
    """Particles within an update: log p(h_{t−1} | z), log p(y_t | z, ξ_t), weights under π_β, β."""

    z: Float[Array, "k S"]
    known: Float[Array, " S"]
    new: Float[Array, " S"]
    log_weights: Float[Array, " S"]
    beta: Scalar


def prior_points(task: Task, count: int) -> Float[np.ndarray, "k S"]:
    """Particles of the prior, spread evenly, always the same ones.

    Shuffled: every second point of a Sobol sequence lies in one half of the space, and whoever
    takes some of the particles takes them at equal distances."""
    points = spread_normals(count, task.prior.dim)
    return np.ascontiguousarray(np.random.default_rng(0).permutation(points).T)


def prior_cloud(points: Float[Array, "k S"]) -> Cloud:
    """The particles before any outcome."""
    zeros = jnp.zeros(points.shape[1], points.dtype)
    return Cloud(points, zeros, zeros)


def spread_normals(count: int, dim: int) -> Float[np.ndarray, "n d"]:
    """Standard normal points, spread evenly, always the same ones."""
    from scipy.special import ndtri
    from scipy.stats.qmc import Sobol  # which takes longer to import than JAX

    points = Sobol(dim, seed=1).random_base2((count - 1).bit_length())[:count]
    return ndtri(np.clip(points, 1e-6, 1 - 1e-6)).astype(jnp.result_type(float))


def thetas_of(task: Task, z: Float[Array, "k S"]) -> Float[Array, "k S"]:
    """The parameters of all particles."""
    return jax.vmap(task.prior.from_latent, in_axes=1, out_axes=1)(z)


def after_outcome(
    task: Task,
    cloud: Cloud,
    ys: Float[Array, "T dy"],
    xis: Float[Array, "T dx"],
    step: Int[Array, ""],
    *,
    levels: int,
    moves: int,
    key: PRNGKeyArray,
) -> Cloud:
    """The particles after the outcome of number `step`, which `ys` and `xis` hold with those before
    it; later rows may hold anything. S (1 + levels · moves · (step + 1)) NLE.
    """
    taken = jnp.arange(len(ys)) <= step
    # What was not measured may hold anything, and 0 · NaN is NaN.
    ys, xis = (jnp.where(taken[:, None], a, a[0]) for a in (ys, xis))
    moving = _Moves(task, ys, xis, step, part_density(task, ys, xis), moves)
    _, new = moving.likelihoods(cloud.z)
    zero = jnp.zeros((), new.dtype)
    start = _State(cloud.z, cloud.log_likelihood, new, cloud.log_weights, zero)

    def level(state: _State, number: Int[Array, ""]) -> tuple[_State, None]:
        key_resample, key_moves = jr.split(jr.fold_in(key, number))
        beta = jnp.where(number == levels - 1, 1, _next_beta(state))
        weights = jax.nn.softmax(state.log_weights + (beta - state.beta) * state.new)
        chosen = systematic_resample(key_resample, weights, len(weights))
        z, known, new = state.z[:, chosen], state.known[chosen], state.new[chosen]
        best = (known + beta * new - 0.5 * (z**2).sum(0)).argmax()
        z = in_order_of(z, z[:, best], exchangeable_blocks(task))
        return moving(_State(z, known, new, jnp.zeros_like(new), beta), key=key_moves), None

    end, _ = jax.lax.scan(level, start, jnp.arange(levels))
    moved = Cloud(end.z, end.known + end.new, end.log_weights)
    kept = Cloud(cloud.z, cloud.log_likelihood + new, cloud.log_weights + new)
    many = effective_sample_size(kept.log_weights) >= MANY
    return jax.tree.map(lambda *both: jnp.where(many, *both), kept, moved)


def update_nle(steps: int, *, particles: int, levels: int, moves: int) -> int:
    """Likelihood evaluations of the updates of one experiment of so many steps."""
    return particles * (steps + levels * moves * steps * (steps + 1) // 2)


def in_order_of(
    z: Float[Array, "k S"], reference: Float[Array, " k"], blocks: int
) -> Float[Array, "k S"]:
    """Every particle with its blocks where the nearest ones of `reference` are: the closest pair
    first, then the closest of those left.
    """
    if blocks == 1:
        return z
    k, S = z.shape
    rows, places = z.reshape(blocks, -1, S), reference.reshape(blocks, -1)
    # The logarithm makes one block that fits well count for more than several that roughly do.
    apart = jnp.log(ALIKE + ((rows - places[:, None, :, None]) ** 2).sum(2))
    number = jnp.arange(blocks)[:, None]

    def pair(carry: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], None]:
        apart, order = carry
        place, row = jnp.divmod(apart.reshape(blocks**2, S).argmin(0), blocks)
        here, there = number == place, number == row
        gone = here[:, None] | there[None]
        return (jnp.where(gone, jnp.inf, apart), jnp.where(here, row, order)), None

    order = jnp.zeros((blocks, S), int)
    order = jax.lax.scan(pair, (apart, order), None, length=blocks)[0][1]
    return jnp.take_along_axis(rows, order[:, None], axis=0).reshape(k, S)


def _next_beta(state: _State) -> Scalar:
    """The largest β that leaves enough of the particles their weight, by bisection."""

    def enough(beta: Scalar) -> Bool[Array, ""]:
        later = state.log_weights + (beta - state.beta) * state.new
        return effective_sample_size(later) >= ENOUGH * len(later)

    def halve(_: Int[Array, ""], ends: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = ends
        middle = 0.5 * (low + high)
        fits = enough(middle)
        return jnp.where(fits, middle, low), jnp.where(fits, high, middle)

    one = jnp.ones_like(state.beta)
    low, _ = jax.lax.fori_loop(0, HALVINGS, halve, (state.beta, one))
    return jnp.where(enough(one), one, low)


class _Moves(eqx.Module):
    """Metropolis moves of all particles at once, given the data."""

    task: Task
    ys: Float[Array, "T dy"]
    xis: Float[Array, "T dx"]
    step: Int[Array, ""]
    part: Balls
    moves: int = eqx.field(static=True)

    def __call__(self, state: _State, *, key: PRNGKeyArray) -> _State:
        # A bound method is no function that can be hashed.
        return jax.lax.scan(lambda *args: self._move(*args), state, jr.split(key, self.moves))[0]

    def likelihoods(self, z: Float[Array, "k S"]) -> tuple[Float[Array, " S"], Float[Array, " S"]]:
        """log p(h_{t−1} | z) and log p(y_t | z, ξ_t)."""
        thetas = thetas_of(self.task, z)

        def of_step(y: Array, xi: Array) -> Array:
            return jax.vmap(lambda theta: self.task.log_prob(y, theta, None, xi), in_axes=1)(thetas)

        def add(total: Array, row: tuple[Array, Array, Array]) -> tuple[Array, None]:
            y, xi, known = row
            return total + jnp.where(known, of_step(y, xi), 0), None

        rows = self.ys, self.xis, jnp.arange(len(self.ys)) < self.step
        known, _ = jax.lax.scan(add, jnp.zeros(z.shape[1], z.dtype), rows)
        return known, of_step(self.ys[self.step], self.xis[self.step])

    def _move(self, state: _State, key: PRNGKeyArray) -> tuple[_State, None]:
        z, (k, S), d = state.z, state.z.shape, self.part.centres.shape[1]
        key_uniform, key_part = jr.split(key)
        # One long row of numbers: a draw with a short axis takes XLA several times as long.
        first, second, whole, kind, which, jump, size, accept, *noise = jr.uniform(
            key_uniform, ((8 + k) * S,), z.dtype
        ).reshape(8 + k, S)
        chosen = jnp.minimum(k // d * which, k // d - 1).astype(int)
        inside = jnp.arange(k)[:, None] // d == chosen

        a, b = (jnp.minimum(S * u, S - 1).astype(int) for u in (first, second))
        dims = jnp.where(whole < WHOLE, k, d).astype(z.dtype)
        short = 2.38 / jnp.sqrt(2 * dims) * jnp.exp2(-OCTAVES * size)
        jitter = JITTER * z.std(1, keepdims=True) * (2 * jnp.stack(noise) - 1)
        moved = z + jnp.where(jump < JUMPS, 1, short) * (z[:, a] - z[:, b]) + jitter

        keys = jr.split(key_part, S)
        drawn = jax.vmap(lambda key: self.part.sample(key=key), out_axes=1)(keys)
        redraw = kind < REDRAWN
        goes = jnp.where(redraw, jnp.tile(drawn, (k // d, 1)), moved)
        goes = jnp.where(inside | (~redraw & (whole < WHOLE)), goes, z)
        known, new = self.likelihoods(goes)

        def log_density(z: Array, known: Array, new: Array) -> Array:
            part = jnp.take_along_axis(z.reshape(-1, d, S), chosen[None, None], axis=0)[0]
            proposed = jnp.where(redraw, jax.vmap(self.part.log_prob, in_axes=1)(part), 0)
            return known + state.beta * new - 0.5 * (z**2).sum(0) - proposed

        ratio = log_density(goes, known, new) - log_density(z, state.known, state.new)
        taken = jnp.log(accept) < ratio
        return _State(
            jnp.where(taken, goes, z),
            jnp.where(taken, known, state.known),
            jnp.where(taken, new, state.new),
            state.log_weights,
            state.beta,
        ), None


def part_density(task: Task, ys: Float[Array, "T dy"], xis: Float[Array, "T dx"]) -> Balls:
    """What one part is drawn from anew: the density of a single block, or where there are none the
    prior of a coordinate.
    """
    if task.exchangeable > 1 or task.guess_block(ys, xis) is not None:
        return block_density(task, ys, xis)
    one = jnp.ones(1, ys.dtype)
    return Balls(one, jnp.zeros((1, 1), ys.dtype), one)


def parts_of(task: Task) -> int:
    """How many parts a particle is moved in."""
    T, dy, dx = task.horizon, task.outcome_dim, task.designs.dim
    dtype = jnp.result_type(float)
    shapes = jax.ShapeDtypeStruct((T, dy), dtype), jax.ShapeDtypeStruct((T, dx), dtype)
    part = jax.eval_shape(lambda ys, xis: part_density(task, ys, xis), *shapes)
    return task.prior.dim // part.centres.shape[1]
