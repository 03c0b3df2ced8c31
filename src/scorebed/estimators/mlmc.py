"""Randomised multilevel Monte Carlo (Goda et al., 2022): the gradient of nested Monte Carlo with
many inner samples, at the price of few.

With NMC_l the bound on M_l = M_0 2^l inner samples, and NMC_a, NMC_b the same on the two halves of
these very samples,

    E NMC_L = Σ_{l=0..L} E Δ_l,     Δ_0 = NMC_0,
    Δ_l = NMC_l − ½(NMC_a + NMC_b) = −log cosh ½(log Σ_a p − log Σ_b p)

and Δ_l / P(l) at a random level l has that sum as its mean: no bias but that of NMC with M_0 2^L
samples, L being the highest level. P(l) ∝ 2^(−τ l), and the highest takes the whole tail. The
variance of Δ_l falls as M_l^−2 because the halves are antithetic, their first-order errors
cancelling; against one half alone it would fall as M_l^−1, and Σ Var Δ_l / P(l) would grow with L
for every τ > 1, while τ ≤ 1 makes the cost grow. That rate needs a finite mean, over outcomes, of
the squared relative variance of p(y|θ): one linear-Gaussian step has it below a signal-to-noise
ratio of ½. At a large EIG it is the size of the first terms that hurts, not the rate: a gradient of
log p at a random θ is of order 1/σ², so that on the same step the variance of Δ_0 grows as e^{4
EIG}.

**Batches.** Compiled code for independent levels must be padded: M_0 2^L samples for every
trajectory, at L = 12 and τ = 1.1 eight hundred times the expected number. `mlmc_batch` draws the
levels of a batch together, by one uniform number (systematic sampling): level l has ⌊N P(l)⌋ or
⌈N P(l)⌉ of N trajectories, N P(l) in expectation. That is unbiased too, since trajectories are
exchangeable, its counts vary less, and their shapes are known up to one trajectory. A level is
evaluated as one block, or if it has few trajectories in a loop over just those."""

import itertools
import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int, Key, PRNGKeyArray, Scalar

from scorebed._jit import jit_once
from scorebed.estimators.log_ratios import upper_log_ratio
from scorebed.estimators.pce import contrastive, prior_draws
from scorebed.keys import named
from scorebed.nle import MLMC, level_probabilities, level_weights
from scorebed.policies.base import Policy
from scorebed.rollout import Noise, Trajectory, log_likelihood, log_likelihoods, price, rollout
from scorebed.tasks.base import Task

# A level of more trajectories is one block, which may hold one too many: at most an eighth of its
# work is wasted.
BLOCK = 8


def mlmc(
    task: Task,
    policy: Policy,
    theta: Float[Array, " k"],
    noise: Noise,
    *,
    base: int,
    cap: int,
    tau: float,
    key: PRNGKeyArray,
) -> Scalar:
    """Δ_l / P(l) of one trajectory, at a random level. M_0 2^l·T NLE, and T for θ_0 at level 0.

    Under `vmap` every trajectory would pay for all the levels: `mlmc_batch` is for that.
    """
    run = rollout(task, policy, theta, noise)
    level = draw_level(cap=cap, tau=tau, key=named(key, "level"))
    weights = level_weights(tau=tau, max_level=cap)
    draws = named(key, "contrast")
    branches = [
        lambda l=l, w=w: w * level_term(task, run, l, base=base, key=draws)
        for l, w in enumerate(weights)
    ]
    return jax.lax.switch(level, branches)


def draw_level(*, cap: int, tau: float, key: PRNGKeyArray) -> Int[Array, ""]:
    """min(l, cap) of a geometric l with ratio 2^−τ: successes before the first failure, in `cap`
    trials.
    """
    return jnp.cumprod(jr.bernoulli(key, 2.0**-tau, (cap,)).astype(jnp.int32)).sum()


def level_term(task: Task, run: Trajectory, level: int, *, base: int, key: PRNGKeyArray) -> Scalar:
    """Δ_l of one trajectory. M_0 2^l·T NLE, and T for θ_0 at level 0; at all others it cancels."""
    if level == 0:
        log_p0 = log_likelihood(task, run.theta, run.ys, run.xis)
        return upper_log_ratio(log_p0, contrastive(task, run, base, key=key), base)
    each = log_likelihoods(task, prior_draws(task, base * 2**level, key=key), run.ys, run.xis)
    first, second = jax.nn.logsumexp(each.reshape(2, -1), axis=1)
    half = 0.5 * (first - second)
    return math.log(2) - jnp.logaddexp(half, -half)


