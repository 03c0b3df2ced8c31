"""What the next k steps tell, against closed forms, and the advice that follows from it."""

import math

import numpy as np
import pytest
from live_runs import make_run

from scorebed import priced
from scorebed.errors import InvalidValueError
from scorebed.runs.load import load
from scorebed.runs.user_task import read_task
from scorebed.session.ahead import InformationAhead
from scorebed.session.session import Session
from scorebed.session.stopping import StoppingRule, advise

SURE = 4.892  # standard errors: one false alarm in a million


@pytest.fixture(scope="module")
def static(tmp_path_factory):
    """Designs that were fixed before: the information of any number of them is known exactly."""
    return load(make_run(tmp_path_factory.mktemp("static") / "run", policy="static"))


@pytest.fixture
def session(static, tmp_path):
    with Session.create(static, db=tmp_path / "live.sqlite", seed=3) as session:
        yield session


def exact(session):
    """½ log(1 + V Σ ξ²) of the next one, two, … designs, V the variance of the posterior."""
    task, state = session.task, session.state
    xis = np.asarray(task.designs.constrain(session.run.policy.us), np.float64)[:, 0]
    used = [record.used[0] for record in state.measured]
    V = 1 / (1 + np.square(used).sum())
    following = xis[len(used) :][: state.left]
    return 0.5 * np.log1p(V * np.cumsum(np.square(following)))


def test_bounds_contain_what_the_next_steps_tell_exactly(session):
    """Sees a policy that forgets what was measured, the prior in place of the posterior, and k off
    by one: each is off by more than 0.1 nats here. The errors are below 0.03.
    """
    for y in (None, 0.7, -1.3):
        if y is not None:
            session.propose()
            session.observe(y)
        found, truth = session.ahead(), exact(session)
        assert found.lower.shape == found.upper.shape == truth.shape == (session.state.left,)
        assert np.all(found.se < 0.03)
        assert np.all(found.lower - SURE * found.se <= truth)
        assert np.all(truth <= found.upper + SURE * found.se)
        assert np.all(found.lower <= found.upper)
        np.testing.assert_allclose(found.upper - found.lower, 0, atol=0.02)  # and they are tight
        assert not found.cost.any()


def test_bounds_hold_on_the_average_of_experiments(static, tmp_path):
    """The mean over 12 seeds, whose error is a third of that of one: 0.02 nats would be seen."""
    found, truths = [], []
    for seed in range(12):
        with Session.create(static, db=tmp_path / "live.sqlite", seed=seed) as session:
            session.propose()
            session.observe(0.5)
            found.append(session.ahead())
            truths.append(exact(session))
    lower, upper = (np.asarray([getattr(f, name) for f in found]) for name in ("lower", "upper"))
    se = lower.std(0, ddof=1) / math.sqrt(len(found))
    assert np.all(se < 0.008)
    assert np.all(lower.mean(0) - SURE * se <= truths[0])
    assert np.all(truths[0] <= upper.mean(0) + SURE * se)
    # The error that each of them states is that of the twelve among each other, within a factor.
    stated = np.sqrt(np.mean([f.se**2 for f in found], axis=0))
    assert np.all((stated / lower.std(0, ddof=1) > 0.4) & (stated / lower.std(0, ddof=1) < 2.5))


def test_of_random_designs_the_pending_one_counts(tmp_path):
    """They follow from the seed, so what the next step tells is that of its design, exactly."""
    run = load(make_run(tmp_path / "run", policy="random"))
    with Session.create(run, db=tmp_path / "live.sqlite", seed=1) as session:
        (xi,) = session.propose().design
        found = session.ahead()
        assert abs(found.upper[0] - 0.5 * math.log1p(xi**2)) < SURE * found.se[0]
        assert found.se[0] < 0.03
        # Of several at once those that wait come first, whatever was measured before them.
        _, second = session.ask(2)
        session.observe(0.3, proposal=second.id)
        found, gained = session.ahead(), 1 + second.design[0] ** 2
        assert abs(found.upper[0] - 0.5 * math.log1p(xi**2 / gained)) < SURE * found.se[0]


def test_limits_horizon_and_skips_are_those_of_the_experiment(session):
    wide = session.ahead().upper
    session.limit(-0.1, 0.1)
    assert np.all(session.ahead().upper < wide[: session.state.left])
    session.undo()
    session.set_horizon(2)
    np.testing.assert_allclose(session.ahead().upper, wide[:2])
    session.skip()
    np.testing.assert_allclose(session.ahead().upper[0], wide[0], atol=1e-6)  # nothing was learned


def test_it_is_a_function_of_the_data_alone_and_computed_once(session, static):
    session.propose()
    session.observe(0.7)
    found = session.ahead()
    session.propose()
    assert session.ahead() is found
    with Session.open(static, db=session.path, experiment=session.name) as again:
        np.testing.assert_array_equal(again.ahead().upper, found.upper)


@pytest.mark.parametrize("name", ["pendulum"])
def test_other_structures_have_it_too(name, tmp_path):
    """The first step ahead is what it is however many follow."""
    run = load(make_run(tmp_path / "run", name))
    with Session.create(run, db=tmp_path / "live.sqlite", seed=3) as session:
        session.propose()
        session.observe((0.3,) * session.task.outcome_dim)
        found = session.ahead()
        assert np.isfinite(found.lower).all()
        assert np.all(found.lower <= found.upper)
        assert len(found.lower) == session.state.left
        assert found.lower[-1] > found.lower[0]
        session.set_horizon(3)
        short = session.ahead()
        assert len(short.lower) == 2
        margin = SURE * np.hypot(short.se, found.se[:2])
        assert np.all(np.abs(short.lower - found.lower[:2]) < margin)


