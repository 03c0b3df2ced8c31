"""The one training loop. Data are endless, so a loss is a function of a key, `loss(params, key)`,
and so is its gradient.

The key of step n is `fold_in(root, n)`: a run that stops anywhere and goes on from its state gives
the same parameters as one that never stopped. Many steps run in one compiled call; the hook
`on_step` is the only way out of it, and may end the training, or go on with some members of a batch
alone."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from jaxtyping import Array, Float, Int, Key, PRNGKeyArray, PyTree, Scalar

from scorebed._jit import jit_once
from scorebed._sharding import on_this_host, replicated
from scorebed.errors import ScorebedError, require
from scorebed.keys import named
from scorebed.training.dropped import DROPPED
from scorebed.training.liveness import of_jaxpr

PATIENCE = 5

# A loss by its named terms; what is minimised is their sum, without the count of dropped
# trajectories.
Terms: TypeAlias = dict[str, Scalar]
Loss: TypeAlias = Callable[[Any, PRNGKeyArray], Terms]
# Its terms and the direction of a step, from the parameters and a key: mostly `gradient_of(loss)`.
Gradient: TypeAlias = Callable[[Any, PRNGKeyArray], tuple[Terms, Any]]


class FitState(eqx.Module):
    """All that must persist between two steps."""

    params: PyTree
    average: PyTree
    optimiser: PyTree
    step: Int[Array, "*restarts"]
    skipped: Int[Array, "*restarts"]


class StepInfo(NamedTuple):
    """What the hook sees after a block of steps: the number of steps done, the loss terms of the
    block, the state.
    """

    step: int
    terms: dict[str, Float[np.ndarray, "steps ..."]]
    state: FitState


class Stop:
    """What a hook returns to end the training before its last step."""


# Compiled programs of blocks of steps, for all members at once or for one.
Compiled: TypeAlias = dict[bool, Any]


class Only(NamedTuple):
    """What a hook returns to go on with some members of a batch; the others stay as they are,
    `state.step` included.
    """

    members: Sequence[int]


class TrainingStoppedError(ScorebedError):
    """Training cannot go on. `state` is the last good one."""

    state: FitState


class NonFiniteError(TrainingStoppedError):
    """Training met five steps in a row whose loss or gradient is not finite. `state` is the last
    good one, ready to go on from: what failed stands where it stood before the five, other restarts
    where they are.
    """

    def __init__(self, terms: list[str], step: int, state: FitState, restarts: Sequence[int] = ()):
        self.state = state
        where = f" of restart {', '.join(map(str, restarts))}" if restarts else ""
        super().__init__(
            f"training stopped at step {step}, got {PATIENCE} steps in a row with a non-finite "
            f"{' and '.join(terms)}{where}, "
            "expected finite numbers. Fix: the last good state is kept; lower the learning rate "
            "or check the model there."
        )

    def name_place(self, words: str) -> None:
        """Say where the model is not finite: parameters and designs in words."""
        self.args = (f"{self} It is not finite at {words}.",)


def gradient_of(loss: Loss) -> Gradient:
    """The terms of a loss, and the gradient of their sum."""

    def gradient(params: PyTree, key: PRNGKeyArray) -> tuple[Terms, PyTree]:
        def total(params: PyTree) -> tuple[Scalar, Terms]:
            terms = loss(params, key)
            return jnp.stack([v for name, v in terms.items() if name != DROPPED]).sum(), terms

        grad, terms = jax.grad(total, has_aux=True)(params)
        return terms, grad

    return gradient


def start(params: PyTree, optimiser: optax.GradientTransformation) -> FitState:
    """The state before the first step. `params` holds inexact arrays only (`eqx.partition`)."""
    # One program: of many zeros, each by itself, every shape would be compiled.
    memory, zero = jit_once(lambda p: (optimiser.init(p), jnp.zeros((), jnp.int32)))(params)
    return FitState(params, params, memory, zero, zero)


def start_batch(params: PyTree, optimiser: optax.GradientTransformation) -> FitState:
    """The same for every member of a batch of parameters."""
    begun: FitState = jit_once(jax.vmap(lambda p: start(p, optimiser)))(params)
    return begun


def fit(
    gradient: Gradient,
    state: FitState,
    optimiser: optax.GradientTransformation,
    *,
    steps: int,
    block: int = 100,
    decay: float = 0.0,
    on_step: Callable[[StepInfo], Any] = lambda _: None,
    members: Sequence[int] | None = None,
    compiled: Compiled | None = None,
    key: Key[Array, "*restarts"],
) -> FitState:
    """Step down `gradient` up to step number `steps`, from wherever `state` stands.

    `decay` is that of the exponential moving average of the parameters, `state.average` (0 follows
    them). A step whose loss or gradient is not finite is skipped; after five in a row nothing moves
    any more and `NonFiniteError` names the term. `on_step` is called after each block of steps and
    ends the training by returning `Stop`; blocks end at multiples of `block`, so that a resumed run
    sees the same ones.

    A batch of keys trains a batch of states (`start_batch`), each with its own optimiser, clipping
    and guard: all that have come furthest, or `members` alone, or from some step on those of the
    hook's `Only`. Terms of the others are NaN. See `at_once`. `compiled` keeps the program for
    further calls with the same gradient, optimiser, block and decay."""

    require(
        block >= 1,
        "the steps of a block",
        got=block,
        expected="a whole number from 1",
        fix="leave it out for 100.",
    )

    how: dict[str, Any] = {"block": block, "decay": decay}
    together = key.ndim == 1 and at_once()
    program = block_of_steps(gradient, optimiser, **how, together=together)
    if together and not _fits(program, state, key):
        together = False
        program = block_of_steps(gradient, optimiser, **how, together=False)
    run = eqx.filter_jit(program)
    if compiled is not None:
        run = compiled.setdefault(together, run)
    advance = _some_of_batch(run, together=together) if key.ndim else _whole(run)
    done = int(np.asarray(state.step).max())
    going = (
        np.flatnonzero(np.atleast_1d(state.step) == done).tolist() if members is None else members
    )
    while done < steps:
        length = min(block - done % block, steps - done)
        state, terms, skipped = advance(state, key, going, done, length)
        _refuse_non_finite(terms, skipped, done, state)
        done += length
        answer = on_step(StepInfo(done, terms, state))
        if answer is Stop:
            break
        going = answer.members if isinstance(answer, Only) else going
    return state


def block_of_steps(
    gradient: Gradient,
    optimiser: optax.GradientTransformation,
    *,
    block: int,
    decay: float,
    together: bool,
) -> Callable[[FitState, Array, Array, Array], tuple[FitState, dict[str, Array], Array]]:
    """The program of a block of at most `block` steps, as `fit` compiles it: from a state, a key,
    the number of the first step and how many there are to the new state, the terms of each step and
    the steps skipped in a row so far. With `together` all members of a batch move at once.

    The number of steps is data, not part of the program: blocks of any length, and runs cut
    anywhere, execute the same instructions, so that they agree to the last bit; and there is one
    compilation. So are keys: all members share it."""

    def one(
        traced: Gradient, state: FitState, key: PRNGKeyArray, n: Array
    ) -> tuple[FitState, Terms]:
        terms, grad = traced(state.params, jax.random.fold_in(key, n))
        good = (
            jnp.isfinite(jnp.stack(list(terms.values()))).all()
            & jnp.isfinite(optax.tree.norm(grad))
            & (state.skipped < PATIENCE)
        )
        # optax mixes its integer step count with floats, which a user's strict promotion would
        # refuse.
        with jax.numpy_dtype_promotion("standard"):
            update, memory = optimiser.update(grad, state.optimiser, state.params)
            params = optax.apply_updates(state.params, update)
            average = optax.incremental_update(params, state.average, 1 - decay)
        moved = FitState(params, average, memory, n + 1, jnp.zeros_like(state.skipped))
        stayed = FitState(state.params, state.average, state.optimiser, n + 1, state.skipped + 1)
        return jax.tree.map(lambda a, b: jnp.where(good, a, b), moved, stayed), terms

    def run(
        state: FitState, key: Array, first: Array, length: Array
    ) -> tuple[FitState, dict[str, Array], Array]:
        # What its terms are called is asked before the loop. Of a function that `jit` has traced
        # for the one question it keeps the answer for the other.
        traced = jax.jit(gradient, inline=True)
        step = functools.partial(one, traced)
        if together:
            step = jax.vmap(step, in_axes=(0, 0, None))

        def log_one(
            i: Array, carry: tuple[FitState, dict[str, Array], Array]
        ) -> tuple[FitState, dict[str, Array], Array]:
            state, terms, skipped = carry
            state, new = step(state, key, first + i)
            return (
                state,
                {name: terms[name].at[i].set(new[name]) for name in terms},
                skipped.at[i].set(state.skipped),
            )

        shapes, _ = jax.eval_shape(jax.vmap(traced) if together else traced, state.params, key)
        terms = {
            name: jnp.zeros((block, *value.shape), value.dtype) for name, value in shapes.items()
        }
        skipped = jnp.zeros((block, *state.skipped.shape), jnp.int32)
        return replicated(
            jax.lax.fori_loop(jnp.zeros_like(length), length, log_one, (state, terms, skipped))
        )

    return run


def at_once() -> bool:
    """Whether a batch is trained by one `vmap`, as accelerators want it where it fits their memory,
    or its members in turn.

    One member fills a CPU: in turn they are as fast, need the memory of one and one compilation,
    and each comes out as if it had been trained alone, to the last bit. By `vmap` it is the same
    but for the order in which sums are taken."""
    return jax.default_backend() != "cpu"


def device_memory() -> int | None:
    """Bytes that programs may take of a device; None where it does not say, as a CPU."""
    found: int | None = (jax.devices()[0].memory_stats() or {}).get("bytes_limit")
    return found


def _fits(program: Callable[..., Any], state: FitState, key: Array) -> bool:
    """Whether a whole batch at once fits the memory of a device, as far as it is known."""
    limit = device_memory()
    if limit is None:
        return True
    number = jnp.zeros((), jnp.int32)
    return of_jaxpr(jax.make_jaxpr(program)(state, key, number, number)).total <= limit


_Logged: TypeAlias = tuple[FitState, dict[str, np.ndarray], np.ndarray]
_Advance: TypeAlias = Callable[[FitState, Array, Sequence[int], int, int], _Logged]


def _whole(run: Callable[..., Any]) -> _Advance:
    """A block of steps of one state."""

    def advance(state: FitState, key: Array, _: Sequence[int], done: int, length: int) -> _Logged:
        state, terms, skipped = run(
            state, key, jnp.asarray(done, jnp.int32), jnp.asarray(length, jnp.int32)
        )
        return (
            on_this_host(state),
            {name: np.asarray(values)[:length] for name, values in terms.items()},
            np.asarray(skipped)[:length],
        )

    return advance


def _some_of_batch(run: Callable[..., Any], *, together: bool) -> _Advance:
    """A block of steps of some members of a batch."""
    one = _whole(run)

    def advance(
        state: FitState, key: Array, going: Sequence[int], done: int, length: int
    ) -> _Logged:
        chosen, whole = np.asarray(going), len(going) == len(key)
        if together:
            part = state if whole else jax.tree.map(lambda leaf: leaf[chosen], state)
            part, terms, skipped = one(part, key[chosen], (), done, length)
            new = (
                part
                if whole
                else jax.tree.map(lambda leaf, some: leaf.at[chosen].set(some), state, part)
            )
        else:
            each = [one(_row(state, i), key[i], (), done, length) for i in going]
            new = _with_rows(state, chosen, [found[0] for found in each])
            terms = {name: np.stack([found[1][name] for found in each], 1) for name in each[0][1]}
            skipped = np.stack([found[2] for found in each], 1)
        if whole:
            return new, terms, skipped
        wide = (length, len(key))
        return (
            new,
            {
                name: _spread(values, chosen, np.full(wide, np.nan, values.dtype))
                for name, values in terms.items()
            },
            _spread(skipped, chosen, np.zeros(wide, skipped.dtype)),
        )

    return advance


def _row(state: FitState, number: int) -> FitState:
    """One member. On the host, where a CPU has its arrays anyway: to slice every leaf by JAX takes
    as long as a step.
    """
    row: FitState = jax.device_put(jax.tree.map(lambda leaf: np.asarray(leaf)[number], state))
    return row


def _with_rows(state: FitState, chosen: np.ndarray, rows: Sequence[FitState]) -> FitState:
    """A batch with other members at some of its places."""

    def replaced(leaf: Array, *new: Array) -> np.ndarray:
        found = np.empty(leaf.shape, leaf.dtype) if len(new) == len(leaf) else np.array(leaf)
        for number, row in zip(chosen, new, strict=True):
            found[number] = row
        return found

    changed: FitState = jax.device_put(jax.tree.map(replaced, state, *rows))
    return changed


def _spread(values: np.ndarray, chosen: np.ndarray, among: np.ndarray) -> np.ndarray:
    among[:, chosen] = values
    return among


def fit_one(
    loss_for: Callable[[PyTree], Loss],
    module: Any,
    *,
    steps: int,
    optimiser: optax.GradientTransformation,
    decay: float = 0.0,
    block: int = 100,
    on_step: Callable[[StepInfo], Any] = lambda _: None,
    state: FitState | None = None,
    key: PRNGKeyArray,
) -> Any:
    """A module after training: `loss_for` gets what of it is not trained; `state` goes on from an
    earlier one.
    """
    params, static = eqx.partition(module, eqx.is_inexact_array)
    state = state or start(params, optimiser)
    gradient = gradient_of(loss_for(static))
    state = fit(
        gradient, state, optimiser, steps=steps, block=block, decay=decay, on_step=on_step, key=key
    )
    return eqx.combine(state.average, static)


def fit_batch(
    gradient_for: Callable[[PyTree], Gradient],
    batch: Any,
    *,
    steps: int,
    optimiser: optax.GradientTransformation,
    decay: float = 0.0,
    block: int = 100,
    on_step: Callable[[StepInfo], Any] = lambda _: None,
    state: FitState | None = None,
    members: Sequence[int] | None = None,
    compiled: Compiled | None = None,
    key: PRNGKeyArray,
) -> Any:
    """A batch of policies, or of policies with what is trained with them: `gradient_for` gets what
    of them is not trained.

    With `members` only these are trained; each has the key of its own number in the batch, whoever
    trains with it."""
    params, static_part = eqx.partition(batch, eqx.is_inexact_array)
    gradient = gradient_for(static_part)
    state = state or start_batch(params, optimiser)
    keys = member_keys(group_size(params), key=key)
    how: dict[str, Any] = {
        "steps": steps,
        "block": block,
        "decay": decay,
        "on_step": on_step,
        "members": members,
        "compiled": compiled,
    }
    state = fit(gradient, state, optimiser, key=keys, **how)
    return eqx.combine(state.average, static_part)


def member_keys(count: int, *, key: PRNGKeyArray) -> Key[Array, " P"]:
    """The key of every member of a batch that `fit_batch` trains; step n of a member has
    `fold_in(its key, n)`.

    It follows from the member's number, whatever the size of the batch.
    """
    root = named(key, "steps")
    return jax.vmap(lambda number: jr.fold_in(root, number))(jnp.arange(count, dtype=jnp.uint32))


def member(batch: Any, index: int) -> Any:
    """Policy, or whatever else is batched, number `index` of a batch."""
    return jax.tree.map(lambda leaf: leaf[index] if eqx.is_array(leaf) else leaf, batch)


def members(batch: Any, numbers: Sequence[int]) -> Any:
    """The batch of some of a batch."""
    chosen = np.asarray(numbers)
    return jax.tree.map(lambda leaf: leaf[chosen] if eqx.is_array(leaf) else leaf, batch)


def group_size(batch: Any) -> int:
    """How many a batch holds."""
    return int(jax.tree.leaves(eqx.filter(batch, eqx.is_array))[0].shape[0])


def _refuse_non_finite(
    terms: dict[str, Float[np.ndarray, "steps ..."]],
    skipped: Int[np.ndarray, "steps ..."],
    done: int,
    state: FitState,
) -> None:
    """Raise `NonFiniteError` if any restart has run out of patience; the terms are those of the
    step at which it did.
    """
    dead = skipped >= PATIENCE
    if not dead.any():
        return
    at = int(dead.reshape(len(dead), -1).any(axis=1).argmax())
    bad = [name for name, values in terms.items() if not np.isfinite(values[at][dead[at]]).all()]
    restarts = np.flatnonzero(dead[-1]).tolist() if dead.ndim > 1 else ()
    rested = FitState(
        state.params,
        state.average,
        state.optimiser,
        state.step,
        jnp.where(state.skipped < PATIENCE, state.skipped, 0),
    )
    raise NonFiniteError(bad or ["gradient"], done + at + 1, rested, restarts)
