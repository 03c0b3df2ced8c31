"""Designs that obey: the map keeps to its limits and has the density it says; policies, samplers
and references go through it.
"""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import numpyro.distributions as dist
import pytest

from scorebed.baselines.myopic import Myopic
from scorebed.check import check_task
from scorebed.errors import InvalidValueError, UnknownNameError
from scorebed.policies import make_policy
from scorebed.policies.base import StochasticPolicy
from scorebed.policies.constrained import obedient
from scorebed.policies.dad import DAD
from scorebed.policies.gru import GRUPolicy
from scorebed.policies.random import RandomDesigns
from scorebed.policies.static import Static
from scorebed.rollout import simulate
from scorebed.runs.user_task import read_task
from scorebed.samplers import UniformBox
from scorebed.samplers.constrained import ConstrainedDesigns
from scorebed.samplers.paper import paper_sampler, reference_sampler
from scorebed.samplers.spaced import spaced_designs
from scorebed.tasks.base import IID, Gaussian
from scorebed.tasks.constraints import feasible_range
from scorebed.tasks.declare import measured, ordered, parameters, ranges, steps_at_most, unbounded
from user_files import variant

T = 4
SPACES = {
    "box": ranges({"time [h]": (1.0, 9.0), "dose [mg]": (0.0, 4.0)}),
    "plane": unbounded("x [m]", "y [m]", scale=2.0),
}
CONSTRAINTS = {
    "in order": ("box", ordered("time")),
    "in order with a gap": ("box", ordered("time [h]", gap=0.5)),
    "small steps": (
        "box",
        steps_at_most({"dose [mg]": 1.5, "time": 2.0}, start={"dose [mg]": 1.0}),
    ),
    "both on one": ("box", ordered("time", gap=0.5) & steps_at_most({"time": 2.0})),
    "both on two": ("box", ordered("time", gap=0.5) & steps_at_most({"dose": 1.0})),
    "small steps without limits": ("plane", steps_at_most({"x": 0.5, "y": 3.0}, start={"y": -1.0})),
}


def feasible(name):
    space, constraint = CONSTRAINTS[name]
    return feasible_range(SPACES[space], T, constraint)


def free_choices(name, n=64):
    rng = np.random.default_rng(3)
    return SPACES[CONSTRAINTS[name][0]].constrain(jnp.asarray(rng.normal(size=(n, T, 2))))


QUICK = ("both on two", "small steps without limits")


@pytest.fixture(
    params=[
        name if name == QUICK[0] else pytest.param(name, marks=pytest.mark.slow)
        for name in CONSTRAINTS
    ]
)
def obeyed(request):
    with jax.enable_x64(True):
        limits, frees = feasible(request.param), free_choices(request.param)
        xis = jax.jit(jax.vmap(limits.obey))(frees)
        yield limits, frees, xis


def test_designs_obey_and_reach_both_ends(obeyed):
    limits, _, xis = obeyed
    assert jax.vmap(lambda xi: limits.holds(xi, slack=1e-12))(xis).all()
    low, high = jax.vmap(jax.vmap(limits.interval), in_axes=(0, None))(
        jax.vmap(limits.before)(xis), jnp.arange(T)
    )
    share = ((xis - low) / (high - low))[jnp.isfinite(low)]
    assert share.min() < 0.05
    assert share.max() > 0.9


def test_a_sequence_that_breaks_the_rule_is_seen():
    limits = feasible("both on two")
    good = jnp.asarray([[1.0, 0.0], [2.0, 1.0], [3.0, 0.0], [4.0, 0.5]])
    assert limits.holds(good)
    for row, column, value in ((1, 0, 1.4), (1, 1, 1.1), (3, 0, 9.1), (0, 0, 8.0)):
        assert not limits.holds(good.at[row, column].set(value)), (row, column)


def test_lifting_undoes_placing_and_knows_its_slope(obeyed):
    limits, frees, xis = obeyed
    steps = jnp.arange(T)
    place = jax.vmap(jax.vmap(jax.jacfwd(limits.place)), in_axes=(0, 0, None))
    before = jax.vmap(limits.before)(xis)
    found = jax.vmap(jax.vmap(limits.lift), in_axes=(0, 0, None))(xis, before, steps)
    inside = jnp.abs(limits.space.normalise(frees)) < (
        0.999 if hasattr(limits.space, "low") else 4.0
    )
    np.testing.assert_allclose(
        np.asarray(found.free)[inside], np.asarray(frees)[inside], rtol=1e-6, atol=1e-6
    )
    slopes = jax.jit(place)(frees, before, steps)
    assert not np.asarray(slopes[..., 0, 1]).any(), "coordinates do not mix"
    np.testing.assert_allclose(
        np.asarray(found.log_slope)[inside],
        np.log(np.asarray(jnp.diagonal(slopes, axis1=-2, axis2=-1)))[inside],
        atol=1e-4,
    )


