"""One scan, one experiment: laws of `rollout.py` on every kind of task."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jaxtyping import Array, Float

from scorebed.errors import ScorebedError
from scorebed.policies.random import Replay
from scorebed.rollout import (
    TILE,
    Noise,
    draw_noise,
    log_likelihood,
    log_likelihoods,
    rollout,
    simulate_outcomes,
)
from scorebed.tasks import TASKS, make_task
from scorebed.tasks.base import Gaussian, History
from scorebed.tasks.priors import standard_normal
from scorebed.tasks.spaces import Quantity, Real


class Washout(History, Gaussian):
    """A dose-like recursion: the state is the amount left, which depends on θ and on every design
    so far.
    """

    horizon: int = eqx.field(static=True, default=5)
    prior: eqx.Module = standard_normal((Quantity("rate"),))
    designs: Real = eqx.field(static=True, default=Real((Quantity("dose", "mg"),)))
    outcomes: tuple = eqx.field(static=True, default=(Quantity("amount", "mg"),))
    additive_noise: bool = eqx.field(static=True, default=True)

    def initial(self, theta: Float[Array, " k"]) -> Float[Array, ""]:
        return jnp.zeros((), theta.dtype)

    def advance(self, theta, state, xi, y):
        del y
        return state * jax.nn.sigmoid(theta[0]) + xi[0]

    def mean(self, theta, state, xi):
        return (state * jax.nn.sigmoid(theta[0]) + xi[0])[None]

    def scale(self, theta, state, xi):
        del theta, state, xi
        return (0.3,)


EVERY = {
    name: TASKS[name] for name in ("location-finding", "pendulum", "double-link", "gravimetry")
} | {"history": Washout}


@pytest.fixture(params=EVERY, ids=str)
def experiment(request):
    """(task, θ, ys, xis, noise) of one experiment with designs fixed beforehand."""
    task = EVERY[request.param](horizon=6)
    theta = task.prior.sample(key=jr.key(0))
    xis = task.designs.constrain(jr.normal(jr.key(1), (task.horizon, task.designs.dim)))
    noise = jr.normal(jr.key(2), (task.horizon, task.outcome_dim))
    return task, theta, simulate_outcomes(task, theta, xis, noise), xis, noise


def test_a_loop_in_python_gives_the_same_outcomes(experiment):
    task, theta, ys, xis, noise = experiment
    state = task.initial(theta)
    for t in range(task.horizon):
        y = task.outcome(theta, state, xis[t], noise[t])
        np.testing.assert_allclose(y, ys[t], rtol=1e-4, atol=1e-5)
        state = task.advance(theta, state, xis[t], y)


def test_likelihood_is_the_sum_over_steps(experiment):
    task, theta, ys, xis, _ = experiment
    state, total = task.initial(theta), 0.0
    for t in range(task.horizon):
        total += float(task.log_prob(ys[t], theta, state, xis[t]))
        state = task.advance(theta, state, xis[t], ys[t])
    np.testing.assert_allclose(log_likelihood(task, theta, ys, xis), total, rtol=1e-5)


def test_many_likelihoods_are_each_the_likelihood(experiment):
    task, _, ys, xis, _ = experiment
    thetas = jax.vmap(lambda key: task.prior.sample(key=key))(jr.split(jr.key(3), 7))
    each = jax.vmap(lambda theta: log_likelihood(task, theta, ys, xis))(thetas)
    np.testing.assert_allclose(log_likelihoods(task, thetas, ys, xis), each, rtol=2e-5, atol=1e-3)


def test_compiled_equals_uncompiled(experiment):
    task, theta, ys, xis, noise = experiment
    eps = Noise(noise, xis)
    compiled = eqx.filter_jit(rollout)(task, Replay(), theta, eps)
    with jax.disable_jit():
        plain = rollout(task, Replay(), theta, eps)
    np.testing.assert_allclose(compiled.ys, plain.ys, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(plain.ys, ys, rtol=1e-4, atol=1e-5)


def test_a_batch_is_its_members(experiment):
    task, theta, ys, xis, noise = experiment
    both = jax.vmap(lambda e: rollout(task, Replay(), theta, Noise(e, xis)))(
        jnp.stack([noise, -noise])
    )
    np.testing.assert_allclose(both.ys[0], ys, rtol=1e-4, atol=1e-5)
    assert not np.allclose(both.ys[1], ys)


def test_outcomes_depend_on_no_later_design(experiment):
    task, theta, ys, xis, noise = experiment
    late = simulate_outcomes(task, theta, xis.at[-1].add(0.1), noise)
    np.testing.assert_array_equal(late[:-1], ys[:-1])
    assert not np.array_equal(late[-1], ys[-1])


def test_replay_refuses_to_draw():
    with pytest.raises(ScorebedError, match="Replay"):
        draw_noise(TASKS["pendulum"](), Replay(), key=jr.key(0))


def test_many_coordinates_in_tiles_are_as_without():
    task = make_task("location-finding-3d")
    assert TILE // task.prior.dim < 512
    thetas = jr.normal(jr.key(0), (512, task.prior.dim))
    ys, xis = jr.normal(jr.key(1), (task.horizon, 1)), jr.normal(jr.key(2), (task.horizon, 3))
    each = jax.jit(jax.vmap(lambda theta: log_likelihood(task, theta, ys, xis)))(thetas)
    np.testing.assert_allclose(
        jax.jit(lambda: log_likelihoods(task, thetas, ys, xis))(), each, rtol=2e-5, atol=1e-3
    )


def test_the_structure_says_whether_states_follow_from_the_data():
    kinds = {name: make() for name, make in EVERY.items()}
    traits = {
        name: (task.exchangeable_steps, task.exchangeable_transitions, task.states_follow_data)
        for name, task in kinds.items()
    }
    assert traits == {
        "location-finding": (True, False, True),
        "pendulum": (False, True, True),
        "double-link": (False, True, True),
        "gravimetry": (True, False, True),
        "history": (False, False, False),
    }
    with pytest.raises(ScorebedError, match="independent steps or Markov transitions"):
        kinds["history"].states_before(jnp.zeros((5, 1)))


def test_a_state_is_that_of_all_states():
    task, ys = make_task("pendulum"), jr.normal(jr.key(0), (4, 2))
    each = jnp.stack([task.state_before(ys, jnp.asarray(t)) for t in range(4)])
    np.testing.assert_array_equal(each, task.states_before(ys))
    iid = make_task("gravimetry")
    assert iid.states_before(ys) is None
    assert iid.state_before(ys, jnp.asarray(1)) is None
