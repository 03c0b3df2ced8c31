"""IO-SMC² (Iqbal et al., 2024, "Nesting particle filters for experimental design in dynamical systems").

A policy learns to imitate experiments that were drawn with a preference for informative ones. Three algorithms are nested:

**IBIS** (`ibis.py`) holds p(θ | h_t) of one trajectory as M weighted particles.

**Conditional SMC** moves N trajectories through the T steps. Each draws ξ_t ~ π_φ(· | h_{t−1}), θ from its own particles and
y_t from the model, and its weight grows by exp(η r_t),

    r_t = Σ_m W′_m log ℓ_m − log Σ_m W_m ℓ_m − λ ‖ξ_t − ξ_{t−1}‖²,      ℓ_m = p(y_t | ξ_t, θ_m, h_{t−1}),      W′_m ∝ W_m ℓ_m

with the tempering η, the slew penalty λ and ξ_0 = constrain(0). The first two terms are the information gain of the step,
KL(p(θ | h_t) ‖ p(θ | h_{t−1})), as the particles see it; they need no additive noise. One trajectory, the reference, is given and
survives all resampling, which leaves the target Π_t π_φ(ξ_t | h_{t−1}) p(y_t | ξ_t, h_{t−1}) exp(η r_t) unchanged.

**Markovian score climbing** draws the next reference and N trajectories from the final weights, and takes a step of Adam on
Σ_t log π_φ(ξ_t | h_{t−1}) for every batch of them. No gradient passes through the model.

The reference takes its particles along. They are not stored: the seeds of its own IBIS steps are, and the same seeds with the
same data make the same particles again. So nothing of size N·M·T is ever held, and a checkpoint is small.

**What is counted** is what the paper counts (`nle.IOSMC2`): a kernel costs N·M·T for the weights of the trajectories, (N−1)·M·T
for those of the particles, and M·R·t for every trajectory that moves at step t, except the reference, whose particles are
inherited. The start (unconditional SMC) costs N·M·T and its moves. What is *evaluated* differs: both kinds of weights need the
same numbers ℓ_m, which are computed once, so that (N−1)·M·T of the count are not evaluated; the moves of the reference are
evaluated again, at most M·R·T(T+1)/2 that are not counted; and moves run in chunks of trajectories, the last of them padded.

When wrong: what is climbed is log E[exp(η Σ r_t)], which prefers lucky outcomes to informative designs as η grows; the gain
that M particles can see between two resamplings is at most log M; and trajectories drawn at the end share most of their early
steps. It needs the density of the policy, and a task whose states follow from its data (independent steps or Markov).
"""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree, Scalar, UInt32

from scorebed.baselines.ibis import (
    Particles,
    log_increments,
    move_degenerate,
    require_data_states,
    reweigh,
    start_particles,
    state_before,
)
from scorebed.errors import BudgetExceededError, InvalidValueError, ScorebedError, require
from scorebed.keys import named
from scorebed.nle import IOSMC2
from scorebed.policies.base import Memory, Policy, StochasticPolicy
from scorebed.tasks.base import State, Task
from scorebed.tasks.cartpole import CartPole
from scorebed.tasks.double_link import DoubleLink
from scorebed.tasks.pendulum import Pendulum
from scorebed.train.fit import PATIENCE, FitState, NonFiniteError, StepInfo

WORD = 2**30  # the count of likelihood evaluations passes 2³¹: two words hold it