def test_gradients_stay_finite_where_a_policy_has_gone_to_the_end_of_its_range():
    us = jnp.asarray([[30.0, -30.0], [-30.0, 30.0], [30.0, 30.0], [0.0, 0.0]])

    def obey(us):
        return [feasible(name).obey(SPACES[CONSTRAINTS[name][0]].constrain(us)) for name in QUICK]

    assert all(jnp.isfinite(slopes).all() for slopes in jax.jit(jax.jacrev(obey))(us))


# ---- random designs


def test_uniform_choices_become_uniform_designs_in_order():
    """Order statistics: E ξ_t = low + t/(T+1) · width; the density is T!/width^T wherever designs
    are in order.

    A share without the power 1/n would give means of 5, 7, 8, 8.5 in place of 2.6, 4.2, 5.8, 7.4,
    tens of standard errors away."""
    space = ranges({"time [h]": (1.0, 9.0)})
    sampler = ConstrainedDesigns(UniformBox(T, space), feasible_range(space, T, ordered()))
    n = 4096
    xis = np.asarray(jax.jit(jax.vmap(lambda k: sampler.sample(key=k)))(jr.split(jr.key(0), n)))[
        ..., 0
    ]
    assert (np.diff(xis, axis=1) > 0).all()
    expected = 1 + 8 * np.arange(1, T + 1) / (T + 1)
    assert (np.abs(xis.mean(0) - expected) <= 4.892 * xis.std(0) / n**0.5).all()
    log_q = jax.jit(jax.vmap(sampler.log_prob))(jnp.asarray(xis[:100, :, None]))
    np.testing.assert_allclose(log_q, math.log(math.factorial(T)) - T * math.log(8), atol=2e-3)
    assert sampler.log_prob(jnp.asarray(xis[0, ::-1, None])) == -jnp.inf


class Model(IID, Gaussian):
    """Something to measure in two coordinates."""

    horizon = T
    prior = parameters({"a": dist.Normal(0.0, 1.0)})
    designs = SPACES["box"]
    outcomes = measured("y")
    additive_noise = True
    constraint = ordered("time", gap=0.5) & steps_at_most({"dose": 1.0})

    def mean(self, theta, state, xi):
        del state
        return jnp.stack([theta[0] * xi[0] - theta[0] ** 2 * xi[1]])

    def scale(self, theta, state, xi):
        del theta, state, xi
        return [0.5]


OTHERS = [
    pytest.param(name, marks=pytest.mark.slow)
    for name in ("dad", "gru", "attention", "random", "reference", "spaced")
]


@pytest.mark.parametrize("name", ["static", *OTHERS])
def test_every_policy_obeys(name):
    task = Model()
    references = {
        "reference": lambda: RandomDesigns(reference_sampler(task)[0]),
        "spaced": lambda: Static.from_designs(spaced_designs(task), task.designs),
    }
    policy = references[name]() if name in references else make_policy(name, task, key=jr.key(1))
    runs = jax.jit(jax.vmap(lambda k: simulate(task, policy, key=k)))(jr.split(jr.key(2), 8))
    assert jax.vmap(task.feasible.holds)(runs.xis).all()


@pytest.mark.slow
def test_the_myopic_designer_obeys():
    task = Model()
    policy = Myopic(task, particles=32, outer=16, candidates=8, rounds=1, key=jr.key(0))
    run = eqx.filter_jit(lambda k: simulate(task, policy, key=k))(jr.key(2))
    assert task.feasible.holds(run.xis)


@pytest.mark.slow
def test_a_stochastic_policy_keeps_its_density():
    """log π(ξ | h) = log N(ε) − log |∂ξ/∂ε| at every step of an experiment."""
    with jax.enable_x64(True):
        task = Model()
        inside = GRUPolicy(
            task,
            encoder_hidden=(6,),
            encoding=4,
            state=3,
            layers=1,
            emitter_hidden=(6,),
            key=jr.key(0),
        )
        policy = obedient(task, inside)
        assert isinstance(policy, StochasticPolicy)
        memory = policy.init()
        for t in range(T):
            noise = jr.normal(jr.fold_in(jr.key(1), t), (2,))
            xi, jacobian = (
                policy.design(memory, noise),
                jax.jacfwd(lambda e, m=memory: policy.design(m, e))(noise),
            )
            exact = (
                -0.5 * (noise**2).sum() - math.log(2 * math.pi) - jnp.linalg.slogdet(jacobian)[1]
            )
            np.testing.assert_allclose(policy.log_prob(xi, memory), exact, atol=1e-5)
            memory = policy.update(memory, xi, jnp.asarray([0.3]))


