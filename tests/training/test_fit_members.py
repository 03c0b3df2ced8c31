"""Some members of a batch go on and others stop: whoever goes on learns what it would have learned
among all.
"""

import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest
from jaxtyping import Array

from scorebed.training import fit as loop
from scorebed.training.fit import (
    FitState,
    Only,
    StepInfo,
    fit,
    fit_batch,
    gradient_of,
    member_keys,
    start_batch,
)

KEY = jr.key(3)
TARGET = jnp.asarray([1.0, -2.0, 0.5])
# Who goes on from which step.
STAGES = {10: (1, 4), 20: (4,)}


def optimiser() -> optax.GradientTransformation:
    return optax.chain(
        optax.clip_by_global_norm(1.0), optax.adam(optax.cosine_decay_schedule(0.05, 60))
    )


def loss(params: Array, key: Array) -> dict[str, Array]:
    """A noisy bowl; nonlinear, so that the order of operations would show in the last bits."""
    return {"bowl": ((jnp.sin(params) - TARGET + jr.normal(key, (3,))) ** 2).sum()}


def trained(
    *, steps: int = 30, state: FitState | None = None, on_step=lambda _: None, members=None
) -> FitState:
    state = state or start_batch(
        jnp.outer(jnp.arange(5, dtype=jnp.float32), jnp.ones(3)), optimiser()
    )
    keys = member_keys(5, key=KEY)
    how = {
        "steps": steps,
        "block": 10,
        "decay": 0.5,
        "on_step": on_step,
        "members": members,
        "key": keys,
    }
    return fit(gradient_of(loss), state, optimiser(), **how)


def stop_some(info: StepInfo) -> Only | None:
    return Only(STAGES[info.step]) if info.step in STAGES else None


def row(state: FitState, number: int) -> list[np.ndarray]:
    return [np.asarray(leaf[number]) for leaf in jax.tree.leaves(state)]


@pytest.mark.parametrize("together", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_who_goes_on_ends_as_among_all_and_who_stops_stays(monkeypatch, together):
    monkeypatch.setattr(loop, "at_once", lambda: together)
    whole, seen = {}, []
    trained(on_step=lambda info: whole.update({info.step: info.state}))
    found = trained(on_step=lambda info: seen.append(info) or stop_some(info))
    for number, last in enumerate((10, 20, 10, 10, 30)):
        # In turn it is exact; by `vmap` sums may be taken in another order.
        for ours, theirs in zip(row(found, number), row(whole[last], number), strict=True):
            np.testing.assert_allclose(
                ours, theirs, rtol=1e-4 if together else 0, atol=1e-6 if together else 0
            )
    for info, going in zip(seen, ((0, 1, 2, 3, 4), *STAGES.values()), strict=True):
        assert np.isfinite(info.terms["bowl"]).all(0).nonzero()[0].tolist() == list(going)
        assert np.isnan(np.delete(info.terms["bowl"], going, axis=1)).all()


def test_a_training_that_stopped_some_goes_on_with_the_others():
    seen = {}
    whole = trained(on_step=lambda info: seen.update({info.step: info.state}) or stop_some(info))
    found = trained(state=seen[20], members=STAGES[20])
    for ours, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(whole), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert trained(state=whole, steps=40).step.tolist() == [10, 20, 10, 10, 40]


def test_the_key_of_a_member_follows_from_its_number_alone():
    few, many = (jr.key_data(member_keys(count, key=KEY)) for count in (3, 50))
    np.testing.assert_array_equal(few, many[:3])
    assert len({tuple(data) for data in many.tolist()}) == 50


def test_members_of_a_batch_keep_their_keys_when_others_are_gone():
    """Catches keys by the position among those that are left, which would give number 2 the draws
    of number 0.
    """

    def run(members, **how) -> Array:
        keywords = {"steps": 10, "optimiser": optax.sgd(0.1), "block": 10, "key": KEY} | how
        return fit_batch(
            lambda _: gradient_of(loss), jnp.zeros((3, 3)), members=members, **keywords
        )

    whole = run(None)
    np.testing.assert_array_equal(run((2,))[2], whole[2])
    assert not np.array_equal(whole[0], whole[2]), (
        "all start at the same point: only their draws differ"
    )


TWO_DEVICES = """
import jax, jax.numpy as jnp, jax.random as jr, numpy as np, optax
from scorebed._sharding import device_mesh
from scorebed.policies.static import Static
from scorebed.scores.exact import ExactScore
from scorebed.tasks.oracles.linear_gaussian import LinearGaussian
from scorebed.training.fit import Only, fit_batch
from scorebed.training.policy import policy_gradient

task, found = LinearGaussian(), []
make = jax.vmap(lambda u: Static(jnp.full((3, 1), u), task.designs))
policies = make(jnp.asarray([0.1, 0.2, 0.3]))
for count in (1, 2):
    with device_mesh(count):
        trained = fit_batch(
            lambda rest: policy_gradient(rest, task, ExactScore(task), batch=8),
            policies, steps=6, block=2,
            optimiser=optax.adam(0.1), on_step=lambda info: Only((0, 2)), key=jr.key(0),
        )
        found.append(np.asarray(trained.us))
np.testing.assert_allclose(*found, rtol=1e-5)
assert len({tuple(row) for row in found[0][..., 0].tolist()}) == 3
print("equal")
"""


@pytest.mark.slow
def test_members_in_turn_share_their_batches_among_devices():
    environment = os.environ | {
        "XLA_FLAGS": "--xla_force_host_platform_device_count=2",
        "JAX_PLATFORMS": "cpu",
    }
    done = subprocess.run(
        [sys.executable, "-c", TWO_DEVICES],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "equal\n", done.stderr
