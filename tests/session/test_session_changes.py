"""Changed circumstances: limits and lengths of one experiment, what they mean in words, and that
they can be undone.
"""

import json
import math
import random

import equinox as eqx
import jax.random as jr
import numpy as np
import pytest
from crashes import Crash, crash_at
from live_runs import make_run

from scorebed.baselines.myopic import Myopic
from scorebed.errors import ConflictError, InvalidValueError, ScorebedError
from scorebed.policies import make_policy
from scorebed.runs.load import load
from scorebed.session.events import Change, Limits, ProposedDesign, StepRecord
from scorebed.session.measurements import padded
from scorebed.session.messages import horizon_sentence
from scorebed.session.posterior import Beliefs
from scorebed.session.session import Session
from scorebed.session.validation import check_horizon, check_limits, parse_limits
from scorebed.tasks import make_task
from scorebed.tasks.oracles.linear_gaussian import LinearGaussian
from scorebed.tasks.oracles.linear_markov import LinearMarkov

TIGHT = Limits((-0.1,), (0.1,))


@pytest.fixture(scope="module")
def static_run(tmp_path_factory):
    return load(make_run(tmp_path_factory.mktemp("static") / "run", policy="static"))


# ---- limits


def test_a_design_outside_of_the_limits_is_moved_to_the_nearest_and_says_so(session):
    wanted = session.propose()
    assert abs(wanted.design[0]) > 0.1
    session.limit(-0.1, 0.1)
    limited = session.propose()
    assert limited.design == (math.copysign(0.1, wanted.design[0]),)
    assert limited.wanted == wanted.design
    assert limited.id != wanted.id
    assert [event.kind for event in session.history()] == ["proposed", "limited", "proposed"]
    with pytest.raises(ConflictError, match="a design that was withdrawn"):
        session.observe(0.5, proposal=wanted.id)
    # What was done is stored, limits or not; the policy sees it.
    assert session.observe(0.5, 1.9).used == (1.9,)
    assert session.foresee(1.0) == pytest.approx(session.foresee(1.0))
    assert abs(session.foresee(1.0)[0]) <= 0.1


def test_the_policy_goes_on_from_the_design_that_was_limited(run, store, session):
    session.limit(-0.1, 0.1)
    used = session.propose().design
    session.observe(0.5)
    free = Session.create(run, db=store, seed=3)
    free.propose()
    free.observe(0.5, used)
    assert (session.propose().wanted or session.propose().design) == free.propose().design


def test_limits_that_allow_the_pending_design_leave_it(session):
    shown = session.propose()
    session.limit(-1.99, 1.99)
    assert session.propose() == shown
    session.limit()
    assert session.propose() == shown
    assert session.state.limits is None
    session.limit()  # nothing to lift: nothing is stored
    assert [event.kind for event in session.history()] == ["proposed", "limited", "limited"]


def test_limits_are_undone_in_the_order_of_all_that_happened(session):
    first = session.propose()
    session.limit(-0.1, 0.1)
    limited = session.propose()
    session.observe(0.5)
    assert session.undo().y == (0.5,)
    assert session.propose() == limited
    change = session.undo()
    assert isinstance(change, Change)
    assert change.kind == "limited"
    assert session.propose().design == first.design
    session.limit(-0.1, 0.1)
    with pytest.raises(
        ConflictError, match="an undo of step 1, got changed circumstances as the last"
    ):
        session.undo(step=1)


BAD_LIMITS = [
    (-3.0, 1.0),
    (1.0, 0.5),
    (0.0, math.nan),
    (0.0, "1"),
    ([0.0, 1.0], None),
    (math.inf, None),
    (True, 1.0),
    (0.0, [None, 1.0]),
]


@pytest.mark.parametrize(("low", "high"), BAD_LIMITS, ids=str)
def test_bad_limits_are_refused_in_one_sentence(session, low, high):
    with pytest.raises(InvalidValueError, match=r"the limits.*, got .*, expected .*Fix: "):
        session.limit(low, high)
    assert session.history() == []


def test_limits_as_they_are_typed():
    one, two = make_task("linear-gaussian"), make_task("location-finding")
    assert parse_limits(one, "0:1.5") == Limits((0.0,), (1.5,))
    assert parse_limits(one, ":1.5") == Limits((-2.0,), (1.5,))
    assert parse_limits(one, "0.5:0.5") == Limits((0.5,), (0.5,))  # a setting that is stuck
    assert parse_limits(one, "-2:2") is parse_limits(one, ":") is parse_limits(one, "off") is None
    assert parse_limits(two, "0:1 :3") == Limits((0.0, None), (1.0, 3.0))
    assert check_limits(two, [None, -1.0], None) == Limits((None, -1.0), (None, None))
    for bad in ("", "0", "0 1", "0:1 0:1", "0:x", "0:1,5", "0:1:2", "1e999:2", "OFF", "9:10"):
        with pytest.raises(InvalidValueError, match="the limits"):
            parse_limits(one, bad)


