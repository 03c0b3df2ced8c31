"""The training loop: it can stop and go on anywhere, it survives what is not finite, and restarts
do not meet.
"""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest
from jaxtyping import Array

from scorebed.errors import InvalidValueError
from scorebed.training import fit as fit_module
from scorebed.training.fit import (
    PATIENCE,
    NonFiniteError,
    Stop,
    fit,
    gradient_of,
    start,
    start_batch,
)

TARGET = jnp.asarray([1.0, -2.0, 0.5])
KEY = jr.key(7)


def optimiser() -> optax.GradientTransformation:
    return optax.chain(
        optax.clip_by_global_norm(1.0), optax.adam(optax.cosine_decay_schedule(0.05, 60))
    )


def loss(params: Array, key: Array) -> dict[str, Array]:
    """A noisy bowl; nonlinear, so that the order of operations would show in the last bits."""
    return {
        "bowl": ((jnp.sin(params) - TARGET + jr.normal(key, (3,))) ** 2).sum(),
        "ridge": 0.1 * (params**2).sum(),
    }


def faulty(bad_steps: range, *, value: float = math.nan, where: str = "ridge", key: Array = KEY):
    """`loss` with a planted fault in the value or the gradient at the given steps, which are known
    by their keys.
    """
    bad = jax.vmap(lambda n: jr.key_data(jr.fold_in(key, n)))(jnp.arange(1000))[
        np.asarray(bad_steps, int)
    ]

    def planted(params: Array, key: Array) -> dict[str, Array]:
        terms = loss(params, key)
        here = (bad == jr.key_data(key)).all(axis=-1).any()
        if where == "gradient":
            # Zero, with a slope that overflows.
            zero = 10 * (params - jax.lax.stop_gradient(params)).sum()
            return terms | {"ridge": terms["ridge"] + jnp.where(here, 3e38, 0.0) * zero}
        return terms | {where: jnp.where(here, value, terms[where])}

    return planted


def run(loss_function, state=None, *, steps: int, key: Array = KEY, **options):
    begin = start(jnp.zeros(3), optimiser()) if state is None else state
    return fit(
        gradient_of(loss_function),
        begin,
        optimiser(),
        steps=steps,
        key=key,
        **({"block": 10} | options),
    )


def same(a, b) -> None:
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_array_equal(x, y)


# --- stopping and going on -----------------------------------------------------------------------


def test_a_hook_ends_the_training_at_its_block_and_not_before():
    ended = run(loss, steps=40, on_step=lambda info: Stop if info.step >= 15 else None)
    assert int(ended.step) == 20
    same(ended, run(loss, steps=20))


def test_a_run_cut_anywhere_is_the_whole_run_to_the_last_bit():
    whole = run(loss, steps=40, decay=0.9)
    for cut in (1, 23):
        same(run(loss, run(loss, steps=cut, decay=0.9), steps=40, decay=0.9), whole)
    assert int(whole.step) == 40


def test_the_block_changes_what_is_reported_and_not_what_is_learned():
    seen = []
    long = run(loss, steps=25, block=1000)
    same(run(loss, steps=25, block=10, on_step=seen.append), long)
    assert [info.step for info in seen] == [10, 20, 25]
    assert [len(info.terms["bowl"]) for info in seen] == [10, 10, 5]
    assert set(seen[0].terms) == {"bowl", "ridge"}
    same(seen[-1].state, long)
    same(long.average, long.params)  # without decay
    # A resumed run sees the blocks that the whole one would have seen.
    again = []
    run(loss, run(loss, steps=13), steps=25, on_step=again.append)
    assert [info.step for info in again] == [20, 25]
    np.testing.assert_array_equal(again[-1].terms["bowl"], seen[-1].terms["bowl"])


def test_step_n_has_the_nth_key_and_is_one_step_of_the_optimiser():
    params, memory = jnp.zeros(3), optimiser().init(jnp.zeros(3))
    average = params
    values = []
    for n in range(4):
        value, grad = jax.value_and_grad(lambda p, n=n: sum(loss(p, jr.fold_in(KEY, n)).values()))(
            params
        )
        with jax.numpy_dtype_promotion("standard"):
            update, memory = optimiser().update(grad, memory, params)
        params = params + update
        average = 0.8 * average + 0.2 * params
        values.append(float(value))
    seen = []
    state = run(loss, steps=4, decay=0.8, on_step=seen.append)
    np.testing.assert_allclose(state.params, params, rtol=1e-5)
    np.testing.assert_allclose(state.average, average, rtol=1e-5)
    np.testing.assert_allclose(seen[0].terms["bowl"] + seen[0].terms["ridge"], values, rtol=1e-5)


# --- what is not finite --------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["bowl", "gradient"])
def test_a_step_that_is_not_finite_is_skipped(where):
    states = {}
    run(
        faulty(range(4, 7), where=where),
        steps=12,
        block=1,
        on_step=lambda info: states.update({info.step: info.state}),
    )
    for step in (5, 6, 7):  # steps number 4, 5 and 6
        same(
            [states[step].params, states[step].average, states[step].optimiser],
            [states[4].params, states[4].average, states[4].optimiser],
        )
        assert int(states[step].skipped) == step - 4
    assert int(states[8].skipped) == 0
    assert not np.array_equal(states[8].params, states[4].params)
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(states[12]))


