"""Limits of an experiment and the constraint of its task hold together, for a policy as it was
trained and for a refined one.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from live_runs import make_run

from scorebed.errors import InvalidValueError, ScorebedError
from scorebed.policies import make_policy
from scorebed.rollout import draw_noise, rollout
from scorebed.runs.load import load
from scorebed.runs.user_task import read_task
from scorebed.session import refine
from scorebed.session.events import Limits
from scorebed.session.remaining import ConfinedPolicy, FeasibleDesigns, remaining_experiment
from scorebed.session.session import Session
from scorebed.tasks.constraints import feasible_range
from scorebed.tasks.declare import ordered, ranges, steps_at_most

# Readings at rising times, half an hour apart; the dose may change by one at a time. The reading
# tells the rate.
TIMES = """
import jax.numpy as jnp
import numpyro.distributions as dist
from scorebed.tasks.base import IID, Gaussian
from scorebed.tasks.declare import measured, ordered, parameters, ranges, steps_at_most


class Times(IID, Gaussian):
    horizon = 4
    prior = parameters({"rate [1/h]": dist.Normal(0.0, 1.0)})
    designs = ranges({"time [h]": (0.0, 8.0), "dose [mg]": (0.0, 4.0)})
    constraint = ordered("time", gap=0.5) & steps_at_most({"dose": 1.0})
    outcomes = measured("level")
    additive_noise = True

    def mean(self, theta, state, xi):
        return jnp.stack([theta[0] * xi[0] * (1.0 + xi[1])])

    def scale(self, theta, state, xi):
        return [1.0]