# ---- another number of steps


def test_a_shorter_experiment_ends_earlier_and_a_longer_one_later(session):
    session.set_horizon(2)
    for y in (0.5, -1.0):
        session.propose()
        session.observe(y)
    assert session.state.complete
    with pytest.raises(ConflictError, match="all 2 steps taken"):
        session.propose()
    session.set_horizon(5)
    for y in (0.2, 0.3, 0.4):
        session.propose()
        session.observe(y)
    assert len(session.state.records) == 5
    with pytest.raises(
        ConflictError, match="the number of steps, got 4, expected at least the 5 that are taken"
    ):
        session.set_horizon(4)
    assert session.undo().step == 5
    assert session.undo().step == 4
    assert session.undo().step == 3
    assert session.undo().kind == "planned"
    assert session.state.horizon == 2
    assert session.state.complete


def test_the_pending_design_survives_another_number_of_steps(session):
    shown = session.propose()
    session.set_horizon(10)
    assert session.propose() == shown
    session.set_horizon(10)
    assert [event.kind for event in session.history()] == ["proposed", "planned"]


@pytest.mark.parametrize("bad", [0, -1, 10_001, 2.5, "3", True, None], ids=str)
def test_bad_numbers_of_steps_are_refused(session, bad):
    with pytest.raises(InvalidValueError, match="the number of steps, got"):
        session.set_horizon(bad)
    assert session.history() == []


def test_noise_past_the_trained_steps_leaves_that_before_alone(tmp_path, store):
    random_run = load(make_run(tmp_path / "run", policy="random"))
    designs = []
    for steps in (3, 7):
        session = Session.create(random_run, db=store, seed=3, steps=steps)
        for _ in range(steps):
            session.propose()
            session.observe(0.0)
        designs.append([record.proposal.design for record in session.state.records])
    assert designs[1][:3] == designs[0]
    assert len(set(designs[1])) == 7


def test_a_static_policy_has_no_design_past_its_last(static_run, store):
    session = Session.create(static_run, db=store, steps=4)
    for _ in range(3):
        session.propose()
        session.observe(0.5)
    with pytest.raises(
        ScorebedError, match=r"step 4, got a policy whose 3 designs .*Fix: refine now"
    ):
        session.propose()
    with pytest.raises(ScorebedError, match="refine first"):
        session.forecast()
    assert "The policy has no designs beyond its 3" in session.circumstances()[0]


def test_another_length_is_told_with_what_the_policy_does():
    task = make_task("linear-gaussian")
    policy = eqx.filter_eval_shape(lambda key: make_policy("dad", task, key=key), jr.key(0))
    drawn = make_policy("random", task, key=jr.key(0))
    assert horizon_sentence(policy, 2, 3) == (
        f"This experiment has 2 steps; the policy was trained for 3. {policy.short_of_training}"
    )
    assert horizon_sentence(policy, 5, 3).endswith(policy.beyond_training)
    assert horizon_sentence(drawn, 5, 3).startswith("This experiment has 5 steps; the run is about")


@pytest.mark.parametrize("name", ["myopic", "modes"])
def test_a_policy_that_keeps_a_history_of_the_trained_length_allows_no_more_steps(name):
    task = make_task("linear-gaussian") if name == "myopic" else LinearMarkov()
    policy = eqx.filter_eval_shape(
        lambda key: (
            Myopic(task, particles=2, key=key)
            if name == "myopic"
            else make_policy(name, task, key=key)
        ),
        jr.key(0),
    )
    assert check_horizon(3, policy) == 3
    with pytest.raises(InvalidValueError, match="at most 3"):
        check_horizon(4, policy)


def test_histories_are_padded_to_multiples_of_the_trained_length():
    task, pair = LinearGaussian(), ((1.0,), (2.0,))
    assert [len(padded([pair] * n, task)[0]) for n in range(8)] == [3, 3, 3, 3, 6, 6, 6, 9]
    ys, xis = padded([pair] * 4, task)
    np.testing.assert_array_equal(ys[:, 0], [2.0] * 4 + [0.0] * 2)
    np.testing.assert_array_equal(xis[:, 0], [1.0] * 4 + [0.0] * 2)


