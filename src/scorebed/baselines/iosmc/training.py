"""IO-SMC² (Iqbal et al., 2024, "Nesting particle filters for experimental design in dynamical
systems").

A policy learns to imitate experiments that were drawn with a preference for informative ones. Three
algorithms are nested:

**IBIS** (`ibis.py`) holds p(θ | h_t) of one trajectory as M weighted particles.

**Conditional SMC** (`conditional_smc.py`) moves N trajectories through the T steps. Each draws ξ_t
~ π_φ(· | h_{t−1}), θ from its particles and y_t from the model, and its weight grows by exp(η r_t),

    r_t = Σ_m W′_m log ℓ_m − log Σ_m W_m ℓ_m − λ ‖ξ_t − ξ_{t−1}‖²,
    ℓ_m = p(y_t | ξ_t, θ_m, h_{t−1}),      W′_m ∝ W_m ℓ_m

with the tempering η, the slew penalty λ and ξ_0 = constrain(0). The first two terms are the
information gain of the step, KL(p(θ | h_t) ‖ p(θ | h_{t−1})), as the particles see it; they need no
additive noise. One trajectory, the reference, is given and survives all resampling, which leaves
the target Π_t π_φ(ξ_t | h_{t−1}) p(y_t | ξ_t, h_{t−1}) exp(η r_t) unchanged.

**Markovian score climbing** draws the next reference and N trajectories from the final weights, and
takes a step of Adam on Σ_t log π_φ(ξ_t | h_{t−1}) for every batch of them. No gradient passes
through the model.

The reference takes its particles along. They are not stored: the seeds of its IBIS steps are, and
the same seeds with the same data make the same particles again. So nothing of size N·M·T is ever
held, and a checkpoint is small.

**What is counted** is what the paper counts (`nle.IOSMC2`): a kernel costs N·M·T for the weights of
the trajectories, (N−1)·M·T for those of the particles, and M·R·t for every trajectory that moves at
step t, except the reference, whose particles are inherited. The start (unconditional SMC) costs
N·M·T and its moves. What is *evaluated* differs: both kinds of weights need the same numbers ℓ_m,
which are computed once, so that (N−1)·M·T of the count are not evaluated; the moves of the
reference are evaluated again, at most M·R·T(T+1)/2 that are not counted; and moves run in chunks of
trajectories, the last of them padded.

When wrong: what is climbed is log E[exp(η Σ r_t)], which prefers lucky outcomes to informative
designs as η grows; the gain that M particles can see between two resamplings is at most log M; and
trajectories drawn at the end share most of their early steps. It needs the density of the policy,
and a task whose states follow from its data (independent steps or Markov)."""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree, Scalar

from scorebed.baselines.iosmc.conditional_smc import Faults, Reference, Swept, sweep
from scorebed.baselines.iosmc.settings import IOSMCSettings as IOSMCSettings
from scorebed.baselines.iosmc.settings import worst_iteration as worst_iteration
from scorebed.baselines.iosmc.settings import worst_start as worst_start
from scorebed.errors import BudgetExceededError, InvalidValueError
from scorebed.keys import named
from scorebed.policies.base import Memory, Policy, StochasticPolicy
from scorebed.tasks.base import Task
from scorebed.training.fit import (
    PATIENCE,
    FitState,
    NonFiniteError,
    StepInfo,
    Stop,
    TrainingStoppedError,
)
from scorebed.training.programs import SEED, TrainingProgram, is_inexact_shape

WORD = 2**30  # the count of likelihood evaluations passes 2³¹: two words hold it


class ClimbState(eqx.Module):
    """What score climbing carries besides the policy; `FitState.optimiser` holds it."""

    optimiser: PyTree
    reference: Reference
    spent: Int[Array, " 2"]  # likelihood evaluations, high · 2³⁰ + low


class DegenerateParticlesError(TrainingStoppedError):
    """A particle set has degenerated. `state` is the last good one, `nle` what was spent since and
    is lost.
    """

    def __init__(self, what: str, *, step: int, iteration: int, state: FitState, nle: int):
        self.state, self.nle = state, nle
        where = f"in iteration {iteration}" if iteration else "before its first iteration"
        super().__init__(
            f"IO-SMC² stopped {where}, got {what} at step {step} of an experiment, expected finite "
            "weights at more than one point. Fix: the last good state is kept; take more particles "
            "or moves, or check the model there."
        )


def log_policy(
    policy: StochasticPolicy, ys: Float[Array, "T dy"], xis: Float[Array, "T dx"]
) -> Scalar:
    """Σ_t log π(ξ_t | h_{t−1}) of one trajectory."""

    def step(memory: Memory, data: tuple[Array, Array]) -> tuple[Memory, Array]:
        y, xi = data
        return policy.update(memory, xi, y), policy.log_prob(xi, memory)

    return jax.lax.scan(step, policy.init(), (ys, xis))[1].sum()