def test_what_obeys_already_is_left_alone():
    task = Model()
    policy = make_policy("static", task, key=jr.key(0))
    assert obedient(task, policy) is policy
    assert not policy.adaptive
    assert not policy.inside.adaptive
    assert obedient(task, DAD(task, hidden=(2,), encoding=2, key=jr.key(0))).adaptive
    random = make_policy("random", task, key=jr.key(0))
    assert isinstance(random, RandomDesigns)
    assert isinstance(paper_sampler(task), ConstrainedDesigns)


def test_a_design_that_was_not_the_proposed_one_is_where_the_next_one_starts():
    task = Model()
    policy = make_policy("static", task, key=jr.key(0))
    memory = policy.update(policy.init(), jnp.asarray([8.0, 3.5]), jnp.zeros(1))
    xi = policy.design(memory, jnp.zeros(0))
    assert xi[0] >= 8.5
    assert 2.5 <= xi[1] <= 4.0
    late = policy.update(memory, jnp.asarray([9.0, 3.5]), jnp.zeros(1))
    assert (
        policy.design(late, jnp.zeros(0))[0] == 9.0
    )  # no room is left, and nothing is worse than the end


# ---- evenly spread designs


def test_spaced_designs_are_evenly_spread():
    line = type(
        "Line", (Model,), {"designs": ranges({"time [h]": (1.0, 9.0)}), "constraint": None}
    )()
    np.testing.assert_allclose(
        spaced_designs(line)[:, 0], [1.0, 1 + 8 / 3, 1 + 16 / 3, 9.0], rtol=1e-6
    )
    normal = type("Open", (Model,), {"designs": unbounded("x", scale=2.0), "constraint": None})()
    np.testing.assert_allclose(
        spaced_designs(normal)[:, 0], 2 * np.asarray([-1.1503, -0.3186, 0.3186, 1.1503]), atol=1e-3
    )
    flat = type("Flat", (Model,), {"constraint": None, "horizon": 16})()
    cells = {
        tuple(cell)
        for cell in np.floor(
            2 * (np.asarray(flat.designs.normalise(spaced_designs(flat))) + 1) / 1.001
        )
    }
    assert len(cells) >= 12, "of sixteen cells a dozen hold a design"


# ---- declarations

BAD = {
    "a gap below zero": (lambda: ordered("time", gap=-1.0), "a number from 0"),
    "no change": (lambda: steps_at_most({"dose": 0.0}), "a positive number"),
    "a start of nothing": (
        lambda: steps_at_most({"dose": 1.0}, start={"time": 1.0}),
        "whose change is limited",
    ),
    "no name": (lambda: feasible_range(SPACES["box"], T, ordered()), "got no name"),
    "no room": (
        lambda: feasible_range(SPACES["box"], T, ordered("time", gap=3.0)),
        "4 designs at least 3 apart",
    ),
    "order without limits": (
        lambda: feasible_range(SPACES["plane"], T, ordered("x")),
        "an unbounded design",
    ),
    "a start outside": (
        lambda: feasible_range(SPACES["box"], T, steps_at_most({"dose": 1.0}, start={"dose": 5.0})),
        "from 0 to 4",
    ),
    "at odds": (
        lambda: feasible_range(
            SPACES["box"], T, ordered("time", gap=1.0) & steps_at_most({"time": 0.5})
        ),
        "at least 1",
    ),
    "no constraint": (lambda: feasible_range(SPACES["box"], T, "time"), "got a str"),
}


@pytest.mark.parametrize("fault", BAD)
def test_a_wrong_constraint_says_what_is_wrong(fault):
    declare, words = BAD[fault]
    with pytest.raises(InvalidValueError, match=words):
        declare()


def test_an_unknown_design_is_answered_with_the_nearest():
    with pytest.raises(UnknownNameError, match="did you mean 'time'"):
        feasible_range(SPACES["box"], T, ordered("tme"))


def test_the_check_tells_a_wrong_constraint(tmp_path):
    name = variant(
        tmp_path,
        "ControlledSystem",
        ("    additive", "    constraint = 'small steps'\n    additive"),
    )
    (found,) = check_task(read_task(name).task, key=jr.key(0))
    assert (found.kind, "got a str" in found.sentence) == ("declaration", True)