@pytest.mark.slow
def test_the_posterior_of_a_longer_experiment_is_exact():
    # The program is compiled for three rows: what stands in the fourth and fifth must not be lost,
    # nor padding be counted.
    xis, ys = (1.2, -0.7, 2.0, 1.5, -2.0), (0.5, -1.0, 2.4, 1.0, -1.5)
    known = [
        StepRecord(i + 1, ProposedDesign(0, i + 1, (x,), ""), (x,), (y,), "", 0)
        for i, (x, y) in enumerate(zip(xis, ys, strict=True))
    ]
    V = 1 / (1 + sum(x**2 for x in xis))
    m = V * sum(x * y for x, y in zip(xis, ys, strict=True))
    beliefs = Beliefs(LinearGaussian(), seed=0)
    (marginal,) = beliefs.posterior(known).marginals
    assert abs(marginal.mean - m) < 0.15 * math.sqrt(V)
    assert abs(marginal.sd / math.sqrt(V) - 1) < 0.1
    assert abs(beliefs.information(known)[-1] - 0.5 * (V + m**2 - 1 - math.log(V))) < 0.1
    (band,) = beliefs.predict(known, (1.0,))
    assert abs(band.sd / math.sqrt(1 + V) - 1) < 0.1


# ---- what may be expected


def test_the_bounds_of_the_run_are_shown_only_where_they_apply(session):
    assert session.expected.lower == 1.1
    assert session.circumstances() == ()
    session.limit(-0.1, 0.1)
    assert session.expected is None
    assert session.circumstances()[-1].endswith(
        "do not say what to expect by the end: designs are limited."
    )
    session.set_horizon(5)
    assert "they are for 3 steps" in session.circumstances()[-1]
    assert any("trained for 3" in sentence for sentence in session.circumstances())
    session.undo()
    session.undo()
    assert session.expected.lower == 1.1
    session.skip()
    assert session.expected is None
    assert "1 step was skipped" in session.circumstances()[-1]
    told = session.summary()
    assert (told["expected"], told["horizon"], told["trained_horizon"]) == (None, 3, 3)
    assert told["circumstances"] == list(session.circumstances())


# ---- at the beginning


def test_an_experiment_may_begin_with_limits_and_another_length(run, store):
    begun = Session.open(run, db=store, experiment="a", seed=3, steps=5, limits=(-0.1, 0.1))
    assert [event.kind for event in begun.history()] == ["planned", "limited"]
    assert (begun.state.horizon, begun.state.limits) == (5, TIGHT)
    assert abs(begun.propose().design[0]) == 0.1
    again = Session.open(run, db=store, experiment="a", steps=5, limits=(-0.1, 0.1))
    assert again.state == begun.state
    assert Session.open(run, db=store, experiment="a").state == begun.state
    for other in ({"steps": 4}, {"limits": (-0.2, 0.2)}, {"limits": (None, None)}):
        with pytest.raises(ConflictError, match="the circumstances of experiment 'a'"):
            Session.open(run, db=store, experiment="a", **other)
    for bad in ({"steps": 0}, {"limits": (5.0, 6.0)}):
        with pytest.raises(InvalidValueError):
            Session.create(run, db=store, experiment="b", **bad)
    assert store.find("b") is None
    assert (
        Session.create(run, db=store, experiment="c", steps=3, limits=(-2.0, 2.0)).history() == []
    )


def test_nothing_changes_after_the_end(session):
    session.propose()
    session.finish()
    for refused in (
        lambda: session.limit(0.0, 1.0),
        lambda: session.set_horizon(5),
        lambda: session.refine(1),
    ):
        with pytest.raises(ConflictError, match="finished"):
            refused()
    assert [event.kind for event in session.history()] == ["proposed", "finished"]


# ---- any history


