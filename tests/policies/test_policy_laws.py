"""What holds for every policy on every task: one table of constructors, and the laws of the
protocol.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from scorebed.policies import POLICIES
from scorebed.policies.attention import AttentionPolicy
from scorebed.policies.dad import DAD
from scorebed.policies.gru import GRUPolicy
from scorebed.policies.plan import Plan
from scorebed.policies.static import Static
from scorebed.rollout import Noise, draw_noise, rollout, simulate
from scorebed.tasks.library.gravimetry import Gravimetry
from scorebed.tasks.library.location import LocationFinding
from scorebed.tasks.library.pendulum import Pendulum
from scorebed.tasks.spaces import Box

T = 4
TASKS = {
    "location": (lambda: LocationFinding(horizon=T), [0.5, -0.4, -1.0, 0.3]),
    "pendulum": (lambda: Pendulum(horizon=T), [1.1, 0.9]),
    "gravimetry": (lambda: Gravimetry(horizon=T), [5.0, 10.0, -1000.0]),
}
SMALL = {
    "dad": lambda task, key: DAD(task, hidden=(6,), encoding=4, key=key),
    "gru": lambda task, key: GRUPolicy(
        task, encoder_hidden=(6,), encoding=4, state=3, layers=2, emitter_hidden=(6,), key=key
    ),
    "attention": lambda task, key: AttentionPolicy(
        task,
        encoder_hidden=(4,),
        fusion_hidden=(5,),
        width=6,
        heads=2,
        feed_forward=5,
        emitter_hidden=(5,),
        key=key,
    ),
    "plan": lambda task, key: Plan(task, width=5, key=key),
    "static": lambda task, key: Static.random(T, task.designs, key=key),
}
CASES = [
    ("dad", "location"),
    ("gru", "pendulum"),
    ("attention", "gravimetry"),
    ("static", "pendulum"),
    ("plan", "pendulum"),
]
ENSEMBLE = 3


class Case:
    """A task, an ensemble of policies, and one experiment of each, compiled once for all tests of
    the module.
    """

    def __init__(self, policy_name, task_name, filled):
        make_task, theta = TASKS[task_name]
        self.task, self.theta = make_task(), jnp.asarray(theta)
        self.policies = [
            filled(lambda key: SMALL[policy_name](self.task, key), seed) for seed in range(ENSEMBLE)
        ]
        rng = np.random.default_rng(7)
        width = self.task.designs.dim if policy_name == "gru" else 0
        self.noise = Noise(
            jnp.asarray(rng.normal(size=(T, self.task.outcome_dim))),
            jnp.asarray(rng.normal(size=(T, width))),
        )
        weights = [
            jnp.asarray(rng.normal(size=(T, d)))
            for d in (self.task.outcome_dim, self.task.designs.dim)
        ]

        def functional(policy):
            path = rollout(self.task, policy, self.theta, self.noise)
            return (weights[0] * path.ys).sum() + (
                weights[1] * self.task.designs.normalise(path.xis)
            ).sum(), path

        self.gradient, self.path = jax.jit(jax.grad(functional, has_aux=True))(self.policies[0])
        self.roll_many = jax.jit(jax.vmap(functional))


@pytest.fixture(scope="module", params=CASES, ids="-".join)
def case(request, filled):
    return Case(*request.param, filled)


def stack(policies):
    return jax.tree.map(lambda *leaves: np.stack(leaves), *policies)


def step_by_step(case, policy):
    """The experiment as it is carried out at the bench: no loop of ours, and nothing compiled."""
    task = case.task
    state, memory = task.initial(case.theta), policy.init()
    ys, xis = [], []
    for t in range(T):
        xis.append(policy.design(memory, case.noise.policy[t]))
        ys.append(task.outcome(case.theta, state, xis[-1], case.noise.outcome[t]))
        state, memory = (
            task.advance(case.theta, state, xis[-1], ys[-1]),
            policy.update(memory, xis[-1], ys[-1]),
        )
    return np.stack(ys), np.stack(xis)


def test_acting_step_by_step_is_the_compiled_rollout(case):
    """What is deployed is what was evaluated."""
    ys, xis = step_by_step(case, case.policies[0])
    np.testing.assert_allclose(case.path.ys, ys, rtol=1e-9)
    np.testing.assert_allclose(case.path.xis, xis, rtol=1e-9)


def test_an_ensemble_rolls_out_as_its_members_do(case):
    _, paths = case.roll_many(stack(case.policies))
    for i, policy in enumerate(case.policies):
        ys, xis = step_by_step(case, policy)
        np.testing.assert_allclose(paths.ys[i], ys, rtol=1e-9)
        np.testing.assert_allclose(paths.xis[i], xis, rtol=1e-9)
    assert np.ptp(paths.xis, axis=0).min() > 1e-3


def test_designs_lie_in_the_space_and_move(case):
    xis = np.asarray(case.task.designs.normalise(case.path.xis))
    assert np.isfinite(xis).all()
    assert np.ptp(xis, axis=0).min() > 1e-3
    if isinstance(case.task.designs, Box):
        assert np.abs(xis).max() < 1


def test_gradients_are_alive_everywhere_and_match_finite_differences(case):
    policy = case.policies[0]
    for path, leaf in jax.tree_util.tree_leaves_with_path(case.gradient):
        assert np.isfinite(leaf).all(), path
        assert np.abs(leaf).max() > 1e-7, path
    rng, h = np.random.default_rng(3), 1e-6
    direction = jax.tree.map(lambda a: rng.normal(size=a.shape), policy)
    moved = [
        jax.tree.map(lambda a, d, s=s: np.asarray(a) + s * h * d, policy, direction)
        for s in (-1, 0, 1)
    ]
    (low, _, high), _ = case.roll_many(stack(moved))
    slope = jax.tree.map(lambda g, d: np.sum(np.asarray(g) * d), case.gradient, direction)
    assert (high - low) / (2 * h) == pytest.approx(sum(jax.tree.leaves(slope)), rel=1e-6)


@pytest.mark.parametrize("task_name", TASKS)
@pytest.mark.parametrize(
    "policy_name",
    [
        pytest.param(name, marks=pytest.mark.slow) if name == "modes" else name
        for name in POLICIES
        if name != "lookahead"  # which is not for every task
    ],
)
def test_every_policy_of_the_paper_acts_on_every_task_in_either_precision(policy_name, task_name):
    """Traced, not run: shapes, types and the runtime checks of every signature at the paper's
    sizes.
    """
    for double in (False, True):
        with jax.enable_x64(double):
            task = TASKS[task_name][0]()
            dtype = jnp.float64 if double else jnp.float32

            def act(key, task=task):
                policy = POLICIES[policy_name](task, key=key)
                theta = jnp.ones(task.prior.dim)
                return simulate(task, policy, key=key), rollout(
                    task, policy, theta, draw_noise(task, policy, key=key)
                )

            drawn, given = eqx.filter_eval_shape(act, jr.key(0))
            for path in (drawn, given):
                assert path.ys.shape == (T, task.outcome_dim)
                assert path.xis.shape == (T, task.designs.dim)
            assert given.ys.dtype == given.xis.dtype == dtype


@pytest.mark.parametrize("policy_name", ["dad", "gru", "attention", "static"])
def test_constructors_map_over_keys(policy_name):
    task = TASKS["location"][0]()
    one = eqx.filter_eval_shape(lambda key: POLICIES[policy_name](task, key=key), jr.key(0))
    many = eqx.filter_eval_shape(
        eqx.filter_vmap(lambda key: POLICIES[policy_name](task, key=key)), jr.split(jr.key(0), 5)
    )
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(many), strict=True):
        assert b.shape == (5, *a.shape)