class Climbed(eqx.Module):
    """Parameters and memory of the optimiser after its steps, their mean loss, and whether all of
    it was finite.
    """

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
    """`updates` steps of the optimiser on −Σ_t log π_φ(ξ_t | h_{t−1}), each with its own batch of
    the learned trajectories.
    """
    batches = swept.learned.reshape(updates, -1)

    def loss(params: PyTree, indices: Array) -> Scalar:
        one = functools.partial(log_policy, eqx.combine(params, rest))
        return -jax.vmap(one)(
            swept.trajectories.ys[indices], swept.trajectories.xis[indices]
        ).mean()

    def update(
        carry: tuple[PyTree, PyTree], indices: Array
    ) -> tuple[tuple[PyTree, PyTree], tuple[Array, Array]]:
        params, memory = carry
        value, grad = jax.value_and_grad(loss)(params, indices)
        finite = jnp.isfinite(value) & jnp.isfinite(optax.tree.norm(grad))
        # optax mixes its integer step count with floats, which a user's strict promotion would
        # refuse.
        with jax.numpy_dtype_promotion("standard"):
            change, memory = optimiser.update(grad, memory, params)
            params = optax.apply_updates(params, change)
        return (params, memory), (value, finite)

    (params, memory), (values, finite) = jax.lax.scan(update, (params, memory), batches)
    return Climbed(params, memory, values.mean(), finite.all())


# Compiled once per task and sizes, whoever calls: a resumed run executes the same instructions.
_compiled_sweep = eqx.filter_jit(sweep)
_climb = eqx.filter_jit(climb)


def start_iosmc(
    task: Task, policy: StochasticPolicy, optimiser: optax.GradientTransformation
) -> FitState:
    """The state before anything is drawn or spent. It costs nothing, and is a template for what was
    saved.
    """
    params = eqx.filter(policy, eqx.is_inexact_array)
    T, zero = task.horizon, jnp.zeros((), jnp.int32)
    seeds = jnp.zeros((T + 1, 2), jnp.uint32)
    reference = Reference(jnp.zeros((T, task.outcome_dim)), jnp.zeros((T, task.designs.dim)), seeds)
    return FitState(
        params,
        params,
        ClimbState(optimiser.init(params), reference, jnp.zeros(2, jnp.int32)),
        zero,
        zero,
    )


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
    swept: Swept = _compiled_sweep(
        task, policy, constants, reference, jnp.asarray(conditional), key=key
    )
    return swept


def draw_reference(
    task: Task,
    policy: StochasticPolicy,
    settings: IOSMCSettings,
    state: FitState,
    *,
    key: PRNGKeyArray,
) -> FitState:
    """The first reference, by unconditional SMC."""
    swept = _sweep(task, policy, settings, state.optimiser.reference, conditional=False, key=key)
    N, M, R = settings.trajectories, settings.particles, settings.moves
    nle = M * (N * task.horizon + R * int(swept.moves))
    _refuse_degenerate(swept.faults, state, iteration=0, nle=nle)
    return _replace(_charge(state, nle), reference=swept.reference)