def test_any_history_of_changes_and_undos_is_that_of_what_is_left(run, store):
    """An undo leads back to the state before, and designs follow from data and circumstances
    alone.
    """
    dice = random.Random(1)
    for _ in range(6):
        session = Session.create(run, db=store, seed=3)
        stack = []
        for _ in range(12):
            state = session.state
            verb = dice.choice(
                ["observe", "observe", "limit", "plan", "undo", "undo", "reopen", "note"]
            )
            taken = (state.records, state.limits, state.horizon)
            before = [(r.used, r.y) for r in state.records], state.limits, state.horizon
            if verb == "observe" and not state.complete:
                session.propose()
                session.observe(dice.gauss(0, 1), dice.choice([None, dice.uniform(-2, 2)]))
                stack.append(before)
            elif verb == "limit":
                low = dice.uniform(-2, 1)
                session.limit(low, low + 0.5)
                stack.append(before)
            elif verb == "plan":
                steps = dice.randint(max(1, len(state.records)), 6)
                if steps != state.horizon:
                    session.set_horizon(steps)
                    stack.append(before)
            elif verb == "undo" and stack:
                session.undo()
                now = session.state
                assert (
                    [(r.used, r.y) for r in now.records],
                    now.limits,
                    now.horizon,
                ) == stack.pop()
            elif verb == "reopen":
                session = Session.open(run, db=store, experiment=session.name)
                assert (session.state.records, session.state.limits, session.state.horizon) == taken
            elif verb == "note":
                session.note("as before")
        state = session.state
        if state.complete:
            continue
        fresh = Session.create(run, db=store, seed=3, steps=state.horizon)
        for record in state.records:
            fresh.observe(record.y, record.used)
        if state.limits is not None:
            fresh.limit(state.limits.low, state.limits.high)
        assert session.propose().design == fresh.propose().design


# ---- crashes


CHANGES = {
    "limited": lambda session: session.limit(-0.1, 0.1),
    "planned": lambda session: session.set_horizon(5),
    "undone": lambda session: session.undo(),
}


@pytest.mark.parametrize("where", ["before", "inside", "after"])
@pytest.mark.parametrize("kind", CHANGES)
def test_a_crash_at_a_change_leaves_it_whole_or_not_at_all(run, db, monkeypatch, kind, where):
    first = Session.create(run, db=db, experiment="bench", seed=3)
    first.limit(-0.5, 0.5)
    shown = first.propose()
    crash_at(monkeypatch, where)
    with pytest.raises(Crash):
        CHANGES[kind](first)
    monkeypatch.undo()
    with Session.open(run, db=db, experiment="bench") as resumed:
        kinds = [event.kind for event in resumed.history()]
        assert kinds == ["limited", "proposed"] + ([kind] if where == "after" else [])
        if where != "after":
            assert resumed.propose() == shown
            CHANGES[kind](resumed)
        state = resumed.state
        told = {"limited": (TIGHT, 3), "planned": (Limits((-0.5,), (0.5,)), 5), "undone": (None, 3)}
        assert (state.limits, state.horizon) == told[kind]
    first.close()


# ---- export and import


@pytest.fixture
def changed(session):
    session.propose()
    session.limit(-0.1, 0.1)
    session.propose()
    session.observe(0.5)
    session.set_horizon(5)
    session.limit()
    session.undo()
    for y in (0.1, 0.2, 0.3):
        session.propose()
        session.observe(y)
    return session


def test_changed_circumstances_are_exported_and_imported(run, tmp_path, changed):
    text = changed.export_json()
    with Session.import_json(run, text, db=tmp_path / "second.sqlite") as copy:
        assert copy.export_json() == text
        assert copy.state == changed.state
        assert copy.propose().design == changed.propose().design
        assert copy.undo().step == 4


def test_files_of_the_first_version_are_read(run, tmp_path, session):
    session.propose()
    session.observe(0.5)
    document = json.loads(session.export_json())
    del document["policies"], document["sha256"]
    old = json.dumps(document | {"version": 1})
    with Session.import_json(run, old, db=tmp_path / "second.sqlite") as copy:
        assert copy.state == session.state


def at(kind, **data):
    def apply(document):
        row = next(row for row in document["events"] if row["kind"] == kind)
        row["data"].update(data)

    return apply


BROKEN = {
    "limits outside": at("limited", low=[-9.0]),
    "limits that cross": at("limited", low=[0.1], high=[-0.1]),
    "limits of two": at("limited", low=[0.0, 0.1]),
    "limits as text": at("limited", low="0"),
    "NaN as a limit": at("limited", low=["x"]),
    "no steps": at("planned", horizon=0),
    "fewer steps than taken": at("planned", horizon=2),
    "half a step": at("planned", horizon=2.5),
    "more data": at("planned", extra=1),
    "wanted outside": at("proposed", wanted=[9.0]),
}


@pytest.mark.parametrize("name", BROKEN)
def test_wrong_circumstances_are_refused_whole(run, tmp_path, changed, name):
    document = json.loads(changed.export_json())
    BROKEN[name](document)
    with pytest.raises(InvalidValueError, match="an exported experiment, got") as refusal:
        Session.import_json(run, json.dumps(document), db=tmp_path / "second.sqlite")
    assert "\n" not in str(refusal.value)


def test_the_number_of_steps_is_whole():
    assert check_horizon(7) == 7
    with pytest.raises(InvalidValueError, match="1 to 10000"):
        check_horizon(np.float64(7))
