"""What the next k steps tell under the policy, for every k up to the steps left, given the data so
far.

The posterior's particles θ_1, …, θ_N are the prior of what remains. Experiments go on from here
with one of them, θ_0, as the truth; with p_i = p(y_{t+1:t+k} | ξ, θ_i),

    lower_k = E[log p_0 − log (1/N) Σ_i p_i],   upper_k = E[log p_0 − log (1/(N−1)) Σ_{i≠0} p_i]

are sPCE and sNMC with all particles as contrasts, for all k from the same experiments, at the cost
of the longest: at most `BUDGET` NLE. Copies of θ_0 that resampling made are left out of the upper
sum, which makes it larger.

Errors: experiments share particles, so means of groups that share none tell the error. Both bounds
are of the particles' information, at most log N.

When wrong: where the particles are (`Posterior.warning`)."""

import dataclasses
import math
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from scorebed.bounds.contrastive import SATURATED
from scorebed.keys import named
from scorebed.policies.base import Memory, Policy
from scorebed.session.events import ExperimentState, Remaining
from scorebed.session.measurements import array, padded, pairs_of, stacked
from scorebed.session.posterior import KnownHistory, state_of
from scorebed.session.remaining import LimitArrays, confine, feasible_designs
from scorebed.tasks.base import State, Task

BUDGET = 2**25  # NLE
GROUPS = 16  # of experiments, each with its own share of the particles
MOST, LEAST = 4096, 64  # experiments
CHUNK = 64  # of them at a time


@dataclasses.dataclass(frozen=True, eq=False)
class InformationAhead:
    """For k = 1, 2, …: bounds on what the next k steps tell, in nats, with the standard error of
    either, and what k designs cost in the unit of the task (zero where they cost nothing).

    `saturated` is the share of experiments in which particles cannot tell how much."""

    lower: np.ndarray
    upper: np.ndarray
    se: np.ndarray
    cost: np.ndarray
    saturated: np.ndarray

    @property
    def remaining(self) -> Remaining:
        """That of all steps that are left."""
        known = self.saturated[-1] <= SATURATED and math.isfinite(self.upper[-1])
        upper = float(self.upper[-1]) if known else None
        return Remaining(float(self.lower[-1]), upper, float(self.se[-1]))


class _Experiments(NamedTuple):
    """One row per experiment, one column per step ahead."""

    lower: Float[Array, "n H"]
    lower_in_group: Float[Array, "n H"]
    upper: Float[Array, "n H"]
    cost: Float[Array, "n H"]