"""
LOW, HIGH = (1.2, 0.5), (3.0, 2.0)  # four times have room, and little of it


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("times")
    (folder / "times.py").write_text(TIMES)
    own = read_task(f"{folder / 'times.py'}:Times")
    return load(make_run(folder / "run", own.name), task=own)


@pytest.fixture
def session(run, db):
    with Session.create(run, db=db, experiment="bench", seed=3) as made:
        yield made


def obeys(designs, low=LOW, high=HIGH):
    """Both, step by step, in plain numbers."""
    xis = np.asarray(designs)
    ordered_ = np.diff(xis[:, 0]) >= 0.5 - 1e-4
    small = np.abs(np.diff(xis[:, 1])) <= 1.0 + 1e-4
    inside = (xis >= np.asarray(low) - 1e-4) & (xis <= np.asarray(high) + 1e-4)
    return bool(ordered_.all() and small.all() and inside.all())


def test_any_designs_that_are_wanted_become_ones_that_obey_both():
    """The law, on random wishes: in limits that have room for all of them, the nearest design is
    never without a next one. Clipped to the limits alone, most of these sequences break the order.
    """

    space = ranges({"time": (0.0, 8.0), "dose": (0.0, 4.0)})
    reach = feasible_range(space, 4, ordered("time", gap=0.5) & steps_at_most({"dose": 1.0}))
    room = FeasibleDesigns(reach, Limits((3.0, None), (4.6, 2.0)), 4)

    @jax.jit
    def walk(frees):
        def step(previous, data):
            free, t = data
            wanted = reach.place(free, previous, t)
            low, high = room.interval(previous, t)
            xi = jnp.clip(wanted, low, high)
            return xi, (xi, low <= high)

        return jax.lax.scan(step, reach.start(), (frees, jnp.arange(4)))[1]

    frees = jr.uniform(jr.key(0), (200, 4, 2)) * jnp.asarray([8.0, 4.0])
    xis, fits = jax.vmap(walk)(frees)
    assert bool(fits.all())
    assert all(obeys(each, (3.0, 0.0), (4.6, 2.0)) for each in np.asarray(xis))
    naive = np.clip(np.asarray(jax.vmap(reach.obey)(frees)), (3.0, 0.0), (4.6, 2.0))
    assert sum(obeys(each, (3.0, 0.0), (4.6, 2.0)) for each in naive) < 100


def test_proposals_obey_both_whatever_the_outcomes(run, session):
    session.limit(LOW, HIGH)
    for y in (3.0, -2.0, 7.0, 0.5):
        session.propose()
        session.exchange(y)
    designs = [record.proposal.design for record in session.state.records]
    assert obeys(designs)
    assert any(record.proposal.wanted is not None for record in session.state.records)
    assert bool(run.task.feasible.holds(jnp.asarray(designs)))


def test_limits_without_room_are_refused_in_one_sentence(run, session, db):
    for low, high in (((None, None), (1.0, None)), ((6.7, None), (8.0, None))):
        with pytest.raises(
            InvalidValueError, match=r"leave no design for the steps to come.*rising order"
        ):
            session.limit(low, high)
        with pytest.raises(InvalidValueError, match="leave no design"):
            Session.create(run, db=db, limits=(low, high))
    assert session.state.limits is None
    session.observe(1.0, (2.0, 3.5))
    with pytest.raises(InvalidValueError, match="changing by at most 1 mg"):
        session.limit((None, None), (None, 2.0))  # the last dose was 3.5
    session.limit((None, None), (None, 2.6))
    session.set_horizon(2)
    session.limit((6.7, None), (8.0, None))  # one step has room where three have none


def test_a_design_elsewhere_that_leaves_no_room_is_told_and_the_experiment_goes_on(session):
    session.limit((None, None), (3.0, None))
    session.exchange(1.0, (4.0, 1.0))  # past the limit, and it is what happened
    with pytest.raises(
        ScorebedError, match=r"the design of step 2, got limits that leave none.*Fix: widen"
    ):
        session.propose()
    assert len(session.state.records) == 1
    session.limit()
    assert session.propose().design[0] >= 4.5 - 1e-4


@pytest.mark.slow
def test_what_is_refined_is_trained_and_acts_under_both(run, session, monkeypatch):
    """The rollouts that refining trains on obey, and so do the refined policy's proposals."""
    session.limit(LOW, HIGH)
    session.propose()
    session.exchange(2.0)
    known = session.state
    rest = remaining_experiment(run.task, run.policy, known, np.zeros((8, 1)))
    assert isinstance(rest.policy.policy, ConfinedPolicy)
    before = known.records[0].used

    @eqx.filter_jit
    def rolled(policy, key):
        theta = rest.task.prior.sample(key=key)
        return rollout(rest.task, policy, theta, draw_noise(rest.task, policy, key=key)).xis

    wild = eqx.tree_at(
        lambda p: p.policy.inside.inside.emitter.weight,
        rest.policy,
        replace_fn=lambda weight: 30 * weight,
    )
    for policy in (rest.policy, wild):
        for seed in range(6):
            assert obeys([before, *np.asarray(rolled(policy, jr.key(seed)))])
    # Refined: any other policy of the same shape, taken for better.
    other = eqx.tree_at(
        lambda c: c.policy.inside, rest.policy, make_policy("dad", run.task, key=jr.key(9))
    )

    def instant(*_, **__):
        some = refine.Remaining(0.5, 0.6, 0.01)
        return refine.RefinedPolicy(
            other.policy, "pce", 10, 0.1, some, refine.Remaining(0.9, 1.0, 0.01), 0.4, 0.01
        )

    monkeypatch.setattr("scorebed.session.refine.refine_policy", instant)
    assert session.refine(5.0).kept
    for y in (-1.0, 4.0):
        session.propose()
        session.exchange(y)
    assert obeys([record.proposal.design for record in session.state.records])
    again = Session.open(run, db=session.path, experiment="bench")
    assert again.propose() == session.propose()  # the stored policy is the plain one
    again.close()


@pytest.mark.slow
def test_a_policy_is_refined_under_both_from_end_to_end(session, monkeypatch):
    """From a time that tells little, within limits: later ones tell more, and the gradient reaches
    past the limit.
    """
    for name, size in (("OUTER", 256), ("EVALUATION_INNER", 255), ("INNER", 31)):
        monkeypatch.setattr(refine, name, size)
    session.limit(LOW, HIGH)
    session.observe(2.0, (1.4, 0.6))
    found = session.refine(30.0)
    assert found.steps > 0
    for y in (-1.0, 4.0, 1.0):
        session.propose()
        session.exchange(y)
    assert obeys([(1.4, 0.6), *(record.proposal.design for record in session.state.records[1:])])
