"""Several designs at once: pending ones are imputed, outcomes come back in any order, and all of it
is on the disk before it is shown.
"""

import json

import numpy as np
import pytest
from live_runs import make_run

from scorebed.errors import ConflictError, InvalidValueError
from scorebed.runs.load import load
from scorebed.session.events import Event, ExperimentState, Kind, after
from scorebed.session.session import Session
from scorebed.session.side_by_side import predictive_draws
from scorebed.session.store import Store


@pytest.fixture(scope="module")
def wide(tmp_path_factory):
    """Location finding, thirty steps."""
    return load(make_run(tmp_path_factory.mktemp("wide") / "run", "location-finding"))


@pytest.fixture
def session(wide, tmp_path):
    with Session.create(wide, db=tmp_path / "wide.sqlite", experiment="bench", seed=3) as session:
        yield session


def version(store: Store) -> int:
    return store._connection.execute("PRAGMA user_version").fetchone()[0]


def test_outcomes_come_back_in_any_order_and_new_designs_stand_beside_the_old(session, wide):
    first = session.ask(3)
    assert len({p.design for p in first}) == 3
    assert [p.step for p in first] == [1, 2, 3]
    assert session.ask(3) == first == session.state.pending
    assert session.ask() == session.propose() == first[0]
    assert session.tell(0.5, proposal=first[1].id).step == 1
    assert session.state.records[0].used == first[1].design
    second = session.ask(3)
    assert second[:2] == (first[0], first[2])
    assert second[2].step == 4
    assert session.observe(-0.2, proposal=first[2].id).step == 2
    assert session.observe(0.1, proposal=second[2].id).used == second[2].design
    assert session.skip(proposal=first[0].id).proposal == first[0]
    assert session.state.pending == ()
    assert [r.proposal.id for r in session.state.records] == [
        first[1].id,
        first[2].id,
        second[2].id,
        first[0].id,
    ]
    # As many as there are steps left, at the end.
    session.set_horizon(6)
    assert len(session.ask(5)) == 2
    # And whoever opens the file anew sees the same.
    with Session.open(wide, db=session.path, experiment="bench") as again:
        assert again.state == session.state


def test_designs_are_those_of_a_policy_that_saw_a_draw_of_the_predictive(session):
    """The law: the third design follows from the measured step and what is imputed for the two
    before it; the imputed outcomes are of one θ of the posterior, and not stored.
    """
    session.propose()
    session.observe(0.4)
    pending = session.ask(3)
    posterior = session.posterior()
    draw = predictive_draws(session.task, posterior, seed=session.experiment.seed)
    with Session.create(session.run, db=session._store, seed=3) as other:
        other.propose()
        other.observe(0.4)
        for proposal in pending[:2]:
            assert other.propose().design == proposal.design
            other.observe(draw(proposal))
        assert other.propose().design == pytest.approx(pending[2].design, rel=1e-6)
    assert [e.kind for e in session.history()] == ["proposed", "observed", *["proposed"] * 3]
    assert session.posterior().measured == 1


def test_imputed_outcomes_are_distributed_as_the_predictive(session):
    """Over 400 seeds, mean and spread of what is imputed at a design are those of the posterior
    predictive there. Sees draws of the prior, and means in place of draws.
    """
    session.propose()
    session.observe(3.0, (0.3, 0.3))
    proposal, posterior = session.propose(), session.posterior()
    drawn = [predictive_draws(session.task, posterior, seed=s)(proposal)[0] for s in range(400)]
    expected = session.beliefs.outcomes(session.state.records, proposal.design)[:, 0]
    error = expected.std() / 20
    assert abs(np.mean(drawn) - expected.mean()) < 4.892 * error
    assert np.std(drawn) == pytest.approx(expected.std(), rel=0.25)  # seven standard errors


def test_an_entry_says_which_design_it_is_about(session):
    first = session.ask(2)
    for entry in (lambda: session.observe(0.5), lambda: session.observe(0.5, step=1)):
        with pytest.raises(ConflictError, match=r"got 2 designs that wait.*proposal="):
            entry()
    with pytest.raises(ConflictError, match="got 2 designs that wait"):
        session.skip()
    record = session.observe(0.5, proposal=first[1].id, token="a")
    assert session.observe(0.5, proposal=first[1].id) == record  # sent twice, stored once
    with pytest.raises(ConflictError, match="correct the step"):
        session.observe(0.6, proposal=first[1].id)
    assert session.observe(0.4).proposal == first[0]  # one is left: no doubt


