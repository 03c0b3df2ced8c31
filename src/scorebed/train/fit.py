"""The one training loop. Data are endless, so a loss is a function of a key, `loss(params, key)`, and so is its gradient.

The key of step n is `fold_in(root, n)`: a run that stops anywhere and goes on from its state gives the same parameters as one
that never stopped. Many steps run in one compiled call; the hook `on_step` is the only way out of it, and may end the training.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int, Key, PRNGKeyArray, PyTree, Scalar

from scorebed.errors import ScorebedError, require

PATIENCE = 5

# A loss by its named terms; what is minimised is their sum.
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
    """What the hook sees after a block of steps: the number of steps done, the loss terms of the block, the state."""

    step: int
    terms: dict[str, Float[np.ndarray, "steps ..."]]
    state: FitState


class Stop:
    """What a hook returns to end the training before its last step."""


class NonFiniteError(ScorebedError):
    """Training met five steps in a row whose loss or gradient is not finite. `state` is the last good one, ready to go on from:
    what failed stands where it stood before the five, other restarts where they are."""

    def __init__(self, terms: list[str], step: int, state: FitState, restarts: Sequence[int] = ()):
        self.state = state
        where = f" of restart {', '.join(map(str, restarts))}" if restarts else ""
        super().__init__(
            f"training stopped at step {step}, got {PATIENCE} steps in a row with a non-finite {' and '.join(terms)}{where}, "
            "expected finite numbers. Fix: the last good state is kept; lower the learning rate or check the model there."
        )


def gradient_of(loss: Loss) -> Gradient:
    """The terms of a loss, and the gradient of their sum."""

    def gradient(params: PyTree, key: PRNGKeyArray) -> tuple[Terms, PyTree]:
        def total(params: PyTree) -> tuple[Scalar, Terms]:
            terms = loss(params, key)
            return jnp.stack(list(terms.values())).sum(), terms

        grad, terms = jax.grad(total, has_aux=True)(params)
        return terms, grad

    return gradient


def start(params: PyTree, optimiser: optax.GradientTransformation) -> FitState:
    """The state before the first step. `params` holds inexact arrays only (`eqx.partition`)."""
    return FitState(params, params, optimiser.init(params), jnp.zeros((), jnp.int32), jnp.zeros((), jnp.int32))


def start_batch(params: PyTree, optimiser: optax.GradientTransformation) -> FitState:
    """The same for every member of a batch of parameters."""
    return jax.vmap(lambda p: start(p, optimiser))(params)


def fit(
    gradient: Gradient,
    state: FitState,
    optimiser: optax.GradientTransformation,
    *,
    steps: int,
    block: int = 100,
    decay: float = 0.0,
    on_step: Callable[[StepInfo], Any] = lambda _: None,
    key: Key[Array, "*restarts"],
) -> FitState:
    """Step down `gradient` up to step number `steps`, from wherever `state` stands.

    `decay` is that of the exponential moving average of the parameters, `state.average` (0 follows them). A step whose loss or
    gradient is not finite is skipped; after five in a row nothing moves any more and `NonFiniteError` names the term. `on_step`
    is called after each block of steps and ends the training by returning `Stop`; blocks end at multiples of `block`, so that a
    resumed run sees the same ones.

    A batch of keys trains a batch of states (`jax.vmap(start)`) at once, each with its own optimiser, clipping and guard.
    """

    require(
        block >= 1, "the steps of a block", got=block, expected="a whole number from 1", fix="leave it out for 100."
    )

    def one(state: FitState, key: PRNGKeyArray, n: Array) -> tuple[FitState, Terms]:
        terms, grad = gradient(state.params, jax.random.fold_in(key, n))
        good = (
            jnp.isfinite(jnp.stack(list(terms.values()))).all()
            & jnp.isfinite(optax.tree.norm(grad))
            & (state.skipped < PATIENCE)
        )
        # optax mixes its integer step count with floats, which a user's strict promotion would refuse.
        with jax.numpy_dtype_promotion("standard"):
            update, memory = optimiser.update(grad, state.optimiser, state.params)
            params = optax.apply_updates(state.params, update)
            average = optax.incremental_update(params, state.average, 1 - decay)
        moved = FitState(params, average, memory, n + 1, jnp.zeros_like(state.skipped))
        stayed = FitState(state.params, state.average, state.optimiser, n + 1, state.skipped + 1)
        return jax.tree.map(lambda a, b: jnp.where(good, a, b), moved, stayed), terms

    step = one if key.ndim == 0 else jax.vmap(one, in_axes=(0, 0, None))

    # The number of steps is data, not part of the program: blocks of any length, and runs cut anywhere, execute the same
    # instructions, so that they agree to the last bit; and there is one compilation.
    @eqx.filter_jit
    def run(state: FitState, first: Array, length: Array) -> tuple[FitState, dict[str, Array], Array]:
        def log_one(
            i: Array, carry: tuple[FitState, dict[str, Array], Array]
        ) -> tuple[FitState, dict[str, Array], Array]:
            state, terms, skipped = carry
            state, new = step(state, key, first + i)
            return state, {name: terms[name].at[i].set(new[name]) for name in terms}, skipped.at[i].set(state.skipped)

        shapes, _ = jax.eval_shape(gradient if key.ndim == 0 else jax.vmap(gradient), state.params, key)
        terms = {name: jnp.zeros((block, *value.shape), value.dtype) for name, value in shapes.items()}
        skipped = jnp.zeros((block, *state.skipped.shape), jnp.int32)
        return jax.lax.fori_loop(jnp.zeros_like(length), length, log_one, (state, terms, skipped))

    done = int(jnp.max(state.step))
    while done < steps:
        length = min(block - done % block, steps - done)
        state, logged, skipped = run(state, jnp.asarray(done, jnp.int32), jnp.asarray(length, jnp.int32))
        terms = {name: np.asarray(values[:length]) for name, values in logged.items()}
        _refuse_non_finite(terms, np.asarray(skipped[:length]), done, state)
        done += length
        if on_step(StepInfo(done, terms, state)) is Stop:
            break
    return state


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
    """A module after training: `loss_for` gets what of it is not trained; `state` goes on from an earlier one."""
    params, static = eqx.partition(module, eqx.is_inexact_array)
    state = state or start(params, optimiser)
    gradient = gradient_of(loss_for(static))
    state = fit(gradient, state, optimiser, steps=steps, block=block, decay=decay, on_step=on_step, key=key)
    return eqx.combine(state.average, static)


def _refuse_non_finite(
    terms: dict[str, Float[np.ndarray, "steps ..."]],
    skipped: Int[np.ndarray, "steps ..."],
    done: int,
    state: FitState,
) -> None:
    """Raise `NonFiniteError` if any restart has run out of patience; the terms are those of the step at which it did."""
    dead = skipped >= PATIENCE
    if not dead.any():
        return
    at = int(dead.reshape(len(dead), -1).any(axis=1).argmax())
    bad = [name for name, values in terms.items() if not np.isfinite(values[at][dead[at]]).all()]
    restarts = np.flatnonzero(dead[-1]).tolist() if dead.ndim > 1 else ()
    rested = FitState(state.params, state.average, state.optimiser, state.step,
                      jnp.where(state.skipped < PATIENCE, state.skipped, 0))  # fmt: skip
    raise NonFiniteError(bad or ["gradient"], done + at + 1, rested, restarts)