def iosmc_step(
    task: Task,
    policy: StochasticPolicy,
    settings: IOSMCSettings,
    optimiser: optax.GradientTransformation,
    state: FitState,
    *,
    key: PRNGKeyArray,
) -> tuple[FitState, dict[str, float]]:
    """One iteration of score climbing: S kernels, then the steps of the optimiser. The new state,
    and what to log.

    Of `policy` only what is not trained is used. `gain` is the mean information gain of the
    preferred trajectories, by their own particles: it is not the EIG of the policy. `moved` is the
    share of the worst case that the moves came to."""
    rest = eqx.filter(policy, eqx.is_inexact_array, inverse=True)
    current = eqx.combine(state.params, rest)
    N, M, R, T = settings.trajectories, settings.particles, settings.moves, task.horizon
    reference, nle, moves = state.optimiser.reference, 0, 0
    for s in range(settings.kernels):
        swept = _sweep(task, current, settings, reference, conditional=True, key=named(key, s))
        nle += M * ((2 * N - 1) * T + R * int(swept.moves))
        _refuse_degenerate(swept.faults, state, iteration=int(state.step) + 1, nle=nle)
        reference, moves = swept.reference, moves + int(swept.moves)
    climbed = _climb(
        state.params, rest, state.optimiser.optimiser, optimiser, swept, updates=settings.updates
    )
    worst = settings.kernels * (N - 1) * (T * (T + 1) // 2)
    gain = float(swept.gains[swept.learned].mean())
    terms = {"loss": float(climbed.loss), "gain": gain, "moved": moves / worst}
    charged = _charge(state, nle)
    if not bool(climbed.finite):
        stayed = FitState(
            state.params, state.average, charged.optimiser, state.step + 1, state.skipped + 1
        )
        return stayed, terms
    chain = ClimbState(climbed.optimiser, reference, charged.optimiser.spent)
    return FitState(
        climbed.params, climbed.params, chain, state.step + 1, jnp.zeros_like(state.skipped)
    ), terms


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
    """Train a policy up to iteration number `iterations`, from wherever `state` stands;
    `state.step` says how far it came.

    It stops before an iteration whose worst case does not fit into what is left of `budget`; a
    budget too small for the first is refused. An iteration with a loss or gradient that is not
    finite is skipped, and after five in a row `NonFiniteError` is raised; a degenerate particle set
    raises `DegenerateParticlesError` at once. Both carry the last good state.

    Keys follow the number of the iteration: a run that stops anywhere and goes on from its state
    gives the same policy as one that never stopped. `on_step` is called after every iteration, and
    ends the training by returning `Stop`."""
    if not isinstance(policy, StochasticPolicy):
        raise InvalidValueError(
            "a policy for IO-SMC²",
            got=type(policy).__name__,
            expected="one with a density of its designs",
            fix="use the recurrent policy, gru.",
        )
    optimiser = optimiser or optax.adam(settings.learning_rate)
    state = state or start_iosmc(task, policy, optimiser)
    worst = worst_iteration(task, settings)
    if realised_nle(state) == 0:
        least = worst_start(task, settings) + worst
        if budget is not None and budget < least:
            raise BudgetExceededError(
                f"the first iteration of IO-SMC², got a budget of {budget:,} NLE, expected at "
                f"least {least:,}, its worst case. Fix: raise the budget, or take fewer "
                "trajectories, particles or moves."
            )
        state = draw_reference(task, policy, settings, state, key=named(key, "reference"))
    while int(state.step) < iterations and (
        budget is None or realised_nle(state) + worst <= budget
    ):
        done = int(state.step) + 1
        state, terms = iosmc_step(
            task, policy, settings, optimiser, state, key=named(key, "iteration", done)
        )
        if int(state.skipped) >= PATIENCE:
            rested = FitState(
                state.params,
                state.average,
                state.optimiser,
                state.step,
                jnp.zeros_like(state.skipped),
            )
            raise NonFiniteError(
                ["gradient" if math.isfinite(terms["loss"]) else "loss"], done, rested
            )
        if (
            on_step(
                StepInfo(done, {name: np.asarray([value]) for name, value in terms.items()}, state)
            )
            is Stop
        ):
            break
    return eqx.combine(state.params, policy), state


def iosmc_programs(
    name: str,
    task: Task,
    fresh: StochasticPolicy,
    settings: IOSMCSettings,
    optimiser: optax.GradientTransformation,
) -> tuple[TrainingProgram, TrainingProgram]:
    """What an iteration compiles: the sweep of nested particles, and the steps of the optimiser.
    `fresh` is the untrained policy, or its shapes.
    """
    params, rest = eqx.partition(fresh, is_inexact_shape)
    state = eqx.filter_eval_shape(start_iosmc, task, params, optimiser)

    def swept(params: PyTree, reference: Reference, conditional: Array, seed: Array) -> Swept:
        policy = eqx.combine(params, rest)
        key = jr.wrap_key_data(seed)
        return sweep(task, policy, settings, reference, conditional, key=key)

    def climbed(params: PyTree, memory: PyTree, swept: Swept) -> Climbed:
        return climb(params, rest, memory, optimiser, swept, updates=settings.updates)

    given = jax.ShapeDtypeStruct((), jnp.bool_)
    of_sweep = (params, state.optimiser.reference, given, SEED)
    found = eqx.filter_eval_shape(swept, *of_sweep)
    return (
        TrainingProgram(f"{name}-sweep", swept, of_sweep),
        TrainingProgram(f"{name}-climb", climbed, (params, state.optimiser.optimiser, found)),
    )


def _charge(state: FitState, nle: int) -> FitState:
    return _replace(state, spent=jnp.asarray(divmod(realised_nle(state) + nle, WORD), jnp.int32))


def _replace(state: FitState, **fields: Any) -> FitState:
    chain = dataclasses.replace(state.optimiser, **fields)
    return FitState(state.params, state.average, chain, state.step, state.skipped)


def _refuse_degenerate(faults: Faults, state: FitState, *, iteration: int, nle: int) -> None:
    words = {
        "weights": "parameter particles without a finite weight",
        "collapsed": "parameter particles that are all at one point",
        "trajectories": "trajectories without a finite weight",
    }
    for name, what in words.items():
        if step := int(getattr(faults, name)):
            raise DegenerateParticlesError(
                what, step=step, iteration=iteration, state=state, nle=nle
            )
