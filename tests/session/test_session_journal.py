"""An outcome and the design that follows it, stored by one write: what `observe` and `propose`
give, all of it or nothing.
"""

import contextlib
import threading

import pytest
from crashes import Crash, crash_at

from scorebed.errors import ConflictError, ScorebedError
from scorebed.session.session import Session
from scorebed.session.store import Store

YS = (0.5, -1.0, 2.0)


def told(session):
    return [(event.kind, event.step, event.data, event.token) for event in session.history()]


@contextlib.contextmanager
def commits(store):
    """The transactions that reach the disk meanwhile."""
    seen: list[str] = []
    store._connection.set_trace_callback(lambda sql: seen.append(sql) if sql == "COMMIT" else None)
    yield seen
    store._connection.set_trace_callback(None)


def by_two(run, store):
    session = Session.create(run, db=store, seed=3)
    for step, y in enumerate(YS, start=1):
        shown = session.propose()
        session.observe(y, proposal=shown.id, token=f"{step}")
    return session


def test_it_is_observe_and_propose_with_one_commit_a_step(run, store, session):
    session.propose()
    for step, y in enumerate(YS, start=1):
        with commits(store) as seen:
            record = session.exchange(y, step=step, token=f"{step}")
            if step < len(YS):
                assert session.propose().step == step + 1
        assert len(seen) == 1
        assert (record.step, record.y) == (step, (y,))
    assert told(session) == told(by_two(run, store))
    assert session.state.complete
    with pytest.raises(ConflictError, match="all 3 steps taken"):
        session.exchange(1.0)


@pytest.mark.parametrize("where", ["before", "inside", "after"])
@pytest.mark.parametrize("number", [1, 2, 5])
def test_a_crash_leaves_outcome_and_design_or_neither(run, db, monkeypatch, where, number):
    """The n-th event crashes before it is written, before its commit, or before anybody hears of
    it. Were the two stored apart, a crash at the second would leave the first.
    """
    store = Store(db)
    expected = [record.proposal.design for record in by_two(run, store).state.records]
    session = Session.create(run, db=store, experiment="bench", seed=3)
    shown = [session.propose().design]
    crash_at(monkeypatch, where, number)
    acknowledged = 0

    def sitting():
        nonlocal acknowledged
        for y in YS:
            session.exchange(y, step=acknowledged + 1)
            acknowledged += 1
            shown.append(session.propose().design)

    with pytest.raises(Crash):
        sitting()
    monkeypatch.undo()
    # Events 1 and 2 belong together, and so do 3 and 4; the last step has no design after it.
    assert acknowledged == (number - 1) // 2
    resumed = Session.open(run, db=db, experiment="bench")
    kinds = [event.kind for event in resumed.history()]
    assert len(resumed.state.records) == acknowledged + (where == "after")
    assert resumed.state.complete or kinds[-1] == "proposed"
    assert shown == expected[: len(shown)]
    for step, y in enumerate(YS, start=1):
        if step == resumed.state.step:
            assert resumed.propose().design == expected[step - 1]
        resumed.exchange(y, step=step)  # sent again: nobody knows whether it got through
    assert [event.kind for event in resumed.history()] == ["proposed", "observed"] * 3
    assert [record.proposal.design for record in resumed.state.records] == expected
    resumed.close()
    store.close()


def test_what_others_enter_meanwhile_is_not_overlooked(run, db, session, monkeypatch):
    """The design is worked out before the transaction: limits that arrive between hold for it all
    the same.
    """
    first = session.propose().design[0]
    other = Session.open(run, db=db, experiment="bench")
    chosen = Session._chosen

    def meanwhile(self, known):
        choice = chosen(self, known)
        if self is session and other.state.limits is None:
            between = (first + choice.design[0]) / 2  # the pending design stays
            other.limit(*((-2.0, between) if first < between else (between, 2.0)))
        return choice

    monkeypatch.setattr(Session, "_chosen", meanwhile)
    assert session.exchange(0.5).used == (first,)
    monkeypatch.undo()
    limited, limits = session.propose(), session.state.limits
    assert limited.wanted is not None
    assert limits.low[0] <= limited.design[0] <= limits.high[0]
    other.close()


def test_an_outcome_is_stored_even_if_no_design_follows_it(session, monkeypatch):
    session.propose()

    def none(known):
        raise ScorebedError(f"the design of step {known.step}, got none, expected one. Fix: none.")

    monkeypatch.setattr(session, "_chosen", none)
    assert session.exchange(0.5).y == (0.5,)
    with pytest.raises(ScorebedError, match="step 2, got none"):
        session.propose()
    monkeypatch.undo()
    assert session.propose().step == 2


def test_32_threads_that_exchange_one_step_make_two_rows(run, db, session):
    session.propose()
    others = [Session.open(run, db=db, experiment="bench") for _ in range(3)]
    sessions, answers = [session, *others], []

    def submit(i):
        for _ in range(2):
            answers.append(sessions[i % 4].exchange(1.0, step=1, token=f"client {i}"))

    threads = [threading.Thread(target=submit, args=(i,)) for i in range(32)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 64
    assert {answer.sequence for answer in answers} == {2}
    assert [event.kind for event in session.history()] == ["proposed", "observed", "proposed"]
    for other in others:
        other.close()