def test_what_is_on_its_way_stays_when_something_before_it_changes(session):
    session.propose()
    session.observe(0.5)
    pending = session.ask(3)
    session.correct(1, 0.7)
    assert session.state.pending == pending
    session.observe(0.1, proposal=pending[1].id)
    later = session.ask(3)
    session.undo()  # the step of pending[1], which waits again; what came after it is on its way
    assert session.state.pending == (*pending, later[2])
    assert session.ask(3) == pending
    # Designs that are not allowed any more cannot be measured.
    low = sorted(p.design[0] for p in session.state.pending)[2]
    session.limit((low, None), (None, None))
    assert all(p.design[0] >= low for p in session.state.pending)
    session.undo()
    session.set_horizon(2)
    assert len(session.state.pending) == 1
    assert session.state.pending[0].id in {p.id for p in pending}


def test_one_at_a_time_a_correction_still_withdraws_the_design(session):
    session.propose()
    session.observe(0.5)
    session.propose()
    session.correct(1, 0.7)
    assert session.state.pending == ()


def test_each_design_is_stored_before_the_next_is_computed(wide, tmp_path, monkeypatch):
    """A crash while the third is computed: the two before it are shown again, and the third is the
    one that would have come.
    """
    with Session.create(wide, db=tmp_path / "a.sqlite", experiment="bench", seed=3) as whole:
        expected = [p.design for p in whole.ask(3)]
    chosen = Session._chosen

    def crash(self, state):
        if len(state.pending) == 2:
            raise KeyboardInterrupt
        return chosen(self, state)

    monkeypatch.setattr(Session, "_chosen", crash)
    session = Session.create(wide, db=tmp_path / "b.sqlite", experiment="bench", seed=3)
    with pytest.raises(KeyboardInterrupt):
        session.ask(3)
    session.close()
    monkeypatch.undo()
    with Session.open(wide, db=tmp_path / "b.sqlite", experiment="bench") as resumed:
        assert [p.design for p in resumed.state.pending] == expected[:2]
        assert [p.design for p in resumed.ask(3)] == expected


def test_earlier_versions_are_told_apart_and_exports_are_read_back(session, wide, tmp_path):
    store = session._store
    session.propose()
    assert version(store) == 2
    assert json.loads(session.export_json())["version"] == 2
    first = session.ask(2)
    assert version(store) == 3
    session.observe(0.5, proposal=first[1].id)
    text = session.export_json()
    assert json.loads(text)["version"] == 3
    with Session.import_json(wide, text, db=tmp_path / "second.sqlite") as copy:
        assert copy.state.pending == session.state.pending
        assert copy.state.records == session.state.records
        assert version(copy._store) == 3
    wrong = json.loads(text)
    del wrong["sha256"]
    wrong["events"][-1]["data"]["proposal"] = 77
    with pytest.raises(InvalidValueError, match="a proposal before it"):
        Session.import_json(wide, json.dumps(wrong), db=tmp_path / "third.sqlite")


def test_the_rule_book_refuses_what_does_not_fit():
    def event(n, kind, step, **data):
        return Event(n, kind, step, "", data)

    one = after(ExperimentState(2), event(1, Kind.PROPOSED, 1, design=(0.0,)))
    with pytest.raises(ConflictError, match="a second proposal"):
        after(one, event(2, Kind.PROPOSED, 2, design=(0.0,)))
    two = after(one, event(2, Kind.PROPOSED, 2, design=(1.0,), together=3))
    with pytest.raises(ConflictError, match="a second proposal"):  # two steps are left
        after(two, event(3, Kind.PROPOSED, 3, design=(1.0,), together=3))
    with pytest.raises(ConflictError, match="a proposal before it"):
        after(two, event(3, Kind.OBSERVED, 1, used=(1.0,), y=(1.0,), proposal=5))
    taken = after(two, event(3, Kind.OBSERVED, 1, used=(1.0,), y=(1.0,), proposal=2))
    assert [p.id for p in taken.pending] == [1]


@pytest.mark.parametrize("name", ["pendulum"])
def test_steps_that_depend_on_each_other_are_refused(name, tmp_path):
    run = load(make_run(tmp_path / "run", name))
    with Session.create(run, db=tmp_path / "live.sqlite", seed=3) as session:
        with pytest.raises(InvalidValueError, match=r"steps that depend on those before.*Fix: "):
            session.ask(2)
        assert len(session.ask(1)) == 1


def test_a_wrong_number_is_refused(session):
    for bad in (0, -1, True, 65):
        with pytest.raises(InvalidValueError, match="how many designs are asked for at once"):
            session.ask(bad)