@pytest.mark.parametrize(
    ("where", "value", "named"),
    [
        ("bowl", math.inf, "bowl"),
        ("gradient", 0.0, "gradient"),
    ],
)
def test_five_in_a_row_stop_the_training_with_the_last_good_state(where, value, named):
    # The fault passes before the block ends: it is still the one that is named, and nothing has
    # moved since.
    loss_function = faulty(range(13, 13 + PATIENCE), where=where, value=value)
    reached = []
    with pytest.raises(
        NonFiniteError, match=rf"stopped at step 18, .* non-finite {named}, "
    ) as caught:
        run(loss_function, steps=100, block=13, on_step=reached.append)
    state, good = caught.value.state, reached[-1].state
    assert int(good.step) == 13
    same(
        [state.params, state.average, state.optimiser], [good.params, good.average, good.optimiser]
    )
    later = run(loss_function, state, steps=60)  # it is ready to go on
    assert int(later.skipped) == 0
    assert not np.array_equal(later.params, state.params)


def test_five_in_a_row_may_lie_in_two_blocks():
    with pytest.raises(NonFiniteError, match=r"stopped at step 12, .* non-finite bowl"):
        run(faulty(range(7, 12), where="bowl"), steps=100)
    assert int(run(faulty(range(7, 11), where="bowl"), steps=12).skipped) == 0


# --- restarts ------------------------------------------------------------------------------------


def restarts(loss_function, keys: Array, *, steps: int, **options):
    begin = jax.vmap(lambda p: start(p, optimiser()))(
        jnp.outer(jnp.arange(len(keys), dtype=jnp.float32), jnp.ones(3))
    )
    return fit(
        gradient_of(loss_function),
        begin,
        optimiser(),
        steps=steps,
        block=10,
        decay=0.5,
        key=keys,
        **options,
    )


def test_restarts_are_separate_fits():
    keys = jr.split(KEY, 2)
    together = restarts(loss, keys, steps=25)
    alone = run(loss, start(jnp.full(3, 1.0), optimiser()), steps=25, decay=0.5, key=keys[1])
    for a, b in zip(jax.tree.leaves(together), jax.tree.leaves(alone), strict=True):
        np.testing.assert_allclose(a[1], b, rtol=1e-4, atol=1e-6)


def test_a_fault_of_one_restart_is_its_own():
    keys = jr.split(KEY, 3)
    seen = []
    clean = restarts(loss, keys, steps=20, on_step=seen.append)
    faulted = restarts(faulty(range(5, 8), key=keys[1]), keys, steps=20)
    for i in (0, 2):
        same([x[i] for x in jax.tree.leaves(faulted)], [x[i] for x in jax.tree.leaves(clean)])
    assert not np.array_equal(faulted.params[1], clean.params[1])
    with pytest.raises(
        NonFiniteError, match=r"stopped at step 10, .* non-finite ridge of restart 1, "
    ) as caught:
        restarts(faulty(range(5, 100), key=keys[1]), keys, steps=20)
    ten = seen[0].state
    for i in (0, 2):
        same(
            [x[i] for x in jax.tree.leaves(caught.value.state)],
            [x[i] for x in jax.tree.leaves(ten)],
        )


# --- what may be trained -------------------------------------------------------------------------


def test_a_module_is_trained_under_strict_promotion():
    class Line(eqx.Module):
        slope: Array
        name: str

    params, rest = eqx.partition(Line(jnp.zeros(()), "line"), eqx.is_inexact_array)
    state = fit(
        gradient_of(
            lambda p, key: {"square": (eqx.combine(p, rest).slope - 3 + 0 * jr.normal(key)) ** 2}
        ),
        start(params, optax.adam(0.1)),
        optax.adam(0.1),
        steps=200,
        key=KEY,
    )
    assert jax.config.jax_numpy_dtype_promotion == "strict"
    np.testing.assert_allclose(state.params.slope, 3.0, atol=0.01)
    assert state.params.slope.dtype == jnp.float32


def test_a_block_has_at_least_one_step():
    with pytest.raises(InvalidValueError, match="the steps of a block"):
        run(loss, steps=3, block=0)


def test_a_batch_that_does_not_fit_a_device_is_trained_in_turn(monkeypatch):
    """On a device that trains a batch at once, a limit decides; the parameters are the same."""
    optimiser = optax.adam(0.1)
    state = start_batch(jnp.arange(6.0).reshape(3, 2), optimiser)
    keys = jr.split(jr.key(0), 3)

    def gradient(params, key):
        return {"loss": (params**2).sum()}, 2 * params + jr.normal(key, params.shape)

    monkeypatch.setattr(fit_module, "at_once", lambda: True)
    seen = []
    whole = fit_module._some_of_batch
    monkeypatch.setattr(
        fit_module,
        "_some_of_batch",
        lambda run, *, together: (seen.append(together), whole(run, together=together))[1],
    )
    found = []
    for limit in (None, 10**9, 1):
        monkeypatch.setattr(fit_module, "device_memory", lambda limit=limit: limit)
        found.append(fit(gradient, state, optimiser, steps=3, key=keys).params)
    assert seen == [True, True, False]
    for each in found:
        np.testing.assert_allclose(each, found[0], rtol=1e-6)


def test_a_loss_is_traced_once():
    """Tracing is most of what a short run takes when all is compiled before."""
    traced = []

    def counted(params: Array, key: Array) -> dict[str, Array]:
        traced.append(1)
        return loss(params, key)

    run(counted, steps=5, block=2)
    assert len(traced) == 1
