"""The policy that follows posterior modes: what it knows, how a gradient passes through it, that
order is nothing to it.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from scorebed.inference.modes import Data, value
from scorebed.policies.modes import SETTLED, Modes, by_rank
from scorebed.rollout import draw_noise, rollout
from scorebed.tasks.library.location import LocationFinding
from scorebed.tasks.library.pendulum import Pendulum
from scorebed.tasks.oracles.linear_gaussian import LinearGaussian

LINEAR = LinearGaussian(mean=(0.5, -1.0), covariance=((1.0, 0.3), (0.3, 0.5)), noise=0.7, horizon=4)


@pytest.fixture(scope="module")
def policy():
    # Anchors take seconds to compile; here the maps may be anything.
    shapes = eqx.filter_eval_shape(
        lambda key: Modes(LINEAR, particles=2, iterations=3, width=8, key=key), jr.key(0)
    )
    rng = np.random.default_rng(0)
    return jax.tree.map(
        lambda a: (
            jnp.asarray(0.3 * rng.normal(size=a.shape))
            if isinstance(a, jax.ShapeDtypeStruct)
            else a
        ),
        shapes,
    )


def told(policy, xis, ys):
    return jax.lax.scan(
        lambda memory, step: (policy.update(memory, *step), None), policy.init(), (xis, ys)
    )[0]


def data():
    rng = np.random.default_rng(1)
    return jnp.asarray(rng.uniform(-1, 1, size=(3, 2))), jnp.asarray(rng.normal(size=(3, 1)))


def test_it_knows_the_posterior_of_a_linear_model(policy):
    xis, ys = data()
    memory = jax.jit(lambda: told(policy, xis, ys))()
    root, x = np.asarray(LINEAR.prior.cholesky), np.asarray(xis)
    precision = np.eye(2) + root.T @ x.T @ x @ root / LINEAR.noise**2
    error = np.asarray(ys)[:, 0] - x @ np.asarray(LINEAR.prior.mean)
    mean = np.linalg.solve(precision, root.T @ x.T @ error / LINEAR.noise**2)
    np.testing.assert_allclose(memory.best, mean, atol=1e-5)
    np.testing.assert_allclose(memory.spread, np.sqrt(np.diag(np.linalg.inv(precision))), rtol=1e-5)


def test_the_gradient_through_the_mode_is_that_of_the_mode(policy):
    xis, ys = data()
    best = jax.jit(lambda ys: told(policy, xis, ys).best)
    slope = jax.jit(jax.jacrev(lambda ys: told(policy, xis, ys).best))(ys)[:, :, 0]
    for t in range(3):
        up, down = (best(ys.at[t, 0].add(e)) for e in (1e-3, -1e-3))
        np.testing.assert_allclose(slope[:, t], (up - down) / 2e-3, atol=1e-3)


def test_the_order_of_independent_steps_does_not_matter(policy):
    xis, ys = data()
    design = jax.jit(lambda xis, ys: policy.design(told(policy, xis, ys), jnp.zeros(0)))
    np.testing.assert_allclose(design(xis, ys), design(xis[::-1], ys[::-1]), atol=1e-5)


def test_rows_that_were_not_measured_yet_are_not_read(policy):
    """Padding of zeros would hide a mask that is off by one. The second step writes row 1."""
    xis, ys = data()

    @jax.jit
    def after(poison, row):
        before = told(policy, xis[:1], ys[:1])
        rows = before.ys.at[row].set(poison), before.xis.at[row].set(-poison)
        memory = policy.update(eqx.tree_at(lambda m: (m.ys, m.xis), before, rows), xis[1], ys[1])
        return memory.best, memory.spread, policy.design(memory, jnp.zeros(0))

    for row in (1, 2, 3):
        for clean, poisoned in zip(after(0.0, row), after(1e3, row), strict=True):
            np.testing.assert_allclose(poisoned, clean, rtol=1e-5)


@pytest.mark.slow
def test_markov_transitions_start_from_the_outcome_before():
    task = Pendulum(horizon=4)
    policy = Modes(task, particles=1, iterations=25, width=4, key=jr.key(0))
    noise = draw_noise(task, policy, key=jr.key(1))
    run = jax.jit(lambda: rollout(task, policy, jnp.asarray([1.1, 0.9]), noise))()
    memory = jax.jit(lambda: told(policy, run.xis, run.ys))()
    states = jnp.concatenate([task.start()[None].astype(run.ys.dtype), run.ys[:-1]])
    data = Data(run.ys, states, run.xis, jnp.ones(4, bool))
    slope = jax.jit(jax.grad(lambda z: value(task, z, data)))(memory.best)
    np.testing.assert_allclose(slope, 0, atol=1e-3)


def test_training_leaves_the_model_alone_and_moves_the_rest(policy):
    xis, ys = data()

    def designed(policy):
        return policy.design(told(policy, xis, ys), jnp.zeros(0)).sum()

    gradient = eqx.filter_jit(eqx.filter_grad(designed))(policy)
    assert all((np.asarray(leaf) == 0).all() for leaf in jax.tree.leaves(gradient.task))
    assert all(
        np.abs(leaf).max() > 0
        for leaf in jax.tree.leaves((gradient.maps, gradient.shifts, gradient.free))
    )


def test_what_its_designs_cost(policy):
    assert policy.design_nle == (2 * (2 * 3 + 1) + 1) * (1 + 2 + 3 + 4)


def test_the_best_known_part_comes_first_and_settled_ones_last():
    best = jnp.arange(8.0)
    spread = jnp.asarray([0.5, 0.7, 0.1, 0.1, SETTLED / 2, SETTLED / 2, 0.3, 0.4])
    found, spreads = by_rank(best, spread, 4)
    np.testing.assert_array_equal(found, [2, 3, 6, 7, 0, 1, 4, 5])
    np.testing.assert_array_equal(spreads, spread[found.astype(int)])
    for order in ([3, 1, 0, 2], [1, 0, 3, 2]):
        again = by_rank(
            *(a.reshape(4, 2)[jnp.asarray(order)].reshape(-1) for a in (best, spread)), 4
        )
        np.testing.assert_array_equal(again[0], found)


def test_among_many_sources_it_starts_at_the_best_known():
    """Five sources are more than four heads. Six outcomes around one of them tell its place and
    little of the others'.
    """
    task = LocationFinding(sources=5, horizon=7)
    policy = eqx.filter_jit(lambda: Modes(task, iterations=8, key=jr.key(0)))()
    theta = jnp.asarray([1.0, 0.5, -2.0, -2.0, -2.0, 2.0, 2.0, -2.0, -1.5, 0.0])
    around = jnp.asarray(
        [[0.0, 0.2], [0.2, 0.0], [-0.2, 0.0], [0.0, -0.2], [0.1, 0.1], [-0.1, 0.1]]
    )
    xis = theta[:2] + around
    ys = jax.vmap(lambda xi: task.mean(theta, None, xi))(xis)
    memory = jax.jit(lambda: told(policy, xis, ys))()
    assert (np.asarray(memory.spread[:2]) < 0.2).all()
    assert (np.asarray(memory.spread).reshape(5, 2).max(1)[1:] > 0.5).all()
    np.testing.assert_allclose(memory.best[:2], theta[:2], atol=0.05)
    np.testing.assert_allclose(policy.design(memory, jnp.zeros(0)), theta[:2], atol=0.15)