def information_ahead(
    task: Task,
    policy: Policy,
    chance: np.ndarray,
    state: ExperimentState,
    theta: np.ndarray,
    *,
    key: PRNGKeyArray,
) -> InformationAhead:
    """From `state`, with particles of the posterior there. The policy must have designs for all
    steps that are left; `chance` is its noise in this experiment, a row for each step from the
    first on, so that the design that is pending is the one that is asked about. Designs that are on
    their way to instruments come first.
    """
    longest = max(state.horizon, task.horizon)
    full = policy.extended(longest, key=jr.key(len(state.measured)))
    pairs = pairs_of(state.records)
    shape = padded if task.states_follow_data else stacked
    known = KnownHistory(*shape(pairs, task), jnp.asarray(len(pairs)))
    share = len(theta) // GROUPS
    affordable = max(BUDGET // (len(theta) * state.horizon), LEAST)
    experiments = min(1 << affordable.bit_length() - 1, MOST)
    each = _simulate(
        task,
        confine(full, feasible_designs(task, state)),
        LimitArrays.of(state.limits, task.designs.dim),
        array(theta[: share * GROUPS]),
        known,
        (longest, experiments),
        jnp.asarray(chance),
        _on_their_way(task, state, longest),
        jnp.asarray(state.step - 1),
        jnp.asarray(state.left),
        key,
    )
    lower, in_group, upper, cost = (np.asarray(rows, np.float64)[:, : state.left] for rows in each)
    by_group = in_group.reshape(GROUPS, -1, state.left).mean(1)
    shared = by_group.std(0, ddof=1) / math.sqrt(GROUPS)
    with np.errstate(invalid="ignore"):  # an upper bound that is infinite has no error
        alone = upper.std(0, ddof=1) / math.sqrt(len(upper))
    return InformationAhead(
        lower.mean(0),
        upper.mean(0),
        np.maximum(shared, alone),
        cost.mean(0),
        (lower > math.log(len(theta)) - math.log(2)).mean(0),
    )


def _on_their_way(
    task: Task, state: ExperimentState, longest: int
) -> tuple[Float[Array, "H dx"], Int[Array, ""]]:
    """Designs that are being measured, padded with zeros, and how many there are."""
    designs = [proposal.design for proposal in state.sent_out]
    rows = np.zeros((longest, task.designs.dim))
    rows[: len(designs)] = np.reshape(designs, (len(designs), task.designs.dim))
    return array(rows), jnp.asarray(len(designs))


class _Going(NamedTuple):
    """An experiment under way: `total` are log-likelihoods of what followed, one per particle."""

    memory: Memory
    state: State
    total: Float[Array, " N"]
    cost: Float[Array, ""]
    rows: tuple[Float[Array, " H"], ...]


@eqx.filter_jit
def _simulate(
    task: Task,
    policy: Policy,
    limits: LimitArrays,
    theta: Float[Array, "N k"],
    known: KnownHistory,
    sizes: tuple[int, int],
    chance: Float[Array, "H n"],
    sent: tuple[Float[Array, "H dx"], Int[Array, ""]],
    taken: Int[Array, ""],
    left: Int[Array, ""],
    key: PRNGKeyArray,
) -> _Experiments:
    """`taken` steps, of which some may have been skipped, are behind, `left` are ahead. Neither is
    known when this is compiled, so that one program serves a whole experiment.
    """
    (longest, experiments), N = sizes, len(theta)
    share, columns = N // GROUPS, theta.T
    after = jax.lax.fori_loop(
        0,
        known.observed,
        lambda i, memory: policy.update(memory, known.xis[i], known.ys[i]),
        policy.init(),
    )
    start, axis = state_of(task, theta, known)
    log_prob = jax.vmap(task.log_prob, in_axes=(None, 1, axis, None))
    many = jax.vmap(task.advance, in_axes=(1, 0, None, None))
    advance = task.advance if axis is None else many

    def experiment(number: Int[Array, ""], key: PRNGKeyArray) -> tuple[Array, ...]:
        group = number // (experiments // GROUPS)
        chosen = group * share + jr.randint(named(key, "theta"), (), 0, share)
        others = jnp.where((theta == theta[chosen]).all(1), -jnp.inf, 0.0).astype(theta.dtype)
        count = jnp.log(jnp.isfinite(others).sum().astype(theta.dtype))
        noise = jr.normal(named(key, "outcome"), (longest, task.noise_dim), theta.dtype)

        def step(k: Int[Array, ""], going: _Going) -> _Going:
            wanted = policy.design(going.memory, chance[jnp.minimum(taken + k, longest - 1)])
            low, high = (side.astype(wanted.dtype) for side in (limits.low, limits.high))
            xi = jnp.where(k < sent[1], sent[0][k], jnp.clip(wanted, low, high))
            truth = going.state if axis is None else jax.tree.map(lambda s: s[chosen], going.state)
            y = task.outcome(theta[chosen], truth, xi, noise[k])
            each = going.total + log_prob(y, columns, going.state, xi)
            total = jnp.where(jnp.isnan(each), -jnp.inf, each)
            mine = jax.lax.dynamic_slice(total, (group * share,), (share,))
            cost = going.cost + (0.0 if task.cost is None else task.cost.of(xi))
            found = (
                total[chosen] - jax.nn.logsumexp(total) + math.log(N),
                total[chosen] - jax.nn.logsumexp(mine) + math.log(share),
                total[chosen] - jax.nn.logsumexp(total + others) + count,
                cost,
            )
            rows = tuple(row.at[k].set(v) for row, v in zip(going.rows, found, strict=True))
            state = advance(theta[chosen] if axis is None else columns, going.state, xi, y)
            return _Going(policy.update(going.memory, xi, y), state, total, cost, rows)

        nothing = jnp.zeros((), theta.dtype)
        empty = tuple(jnp.zeros(longest, theta.dtype) for _ in _Experiments._fields)
        first = _Going(after, start, jnp.zeros(N, theta.dtype), nothing, empty)
        return jax.lax.fori_loop(0, left, step, first).rows

    numbers, keys = jnp.arange(experiments), jr.split(key, experiments)
    found = jax.lax.map(lambda pair: experiment(*pair), (numbers, keys), batch_size=CHUNK)
    return _Experiments(*found)