def mlmc_batch(
    task: Task,
    policy: Policy,
    thetas: Float[Array, "N k"],
    noises: Noise,
    *,
    base: int,
    cap: int,
    tau: float,
    key: PRNGKeyArray,
) -> Float[Array, " N"]:
    """Δ_l / P(l) of N trajectories. Only their *mean* is an estimate: single ones are at levels
    that depend on their place.

    Between M_0 Σ_l ⌊N P(l)⌋ 2^l and M_0 Σ_l ⌈N P(l)⌉ 2^l times T NLE, `expected_nle` in the mean,
    and N P(0)·T for θ_0; what is evaluated is up to one trajectory more at each level."""
    runs = jax.vmap(lambda theta, noise: rollout(task, policy, theta, noise))(thetas, noises)
    fixed = jax.lax.stop_gradient(runs)
    batch = len(thetas)
    keys = jr.split(named(key, "contrast"), batch)
    plan = stratify(batch, cap=cap, tau=tau, key=named(key, "level"))

    # Loops of random length have no reverse mode: each term comes with its slopes in the data, and
    # the sum is linear in the data.
    total = _Linear(
        jnp.zeros_like(runs.ys[:, 0, 0]), jnp.zeros_like(runs.ys), jnp.zeros_like(runs.xis)
    )
    for level, weight in enumerate(level_weights(tau=tau, max_level=cap)):
        most = plan.most[level]
        size = most if most > BLOCK else 1

        def term(
            run: Trajectory, key: PRNGKeyArray, level: int = level, weight: float = weight
        ) -> _Linear:
            def value(ys: Array, xis: Array) -> Scalar:
                return weight * level_term(
                    task, Trajectory(run.theta, ys, xis), level, base=base, key=key
                )

            at, slopes = jax.value_and_grad(value, argnums=(0, 1))(run.ys, run.xis)
            return _Linear(at, *slopes)

        total = _add_level(total, term, fixed, keys, plan.first[level], plan.first[level + 1], size)
    moved = (
        (total.ys * (runs.ys - fixed.ys)).sum((1, 2)),
        (total.xis * (runs.xis - fixed.xis)).sum((1, 2)),
    )
    return total.value + moved[0] + moved[1] - jax.vmap(lambda xis: price(task, xis))(runs.xis)


class _Linear(NamedTuple):
    """A value per trajectory and its slopes in that trajectory's data."""

    value: Array
    ys: Array
    xis: Array


def _add_level(
    total: _Linear,
    term: Callable[[Trajectory, PRNGKeyArray], _Linear],
    runs: Trajectory,
    keys: Array,
    first: Array,
    stop: Array,
    size: int,
) -> _Linear:
    """The terms of trajectories first, …, stop − 1 and at most size − 1 more, in blocks of
    `size`.
    """

    def add(i: Array, total: _Linear) -> _Linear:
        places = first + i * size + jnp.arange(size, dtype=jnp.int32)
        at = jnp.minimum(places, len(keys) - 1)
        found = jax.vmap(term)(jax.tree.map(lambda leaf: leaf[at], runs), keys[at])
        # Places past `stop` belong to the next level, which overwrites them, or to no trajectory.
        return jax.tree.map(lambda t, f: t.at[places].set(f, mode="drop"), total, found)

    return jax.lax.fori_loop(jnp.zeros_like(first), -(-(stop - first) // size), add, total)


class LevelPlan(NamedTuple):
    """Which trajectories of a batch are at which level: from `first[l]` up to `first[l + 1]`,
    `most[l]` of them or one fewer.
    """

    first: Int[Array, " levels"]
    most: tuple[int, ...]


def stratify(batch: int, *, cap: int, tau: float, key: PRNGKeyArray) -> LevelPlan:
    """Systematic sampling: trajectory n is at the level in whose share of [0, N) the point n + U
    lies, U uniform in [0, 1).

    The first point at or past an edge e is number ⌈e − U⌉ = ⌊e⌋ + [U < e − ⌊e⌋]. Edges are taken
    apart in double precision; in single precision a rare level would be lost against the number of
    trajectories."""
    probabilities = level_probabilities(tau=tau, max_level=cap)
    edges = [math.modf(batch * below) for below in itertools.accumulate(probabilities[:-1])]
    u = jr.uniform(key)
    inside = [int(whole) + (u < part).astype(jnp.int32) for part, whole in edges]
    first = jnp.stack([jnp.zeros((), jnp.int32), *inside, jnp.full((), batch, jnp.int32)])
    return LevelPlan(first, tuple(math.ceil(batch * p) for p in probabilities))


def realised_nle(
    task: Task, keys: Key[Array, "*B"], *, batch: int, base: int, cap: int, tau: float
) -> Int[np.ndarray, "*B"]:
    """What batches of `mlmc_batch` with these keys cost, exactly; levels follow from keys alone, so
    it is known beforehand.
    """

    def counts(key: PRNGKeyArray) -> Int[Array, " levels"]:
        return jnp.diff(stratify(batch, cap=cap, tau=tau, key=named(key, "level")).first)

    each = np.asarray(jit_once(jax.vmap(counts))(keys.reshape(-1)), np.int64)
    nle = task.horizon * (base * (each << np.arange(cap + 1)).sum(1) + each[:, 0])
    return nle.reshape(keys.shape)


def expected_nle(task: Task, *, batch: int = 1, base: int, cap: int, tau: float) -> float:
    """The mean cost of a batch, in the paper's count of inner samples only: N·T·E[M_0
    2^min(l, L)].
    """
    return batch * task.horizon * _cost(task, batch, base, cap, tau).expected_inner_capped


def padded_nle(task: Task, *, batch: int = 1, base: int, cap: int, tau: float) -> int:
    """What the paper's compiled code evaluates for a batch: N·T·M_0 2^L."""
    return _cost(task, batch, base, cap, tau).padded


def _cost(task: Task, batch: int, base: int, cap: int, tau: float) -> MLMC:
    return MLMC(T=task.horizon, K_P=1, N=batch, M0=base, tau=tau, max_level=cap)