# ---- the rule


def steps(tells, costs=None, se=0.01):
    tells = np.asarray(tells, np.float64)
    costs = np.zeros_like(tells) if costs is None else np.asarray(costs, np.float64)
    ses = np.full_like(tells, se)
    return InformationAhead(tells - 0.05, tells, ses, costs, np.zeros_like(tells))


REAGENT = priced("reagent [mg]", lambda xi: xi[0], nats=0.1)


@pytest.mark.parametrize(
    ("tells", "costs", "price", "stop", "steps_ahead"),
    [
        # upper bounds plus two errors are 0.02 more than `tells`
        ([0.08], [1.0], 10.0, True, 1),  # worth 1.0, costs 1.0
        ([0.08], [0.99], 10.0, False, 1),
        ([0.08], [1.0], 10.1, False, 1),
        ([0.05, 0.38], [1.0, 2.0], 6.0, False, 2),  # one step does not pay, two do
        ([0.05, 0.38], [1.0, 2.0], 4.9, True, 2),
        ([0.05, 0.38, 0.4], [1.0, 2.0, 9.0], 6.0, False, 2),
    ],
)
def test_a_price_stops_where_no_number_of_steps_pays(tells, costs, price, stop, steps_ahead):
    rule = StoppingRule(price_per_nat=price)
    advice = advise(rule, steps(tells, costs), REAGENT)
    assert advice.stop == stop
    assert ("time to stop" in advice.sentence) == stop
    assert "mg" in advice.sentence
    assert advice.steps == steps_ahead
    assert advice.tells == pytest.approx(tells[steps_ahead - 1] + 0.02)


@pytest.mark.parametrize(
    ("tells", "threshold", "stop"),
    [
        ([0.01, 0.02], 0.0401, True),
        ([0.01, 0.02], 0.0399, False),  # all the rest tell more
        ([0.01, 0.03], 0.0401, False),
        ([0.01], 0.0301, True),
        ([0.01], 0.0299, False),
        ([0.03, 0.01], 0.04, False),  # the next step alone does
    ],
)
def test_a_threshold_is_for_the_next_step_and_all_the_rest(tells, threshold, stop):
    advice = advise(StoppingRule(stop_below=threshold), steps(tells), None)
    assert advice.stop == stop
    assert ("time to stop" in advice.sentence) == stop
    assert f"the threshold is {threshold:g}" in advice.sentence


def test_what_particles_cannot_tell_never_stops():
    for nothing in (math.inf, math.nan):
        advice = advise(StoppingRule(stop_below=100.0), steps([nothing]), None)
        assert not advice.stop
        assert "more than the particles can say" in advice.sentence


def test_the_session_decides_on_both_sides_of_the_threshold_and_does_nothing(session):
    session.propose()
    session.observe(0.7)
    ahead, before = session.ahead(), session.history()
    rest = ahead.upper[-1] + 2 * ahead.se[-1]
    assert session.stopping() is None  # nobody said what information is worth
    assert session.stopping(stop_below=rest * 1.001).stop
    assert not session.stopping(stop_below=rest * 0.999).stop
    assert session.history() == before
    assert not session.state.finished
    with pytest.raises(InvalidValueError, match=r"whose designs cost nothing.*Fix: .*stop_below"):
        session.stopping(price_per_nat=1.0)
    with pytest.raises(InvalidValueError, match="price_per_nat, got -1"):
        session.stopping(price_per_nat=-1.0)
    session.propose()
    session.observe(0.5)
    session.propose()
    session.observe(0.5)
    assert session.stopping(stop_below=1.0) is None  # no step is left


COSTLY = """
import scorebed as sb
from scorebed.tasks.oracles.linear_gaussian import LinearGaussian


class Costly(LinearGaussian):
    cost = sb.priced("reagent [mg]", lambda xi: xi[0] ** 2, nats=0.1)
"""


def test_the_price_is_that_of_the_task_and_costs_are_of_designs_to_come(tmp_path):
    """Costs are exact: designs are fixed. The price that decides is the least Σ ξ² / U_k."""
    file = tmp_path / "costly.py"
    file.write_text(COSTLY)
    name = f"{file}:Costly"
    run = load(make_run(tmp_path / "run", name, policy="static"), task=read_task(name))
    options = {"db": tmp_path / "live.sqlite", "seed": 3, "price_per_nat": 1e-3}
    with Session.create(run, **options) as session:
        session.propose()
        session.observe(0.7)
        ahead = session.ahead()
        xis = np.asarray(session.task.designs.constrain(run.policy.us), np.float64)[:, 0]
        np.testing.assert_allclose(ahead.cost, np.cumsum(xis[1:] ** 2), rtol=1e-5)
        turns = (ahead.cost / (ahead.upper + 2 * ahead.se)).min()
        assert session.stopping(price_per_nat=0.999 * turns).stop
        assert not session.stopping(price_per_nat=1.001 * turns).stop
        assert session.stopping().stop  # the price of `create`
        assert session.summary()["stopping"] == session.stopping().sentence
