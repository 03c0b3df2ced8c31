"""The policy that plans to the end again after every outcome: what it expects against closed forms,
and that it takes the best plan that it finds.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from oracles import Accumulation
from scorebed.errors import InvalidValueError
from scorebed.inference.modes import Data, point
from scorebed.policies.informative_plans import (
    FIRST,
    designs_at,
    expected,
    information,
    informative_plans,
)
from scorebed.policies.receding_horizon import RecedingHorizon
from scorebed.policies.static import Static
from scorebed.rollout import simulate, simulate_outcomes
from scorebed.tasks.library.pendulum import Pendulum
from scorebed.tasks.oracles.linear_markov import LinearMarkov

LINEAR = LinearMarkov(prior_scale=1.3, noise=0.6, horizon=4)
PLANS = np.asarray([[0.2, 0.1, 0.0, 0.0], [0.9, -0.9, 0.8, 0.7], [0.0, 0.0, 0.0, 0.0]])[..., None]


@pytest.fixture(scope="module")
def policy():
    return RecedingHorizon(LINEAR, draws=2, rounds=1, plans=jnp.asarray(PLANS), key=jr.key(0))


def told(policy, xis, ys):
    def step(memory, data):
        return policy.update(memory, *data), None

    return jax.jit(lambda: jax.lax.scan(step, policy.init(), (xis, ys))[0])()


def data():
    return jnp.asarray([[0.5], [-0.4]]), jnp.asarray([[0.9], [0.2]])


def in_half_widths(xis):
    return LINEAR.designs.normalise(xis)


def test_the_information_of_a_plan_is_that_of_the_linear_model():
    """Whatever happens on the way. Of steps that are not left there is none."""
    vs, noise = jnp.asarray(PLANS[1]), jr.normal(jr.key(1), (4, 1))
    for left in (4, 2):
        rows = jnp.arange(4) < left
        found = information(LINEAR, jnp.ones(1), jnp.zeros(1), jnp.eye(1), vs, noise, rows)
        assert found == pytest.approx(float(LINEAR.eig(designs_at(LINEAR.designs, vs)[:left])))


def test_the_information_of_a_plan_is_the_curvature_at_the_end_of_its_experiment():
    task, z = Pendulum(horizon=5), jnp.asarray([0.3, -1.1])
    vs, noise = jr.uniform(jr.key(0), (5, 1), minval=-1), jr.normal(jr.key(1), (5, 2))
    xis = designs_at(task.designs, vs)
    ys = jax.jit(simulate_outcomes)(task, task.prior.from_latent(z), xis, noise)
    data = Data(ys, task.states_before(ys), xis, jnp.ones(5, bool))
    curvature = jax.jit(lambda: point(task, z, data).curvature)()
    found = information(task, z, task.start(), jnp.eye(2), vs, noise, jnp.ones(5, bool))
    assert found == pytest.approx(0.5 * float(jnp.linalg.slogdet(curvature)[1]))


def test_the_search_ends_at_the_best_inputs_of_a_linear_model(monkeypatch):
    """All at the edge of the box. Plans come best first."""
    monkeypatch.setattr("scorebed.policies.informative_plans.FURTHER", FIRST)
    found = informative_plans(LINEAR, 2, key=jr.key(0))
    np.testing.assert_allclose(jnp.abs(found), 1, atol=1e-6)
    few = informative_plans(Pendulum(horizon=6), 3, key=jr.key(1))
    values = [expected(Pendulum(horizon=6), jr.key(2), 512)(vs) for vs in few]
    assert values[0] >= max(values) - 0.02


def test_it_knows_the_posterior_and_the_state(policy):
    xis, ys = data()
    memory = told(policy, xis, ys)
    posterior = LINEAR.posterior(ys, xis)
    scale = LINEAR.prior_scale
    assert memory.z[0] == pytest.approx(float(posterior.mean[0]) / scale, rel=1e-4)
    assert memory.curvature[0, 0] == pytest.approx(scale**2 / float(posterior.covariance[0, 0]))
    np.testing.assert_array_equal(memory.state, ys[-1])


def test_what_it_expects_of_a_plan_is_the_information_by_the_end(policy):
    """Of the two steps that are left, of which a plan has the designs first."""
    xis, ys = data()
    later = jnp.asarray([[0.7], [-1.5], [9.0], [9.0]])
    found = policy.outlook(told(policy, xis, ys), in_half_widths(later))
    assert found == pytest.approx(float(LINEAR.eig(jnp.concatenate([xis, later[:2]]))))


def test_it_goes_on_with_the_best_plan_that_it_has(policy):
    """Its first design is that of the first plan, which is poor; the rest of the second plan, moved
    by the steps that were taken, is better, and a step uphill is better still.
    """
    xis, ys = data()
    first = policy.design(policy.init(), jnp.zeros(0))
    np.testing.assert_allclose(first, 2 * PLANS[0, 0])
    after = policy.update(policy.init(), xis[0], ys[0])
    chosen, rest = after.plan[:3, 0], PLANS[1, 1:, 0]
    assert (jnp.sign(chosen) == jnp.sign(rest)).all()
    assert (jnp.abs(chosen) > jnp.abs(rest)).all()


def test_a_plan_is_never_given_up_for_a_worse_one(policy):
    xis, ys = data()
    memory = told(policy, xis, ys)
    best = eqx.tree_at(lambda m: m.plan, memory, jnp.ones((4, 1)))
    np.testing.assert_array_equal(policy.replanned(best)[:2], jnp.ones((2, 1)))


def test_likelihood_evaluations_are_counted(policy):
    """Five passes over every history for the mode, and the simulations of the rest."""
    assert policy.design_nle == 5 * (1 + 2 + 3 + 4) + 2 * (4 + 3 + 2) * (1 + 2 + 3)


def test_it_refuses_what_it_cannot_plan():
    with pytest.raises(InvalidValueError, match="Gaussian outcomes"):
        RecedingHorizon(Accumulation(), plans=jnp.asarray(PLANS), key=jr.key(0))
    with pytest.raises(InvalidValueError, match="an even number of draws"):
        RecedingHorizon(LINEAR, draws=3, plans=jnp.asarray(PLANS), key=jr.key(0))


@pytest.mark.slow
def test_feedback_adds_to_the_plan_that_it_starts_from():
    """Expected information of 256 experiments in pairs; without feedback there is no difference."""
    task = Pendulum(horizon=25)
    policy = RecedingHorizon(task, sequences=8, key=jr.key(0))
    static = Static.from_designs(designs_at(task.designs, policy.plans[0]), task.designs)

    @jax.jit
    def gain(policy, key):
        run = simulate(task, policy, key=key)
        z = jnp.log(run.theta) / 0.1
        data = Data(run.ys, task.states_before(run.ys), run.xis, jnp.ones(25, bool))
        return 0.5 * jnp.linalg.slogdet(point(task, z, data).curvature)[1]

    keys = jr.split(jr.key(1), 256)
    difference = np.asarray(jax.vmap(lambda key: gain(policy, key) - gain(static, key))(keys))
    assert difference.mean() > 3 * difference.std() / 16