class IOSMCSettings(eqx.Module):
    """The sizes and constants of IO-SMC². `paper_settings` has those of the paper."""

    trajectories: int = eqx.field(static=True, default=1024, kw_only=True)
    """N, the reference among them."""
    particles: int = eqx.field(static=True, default=512, kw_only=True)
    """M, parameter particles of each trajectory."""
    moves: int = eqx.field(static=True, default=3, kw_only=True)
    """R, Metropolis steps after resampling particles."""
    kernels: int = eqx.field(static=True, default=1, kw_only=True)
    """S, conditional SMC sweeps in an iteration."""
    batch: int = eqx.field(static=True, default=64, kw_only=True)
    """Trajectories per step of Adam; an iteration takes ⌊N / batch⌋ steps, one at least."""
    tempering: float = eqx.field(default=1.0, kw_only=True)
    """η: how much informative trajectories are preferred; 0 draws from the policy as it is."""
    penalty: float = eqx.field(default=0.0, kw_only=True)
    """λ, slew-rate penalty in nats per squared unit of the design."""
    inner_threshold: float = eqx.field(default=0.75, kw_only=True)
    """Share of M below which the effective sample size calls for moves: 0 never, above 1 always."""
    outer_threshold: float = eqx.field(default=0.75, kw_only=True)
    """The same for resampling the trajectories."""
    learning_rate: float = eqx.field(default=1e-3, kw_only=True)
    """Of Adam, where no optimiser is given."""

    def __check_init__(self) -> None:
        whole = min(self.trajectories, self.particles) >= 2 and self.moves >= 0 and min(self.kernels, self.batch) >= 1
        reals = (self.tempering, self.penalty, self.inner_threshold, self.outer_threshold, self.learning_rate)
        require(whole and all(math.isfinite(x) and x >= 0 for x in reals), "the settings of IO-SMC²", got=self,
                expected="at least two trajectories and particles, one kernel and batch, and no negative numbers",
                fix="start from paper_settings(task).")  # fmt: skip

    @property
    def updates(self) -> int:
        """Steps of Adam in an iteration."""
        return max(1, self.trajectories // self.batch)


def paper_settings(task: Task) -> IOSMCSettings:
    """What the paper, and the study that it follows, use on the dynamical tasks; 25 iterations go with them."""
    table: dict[type[Task], IOSMCSettings] = {
        Pendulum: IOSMCSettings(tempering=1.0, penalty=0.2, learning_rate=1e-3),
        CartPole: IOSMCSettings(tempering=0.25, penalty=0.1, learning_rate=5e-4),
        DoubleLink: IOSMCSettings(tempering=0.25, penalty=0.1, learning_rate=5e-4),
    }
    if type(task) not in table:
        raise InvalidValueError("the paper's settings of IO-SMC²", got=type(task).__name__,
                                expected="pendulum, cart-pole or double link",
                                fix="write IOSMCSettings(…) for this task.")  # fmt: skip
    return table[type(task)]


def worst_iteration(task: Task, settings: IOSMCSettings) -> int:
    """NLE of an iteration in which every trajectory moves at every step."""
    return _bill(task, settings, 2).upper - _bill(task, settings, 1).upper


def worst_start(task: Task, settings: IOSMCSettings) -> int:
    """NLE of drawing the first reference if every trajectory moves at every step."""
    return _bill(task, settings, 1).upper - worst_iteration(task, settings)


def _bill(task: Task, settings: IOSMCSettings, iterations: int) -> IOSMC2:
    N, M, R, S = settings.trajectories, settings.particles, settings.moves, settings.kernels
    return IOSMC2(T=task.horizon, K=iterations, N=N, M=M, R=R, S=S)


class Reference(eqx.Module):
    """A trajectory, and the seeds that its particles were started and moved with."""

    ys: Float[Array, "*N T dy"]
    xis: Float[Array, "*N T dx"]
    seeds: UInt32[Array, "*N T_1 2"]


class Chain(eqx.Module):
    """What score climbing carries besides the policy; `FitState.optimiser` holds it."""

    optimiser: PyTree
    reference: Reference
    spent: Int[Array, " 2"]  # likelihood evaluations, high · 2³⁰ + low


class Faults(eqx.Module):
    """The step (from 1) at which a particle set was first found degenerate; 0 for never."""

    weights: Int[Array, ""]
    collapsed: Int[Array, ""]
    trajectories: Int[Array, ""]


class Swept(eqx.Module):
    """One pass of SMC: N weighted trajectories with their information gains, and what is drawn from them.

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


class DegenerateParticlesError(ScorebedError):
    """A particle set stands for nothing any more. `state` is the last good one; its count has the iteration that failed."""

    def __init__(self, what: str, step: int, iteration: int, state: FitState):
        self.state = state
        where = f"in iteration {iteration}" if iteration else "before its first iteration"
        super().__init__(
            f"IO-SMC² stopped {where}, got {what} at step {step} of an experiment, expected finite weights at more than one "
            "point. Fix: the last good state is kept; take more particles or moves, or check the model there."
        )


class _Cloud(NamedTuple):
    """N trajectories in the middle of their experiments."""

    past: Reference
    memory: Memory
    particles: Particles
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
    """N trajectories through an experiment; with `conditional`, the first of them is the reference."""
    model = require_data_states(task)
    N, T = settings.trajectories, task.horizon
    key_start, key_steps, key_chosen, key_learned = jr.split(key, 4)

    def inherit(drawn: Array, given: Array) -> Array:
        return drawn.at[0].set(jnp.where(conditional, given, drawn[0]))

    def resample(cloud: _Cloud, key: PRNGKeyArray) -> _Cloud:
        ancestors = _multinomial(cloud.log_weights, N, key=key)
        ancestors = inherit(ancestors, jnp.zeros_like(ancestors[0]))
        survivors: _Cloud = jax.tree.map(lambda a: a[ancestors], cloud)
        return survivors._replace(log_weights=jnp.full(N, -math.log(N)))

    def act(memory: Memory, particles: Particles, state: State, key: PRNGKeyArray) -> tuple[Array, Array, Array]:
        """y_t, ξ_t, and the seed of what IBIS does about them."""
        key_design, key_theta, key_outcome, key_seed = jr.split(key, 4)
        xi = policy.design(memory, policy.sample_noise(1, key=key_design)[0])
        (one,) = _multinomial(particles.log_weights, 1, key=key_theta)
        theta = task.prior.from_latent(particles.z[:, one])
        y = task.outcome(theta, state, xi, jr.normal(key_outcome, (task.outcome_dim,)))
        return y, xi, jr.bits(key_seed, (2,), jnp.uint32)

    def step(carry: tuple[_Cloud, Array, Faults], t: Array) -> tuple[tuple[_Cloud, Array, Faults], None]:
        cloud, moves, faults = carry
        key_resample, key_act = jr.split(jr.fold_in(key_steps, t))
        effective = 1 / jnp.exp(2 * cloud.log_weights).sum()
        cloud = jax.lax.cond(effective < settings.outer_threshold * N, resample, lambda c, _: c, cloud, key_resample)
        states = jax.vmap(lambda y: state_before(model, y, t))(cloud.past.ys)
        drawn = jax.vmap(act)(cloud.memory, cloud.particles, states, jr.split(key_act, N))
        y, xi, seed = map(inherit, drawn, (reference.ys[t], reference.xis[t], reference.seeds[t + 1]))
        before = jnp.where(t > 0, cloud.past.xis[:, t - 1], task.designs.constrain(jnp.zeros(task.designs.dim)))
        past = Reference(
            cloud.past.ys.at[:, t].set(y), cloud.past.xis.at[:, t].set(xi), cloud.past.seeds.at[:, t + 1].set(seed)
        )
        # One evaluation serves the weights of trajectories and of particles; it is counted for both.
        increments = jax.vmap(functools.partial(log_increments, task))(cloud.particles, y, states, xi)
        particles, log_evidence, gains = jax.vmap(reweigh)(cloud.particles, increments)
        log_weights = cloud.log_weights + settings.tempering * (gains - settings.penalty * ((xi - before) ** 2).sum(1))
        log_weights = log_weights - jax.nn.logsumexp(log_weights)
        particles, moved, collapsed = move_degenerate(
            model, particles, past.ys, past.xis, t + 1, seed, moves=settings.moves, threshold=settings.inner_threshold
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
    (chosen,) = _multinomial(cloud.log_weights, 1, key=key_chosen)
    learned = _multinomial(cloud.log_weights, settings.updates * min(settings.batch, N), key=key_learned)
    return Swept(cloud.past, cloud.log_weights, cloud.gains, chosen, learned, moves, faults)


def log_policy(policy: StochasticPolicy, ys: Float[Array, "T dy"], xis: Float[Array, "T dx"]) -> Scalar:
    """Σ_t log π(ξ_t | h_{t−1}) of one trajectory."""

    def step(memory: Memory, data: tuple[Array, Array]) -> tuple[Memory, Array]:
        y, xi = data
        return policy.update(memory, xi, y), policy.log_prob(xi, memory)

    return jax.lax.scan(step, policy.init(), (ys, xis))[1].sum()


class Climbed(eqx.Module):
    """Parameters and memory of the optimiser after its steps, their mean loss, and whether all of it was finite."""

    params: PyTree
    optimiser: PyTree
    loss: Scalar
    finite: Bool[Array, ""]


def climb(
    params: PyTree,
    rest: PyTree,
    memory: PyTree,
    optimiser: optax.GradientTransformation,
    swept: Swept,
    *,
    updates: int,
) -> Climbed:
    """`updates` steps of the optimiser on −Σ_t log π_φ(ξ_t | h_{t−1}), each with its own batch of the learned trajectories."""
    batches = swept.learned.reshape(updates, -1)

    def loss(params: PyTree, indices: Array) -> Scalar:
        one = functools.partial(log_policy, eqx.combine(params, rest))
        return -jax.vmap(one)(swept.trajectories.ys[indices], swept.trajectories.xis[indices]).mean()

    def update(carry: tuple[PyTree, PyTree], indices: Array) -> tuple[tuple[PyTree, PyTree], tuple[Array, Array]]:
        params, memory = carry
        value, grad = jax.value_and_grad(loss)(params, indices)
        finite = jnp.isfinite(value) & jnp.isfinite(optax.tree.norm(grad))
        # optax mixes its integer step count with floats, which a user's strict promotion would refuse.
        with jax.numpy_dtype_promotion("standard"):
            change, memory = optimiser.update(grad, memory, params)
            params = optax.apply_updates(params, change)
        return (params, memory), (value, finite)

    (params, memory), (values, finite) = jax.lax.scan(update, (params, memory), batches)
    return Climbed(params, memory, values.mean(), finite.all())


# Compiled once per task and sizes, whoever calls: a resumed run executes the same instructions.
_compiled_sweep = eqx.filter_jit(sweep)
_climb = eqx.filter_jit(climb)


def start_iosmc(task: Task, policy: StochasticPolicy, optimiser: optax.GradientTransformation) -> FitState:
    """The state before anything is drawn or spent. It costs nothing, and is a template for what was saved."""
    params = eqx.filter(policy, eqx.is_inexact_array)
    T, zero = task.horizon, jnp.zeros((), jnp.int32)
    seeds = jnp.zeros((T + 1, 2), jnp.uint32)
    reference = Reference(jnp.zeros((T, task.outcome_dim)), jnp.zeros((T, task.designs.dim)), seeds)
    return FitState(params, params, Chain(optimiser.init(params), reference, jnp.zeros(2, jnp.int32)), zero, zero)


def realised_nle(state: FitState) -> int:
    """Likelihood evaluations that a training has spent so far, exact."""
    high, low = np.asarray(state.optimiser.spent).tolist()
    return int(high * WORD + low)


def _sweep(
    task: Task,
    policy: StochasticPolicy,
    settings: IOSMCSettings,
    reference: Reference,
    *,
    conditional: bool,
    key: PRNGKeyArray,
) -> Swept:
    # As arrays, the constants are data: other values need no other program.
    constants = jax.tree.map(jnp.asarray, settings)
    swept: Swept = _compiled_sweep(task, policy, constants, reference, jnp.asarray(conditional), key=key)
    return swept


def draw_reference(
    task: Task, policy: StochasticPolicy, settings: IOSMCSettings, state: FitState, *, key: PRNGKeyArray
) -> FitState:
    """The first reference, by unconditional SMC."""
    swept = _sweep(task, policy, settings, state.optimiser.reference, conditional=False, key=key)
    _refuse_degenerate(swept.faults, 0, state)
    N, M, R = settings.trajectories, settings.particles, settings.moves
    return _replace(_charge(state, M * (N * task.horizon + R * int(swept.moves))), reference=swept.reference)


def iosmc_step(
    task: Task,
    policy: StochasticPolicy,
    settings: IOSMCSettings,
    optimiser: optax.GradientTransformation,
    state: FitState,
    *,
    key: PRNGKeyArray,
) -> tuple[FitState, dict[str, float]]:
    """One iteration of score climbing: S kernels, then the steps of the optimiser. The new state, and what to log.

    Of `policy` only what is not trained is used. `gain` is the mean information gain of the preferred trajectories, by their own
    particles: it is not the EIG of the policy. `moved` is the share of the worst case that the moves came to.
    """
    rest = eqx.filter(policy, eqx.is_inexact_array, inverse=True)
    current = eqx.combine(state.params, rest)
    N, M, R, T = settings.trajectories, settings.particles, settings.moves, task.horizon
    reference, charged, moves = state.optimiser.reference, state, 0
    for s in range(settings.kernels):
        swept = _sweep(task, current, settings, reference, conditional=True, key=named(key, s))
        charged = _charge(charged, M * ((2 * N - 1) * T + R * int(swept.moves)))
        _refuse_degenerate(swept.faults, int(state.step) + 1, charged)
        reference, moves = swept.reference, moves + int(swept.moves)
    climbed = _climb(state.params, rest, state.optimiser.optimiser, optimiser, swept, updates=settings.updates)
    worst = settings.kernels * (N - 1) * (T * (T + 1) // 2)
    gain = float(swept.gains[swept.learned].mean())
    terms = {"loss": float(climbed.loss), "gain": gain, "moved": moves / worst}
    if not bool(climbed.finite):
        stayed = FitState(state.params, state.average, charged.optimiser, state.step + 1, state.skipped + 1)
        return stayed, terms
    chain = Chain(climbed.optimiser, reference, charged.optimiser.spent)
    return FitState(climbed.params, climbed.params, chain, state.step + 1, jnp.zeros_like(state.skipped)), terms


def train_iosmc(
    task: Task,
    policy: Policy,
    settings: IOSMCSettings,
    *,
    iterations: int = 25,
    optimiser: optax.GradientTransformation | None = None,
    budget: int | None = None,
    state: FitState | None = None,
    on_step: Callable[[StepInfo], Any] = lambda _: None,
    key: PRNGKeyArray,
) -> tuple[StochasticPolicy, FitState]:
    """Train a policy up to iteration number `iterations`, from wherever `state` stands; `state.step` says how far it came.

    It stops before an iteration whose worst case does not fit into what is left of `budget`; a budget too small for the first
    is refused. An iteration with a loss or gradient that is not finite is skipped, and after five in a row `NonFiniteError` is
    raised; a degenerate particle set raises `DegenerateParticlesError` at once. Both carry the last good state.

    Keys follow the number of the iteration: a run that stops anywhere and goes on from its state gives the same policy as one
    that never stopped. `on_step` is called after every iteration.
    """
    if not isinstance(policy, StochasticPolicy):
        raise InvalidValueError("a policy for IO-SMC²", got=type(policy).__name__,
                                expected="one with a density of its designs", fix="use the recurrent policy, gru.")  # fmt: skip
    optimiser = optimiser or optax.adam(settings.learning_rate)
    state = state or start_iosmc(task, policy, optimiser)
    worst = worst_iteration(task, settings)
    if realised_nle(state) == 0:
        least = worst_start(task, settings) + worst
        if budget is not None and budget < least:
            raise BudgetExceededError(
                f"the first iteration of IO-SMC², got a budget of {budget:,} NLE, expected at least {least:,}, its worst case. "
                "Fix: raise the budget, or take fewer trajectories, particles or moves."
            )
        state = draw_reference(task, policy, settings, state, key=named(key, "reference"))
    while int(state.step) < iterations and (budget is None or realised_nle(state) + worst <= budget):
        done = int(state.step) + 1
        state, terms = iosmc_step(task, policy, settings, optimiser, state, key=named(key, "iteration", done))
        if int(state.skipped) >= PATIENCE:
            rested = FitState(state.params, state.average, state.optimiser, state.step, jnp.zeros_like(state.skipped))
            raise NonFiniteError(["gradient" if math.isfinite(terms["loss"]) else "loss"], done, rested)
        on_step(StepInfo(done, {name: np.asarray([value]) for name, value in terms.items()}, state))
    return eqx.combine(state.params, policy), state


def _charge(state: FitState, nle: int) -> FitState:
    return _replace(state, spent=jnp.asarray(divmod(realised_nle(state) + nle, WORD), jnp.int32))


def _replace(state: FitState, **fields: Any) -> FitState:
    chain = dataclasses.replace(state.optimiser, **fields)
    return FitState(state.params, state.average, chain, state.step, state.skipped)


def _refuse_degenerate(faults: Faults, iteration: int, state: FitState) -> None:
    words = {
        "weights": "parameter particles without a finite weight",
        "collapsed": "parameter particles that are all at one point",
        "trajectories": "trajectories without a finite weight",
    }
    for name, what in words.items():
        if step := int(getattr(faults, name)):
            raise DegenerateParticlesError(what, step, iteration, state)


def _first(step: Int[Array, ""], now: Bool[Array, ""], t: Int[Array, ""]) -> Int[Array, ""]:
    return jnp.where((step == 0) & now, t + 1, step)


def _multinomial(log_weights: Float[Array, " n"], draws: int, *, key: PRNGKeyArray) -> Int[Array, " draws"]:
    """Independent draws of indices."""
    total = jnp.cumsum(jnp.exp(log_weights))
    # 1 − u lies in (0, 1]: no draw falls on an index of weight zero.
    return jnp.searchsorted(total, (1 - jr.uniform(key, (draws,), total.dtype)) * total[-1])
