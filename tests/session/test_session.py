"""A live experiment: the designs of a rollout, whatever crashes, repeats, undoes or corrects in
between.
"""

import csv
import dataclasses
import io
import json
import random
import threading

import jax.random as jr
import numpy as np
import pytest
from crashes import Crash, crash_at
from live_runs import make_run

from scorebed._jit import jit_once
from scorebed.errors import (
    ConflictError,
    InvalidValueError,
    NewerFormatError,
    RunFolderError,
    ScorebedError,
)
from scorebed.rollout import simulate
from scorebed.runs.load import load
from scorebed.session.io import VERSION
from scorebed.session.session import Session
from scorebed.session.store import Store

YS = (0.5, -1.0, 2.0)


def designs_for(run, store, pairs, seed=3):
    """The designs that a fresh experiment proposes for given outcomes at given designs (None: those
    proposed).
    """
    session = Session.create(run, db=store, seed=seed)
    found = []
    for y, xi in pairs:
        found.append(session.propose().design)
        session.observe(y, xi)
    return found if session.state.complete else [*found, session.propose().design]


# ---- the policy acts as in a rollout


@pytest.mark.parametrize("policy", ["dad", "random"])
def test_designs_are_those_of_a_rollout_with_the_same_seed(run, store, tmp_path, policy):
    loaded = run if policy == "dad" else load(make_run(tmp_path / "run", policy=policy))
    truth = jit_once(lambda key: simulate(loaded.task, loaded.policy, key=key))(jr.key(7))
    proposed = designs_for(loaded, store, [(y, None) for y in np.asarray(truth.ys)], seed=7)
    np.testing.assert_allclose(proposed, truth.xis, rtol=2e-5, atol=2e-6)


def test_designs_follow_the_data(run, store):
    one, other = (designs_for(run, store, [(y, None)]) for y in (0.5, 1.5))
    assert one[0] == other[0]
    assert abs(one[1][0] - other[1][0]) > 1e-3


def test_the_policy_sees_the_design_that_was_used(run, store, session):
    first = session.propose()
    record = session.observe(0.5, 1.9)
    assert record.proposal == first
    assert (record.used, record.y) == ((1.9,), (0.5,))
    assert (
        session.propose().design
        == designs_for(run, store, [(0.5, 1.9)])[1]
        != designs_for(run, store, [(0.5, None)])[1]
    )


# ---- undo, correct, skip


def test_any_history_of_undos_and_corrections_gives_the_designs_of_its_data(run, store):
    dice = random.Random(0)
    for trial in range(12):
        session = Session.create(run, db=store, seed=3)
        for _ in range(10):
            state = session.state
            taken = len(state.records)
            verb = dice.choice(["observe", "observe", "undo", "correct", "skip", "note", "reopen"])
            if verb == "observe" and not state.complete:
                session.propose()
                session.observe(dice.gauss(0, 1), dice.choice([None, dice.uniform(-2, 2)]))
            elif verb == "undo" and taken:
                session.undo()
            elif verb == "correct" and state.measured:
                record = dice.choice(state.measured)
                session.correct(
                    record.step, dice.gauss(0, 1), dice.choice([None, dice.uniform(-2, 2)])
                )
            elif verb == "skip" and not state.complete:
                session.skip()
            elif verb == "note":
                session.note(f"trial {trial}")
            elif verb == "reopen":
                session = Session.open(run, db=store, experiment=session.name)
        state = session.state
        if state.complete:
            session.undo()
            state = session.state
        fresh = Session.create(run, db=store, seed=3)
        for record in state.records:
            if record.skipped:
                fresh.skip()
            else:
                fresh.observe(record.y, record.used)
        assert session.propose().design == fresh.propose().design


def test_undo_shows_the_same_design_again_and_the_history_stays(session):
    first = session.propose()
    session.observe(0.5)
    second = session.propose()
    assert session.undo().y == (0.5,)
    assert session.propose() == first
    session.observe(0.5)
    assert session.propose().design == second.design
    kinds = [event.kind for event in session.history()]
    assert kinds == ["proposed", "observed", "proposed", "undone", "observed", "proposed"]
    with pytest.raises(ConflictError, match="got step 1 as the last"):
        session.undo(step=2)
    session.undo(step=1)
    with pytest.raises(ConflictError, match="nothing to take back"):
        session.undo()


def test_a_correction_withdraws_the_pending_design(run, store, session):
    session.propose()
    session.observe(0.5)
    shown = session.propose()
    other = Session.open(run, db=store, experiment="bench")
    assert other.correct(1, -0.5).corrected
    with pytest.raises(ConflictError, match="a design that was withdrawn"):
        session.observe(1.0)
    assert session.propose().design == designs_for(run, store, [(-0.5, None)])[1] != shown.design
    session.observe(1.0)
    # Correcting to what it is already changes nothing.
    before = session.state.sequence
    assert session.correct(1, -0.5).y == (-0.5,)
    assert session.state.sequence == before
    # The second step was proposed for the corrected data, so it stays; after another correction it
    # does not.
    assert not session.state.records[1].outdated
    session.correct(1, 0.25)
    assert session.state.records[1].outdated
    session.undo()
    assert session.propose().design == designs_for(run, store, [(0.25, None)])[1]


def test_only_measured_steps_can_be_corrected(session):
    for step in (-1, 0, 1, 5):
        with pytest.raises(
            ConflictError, match=f"a correction of step {step}, got no measurement there"
        ):
            session.correct(step, 1.0)
    session.skip()
    with pytest.raises(ConflictError, match="no measurement there"):
        session.correct(1, 1.0)


def test_a_skipped_step_is_used_up_and_forgotten(run, store, session):
    first = session.propose()
    assert session.skip().skipped
    second = session.propose()
    assert (second.step, second.design) == (
        2,
        first.design,
    )  # this policy knows nothing but the measurements
    session.observe(0.5)
    assert session.propose().design == designs_for(run, store, [(0.5, None)])[1]
    session.skip()
    with pytest.raises(ConflictError, match="all 3 steps taken"):
        session.propose()
    assert session.undo().skipped
    assert session.skip(step=3) == session.skip(step=3)
    with pytest.raises(ConflictError, match="a second outcome of step 2"):
        session.skip(step=2)


def test_steps_that_depend_on_each_other_cannot_be_skipped(tmp_path, store):
    session = Session.create(make_run(tmp_path / "run", "pendulum", "random"), db=store)
    with pytest.raises(InvalidValueError, match="a task whose next outcome depends on the last"):
        session.skip()
    assert session.history() == []


def test_the_end_can_be_undone(session):
    session.propose()
    session.finish()
    session.finish()
    assert [event.kind for event in session.history()] == ["proposed", "finished"]
    for refused in (
        lambda: session.observe(1.0),
        session.propose,
        session.skip,
        lambda: session.correct(1, 1.0),
    ):
        with pytest.raises(ConflictError, match="finished"):
            refused()
    session.note("after the end")
    assert session.undo() is None
    assert session.observe(1.0).step == 1


# ---- bad values, repeated submissions


BAD = [float("nan"), float("inf"), 1e39, 10**400, [], [1.0, 2.0], None, "1,5", "1", True]


@pytest.mark.parametrize("bad", BAD, ids=lambda value: repr(value)[:20])
def test_bad_values_are_refused_and_nothing_is_stored(session, bad):
    session.propose()
    for attempt in (
        lambda: session.observe(bad),
        lambda: session.correct(1, bad),
        lambda: session.surprise(bad),
    ):
        with pytest.raises(ScorebedError, match="the outcome, got"):
            attempt()
    if bad is not None:
        with pytest.raises(ScorebedError, match="the design used, got"):
            session.observe(1.0, bad)
    assert [event.kind for event in session.history()] == ["proposed"]


def test_a_design_outside_of_the_space_is_refused(session):
    session.propose()
    with pytest.raises(InvalidValueError, match=r"covariate, got 2\.5, expected -2 to 2"):
        session.observe(1.0, 2.5)


def test_an_outcome_needs_a_design(session):
    with pytest.raises(ConflictError, match="one before its design was proposed"):
        session.observe(1.0)
    session.observe(1.0, 0.5)  # then the proposal is stored all the same
    assert [event.kind for event in session.history()] == ["proposed", "observed"]


def test_a_second_submit_is_the_same_or_refused(session):
    shown = session.propose()
    first = session.observe(1.0, token="a", step=1)
    before = session.state.sequence
    for repeat in (
        {"token": "a"},
        {"token": "a", "step": 1},
        {"step": 1},
        {"proposal": shown.id},
        {"token": "b", "step": 1},
    ):
        assert session.observe(1.0, **repeat) == first
    for repeat in ({"token": "a"}, {"step": 1}, {"proposal": shown.id}):
        with pytest.raises(ConflictError, match="a second outcome of step 1"):
            session.observe(1.5, **repeat)
        with pytest.raises(ConflictError, match="a second outcome of step 1"):
            session.observe(1.0, 0.123, **repeat)
    with pytest.raises(ConflictError, match="step 3, got a step that is not next, expected step 2"):
        session.observe(1.0, step=3)
    with pytest.raises(InvalidValueError, match="1 or more"):
        session.observe(1.0, step=0)
    with pytest.raises(InvalidValueError, match="the token"):
        session.observe(1.0, token="\n")
    assert session.state.sequence == before
    session.undo()
    with pytest.raises(ConflictError, match="undone since"):
        session.observe(1.0, token="a")
    session.propose()
    assert session.observe(1.0, token="c").step == 1


def submit_all(jobs):
    """Run all jobs at once, each in a thread of its own; gives what they returned or raised."""
    answers = [None] * len(jobs)
    gate = threading.Barrier(len(jobs))

    def work(i):
        gate.wait()
        try:
            answers[i] = jobs[i]()
        except ScorebedError as error:
            answers[i] = error

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(jobs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


def test_32_threads_submitting_the_same_step_twice_make_one_row(run, db, session):
    session.propose()
    # Half of them through sessions of their own on connections of their own, as other processes
    # would.
    others = [Session.open(run, db=db, experiment="bench") for _ in range(4)]
    sessions = [session, *others]
    jobs = [
        lambda i=i: [sessions[i % 5].observe(1.0, step=1, token=f"client {i}") for _ in range(2)][
            -1
        ]
        for i in range(32)
    ]
    answers = submit_all(jobs)
    assert {answer.sequence for answer in answers} == {2}
    assert [event.kind for event in session.history()] == ["proposed", "observed"]
    for other in others:
        other.close()


def test_of_different_outcomes_of_one_step_one_wins_and_the_others_are_told(session):
    session.propose()
    answers = submit_all([lambda i=i: session.observe(float(i), step=1) for i in range(32)])
    stored = [answer for answer in answers if not isinstance(answer, ConflictError)]
    assert len(stored) == 1
    assert session.state.records == tuple(stored)


def test_32_experiments_in_one_file_each_with_its_step_twice(run, store):
    def job(i):
        session = Session.open(run, db=store, experiment=f"e{i}", seed=3)
        session.propose()
        session.observe(float(i), step=1)
        return session.observe(float(i), step=1)

    answers = submit_all([lambda i=i: job(i) for i in range(32)])
    assert [answer.y for answer in answers] == [(float(i),) for i in range(32)]
    assert all(len(store.events(experiment.id)) == 2 for experiment in store.experiments())
    assert len(store.experiments()) == 32


# ---- crashes


@pytest.mark.parametrize("where", ["before", "inside", "after"])
@pytest.mark.parametrize("number", [1, 2, 3, 4, 5, 6])
def test_a_crash_between_any_two_steps_resumes_at_the_same_design(
    run, db, monkeypatch, where, number
):
    """The n-th write of an experiment crashes before it, before its commit, or before anybody hears
    of it.
    """
    store = Store(db)
    expected = designs_for(run, store, [(y, None) for y in YS])
    session = Session.create(run, db=store, experiment="bench", seed=3)
    crash_at(monkeypatch, where, number)
    acknowledged = []
    crashed = False
    try:
        for y in YS:
            shown = session.propose()
            acknowledged.append(shown.design)
            acknowledged.append(session.observe(y, step=shown.step).y)
    except Crash:
        crashed = True
    assert crashed
    monkeypatch.undo()
    # The first connection is not closed: a second one must do without its help.
    resumed = Session.open(run, db=db, experiment="bench")
    for told, record in zip(acknowledged[1::2], resumed.state.records, strict=False):
        assert told == record.y
    assert len(resumed.state.records) >= len(acknowledged) // 2
    for step, y in enumerate(YS, start=1):
        if step >= resumed.state.step:
            assert resumed.propose().design == expected[step - 1]
        resumed.observe(
            y, step=step
        )  # the client cannot know whether it got through, and sends it again
    assert [record.y for record in resumed.state.records] == [(y,) for y in YS]
    assert [record.proposal.design for record in resumed.state.records] == expected
    assert [event.kind for event in resumed.history()] == ["proposed", "observed"] * 3
    resumed.close()
    store.close()


def test_what_another_connection_stores_is_seen_at_once(run, db, session):
    other = Session.open(run, db=db, experiment="bench")
    assert session.propose() == other.propose()
    session.observe(0.5)
    assert other.state == session.state
    assert other.propose().step == 2
    other.close()


# ---- which experiment


def test_without_a_name_the_newest_unfinished_experiment_is_opened(run, store, session):
    assert Session.open(run, db=store).name == "bench"
    later = Session.create(run, db=store)
    assert Session.open(run, db=store).name == later.name == "experiment-1"
    later.finish()
    assert Session.open(run, db=store).name == "bench"
    session.finish()
    assert Session.open(run, db=store).name == "experiment-2"


@pytest.mark.usefixtures("session")
def test_another_policy_task_or_seed_is_refused(run, store, tmp_path):
    other = load(make_run(tmp_path / "other", seed=1))
    with pytest.raises(ConflictError, match="another policy"):
        Session.open(other, db=store, experiment="bench")
    assert (
        Session.open(other, db=store).name == "experiment-1"
    )  # of the same file, but of its own policy
    task = dataclasses.replace(run, task=other.task.__class__(noise=2.0))
    with pytest.raises(ConflictError, match="another task"):
        Session.open(task, db=store, experiment="bench")
    with pytest.raises(ConflictError, match="the seed of experiment 'bench', got 4, expected 3"):
        Session.open(run, db=store, experiment="bench", seed=4)
    with pytest.raises(ConflictError, match="which exists"):
        Session.create(run, db=store, experiment="bench")
    for bad in ("", "x" * 81, "a\nb"):
        with pytest.raises(InvalidValueError, match="the name of an experiment"):
            Session.open(run, db=store, experiment=bad)
    with pytest.raises(RunFolderError):
        Session.open(tmp_path / "nothing", db=store)


def test_bad_wishes_make_no_file(run, tmp_path):
    for bad in ({"experiment": "\x1b"}, {"seed": -1}, {"seed": 2**31}):
        for begin in (Session.open, Session.create):
            with pytest.raises(InvalidValueError, match=r"the (name|seed) of an experiment"):
                begin(run, db=tmp_path / "none.sqlite", **bad)
    assert not (tmp_path / "none.sqlite").exists()


def test_the_file_lies_in_the_run_unless_it_is_named(tmp_path):
    path = make_run(tmp_path / "run", policy="random")
    with Session.open(path) as session:
        assert session.path == path / "live.sqlite"
        session.propose()


# ---- export and import


@pytest.fixture
def eventful(session):
    """An experiment in which everything has happened."""
    session.propose()
    session.observe(0.5, 1.25, token="a")
    session.note('=first,\n"quoted" µ')
    session.propose()
    session.observe(-1.0)
    session.correct(1, 0.75)
    session.undo()
    session.skip()
    session.propose()
    session.observe(0.1)
    session.finish()
    return session


def test_an_exported_experiment_is_the_same_when_imported(run, tmp_path, eventful):
    path = tmp_path / "out.json"
    text = eventful.export_json(path)
    assert path.read_text() == text
    with Session.import_json(run, path, db=tmp_path / "second.sqlite") as copy:
        assert copy.export_json() == text
        assert copy.state == eventful.state
        assert copy.export_csv() == eventful.export_csv()
        assert copy.undo() is None
        copy.undo()
        eventful.undo()
        eventful.undo()
        assert copy.propose().design == eventful.propose().design


def test_an_import_overwrites_nothing(run, store, eventful):
    text = eventful.export_json()
    with pytest.raises(ConflictError, match="'bench', which exists"):
        Session.import_json(run, text, db=store)
    assert Session.import_json(run, text, db=store, experiment="copy").state == eventful.state


def broken(change):
    def apply(document):
        change(document)
        return json.dumps(document)

    return apply


BROKEN = {
    "no JSON": lambda _: "{",
    "NaN": lambda document: json.dumps(document).replace("0.75", "NaN"),
    "1e999": lambda document: json.dumps(document).replace("0.75", "1e999"),
    "a list": lambda _: "[]",
    "another format": broken(lambda d: d.update(format="x")),
    "an unknown field": broken(lambda d: d["experiment"].update(x=1)),
    "not a seed": broken(lambda d: d["experiment"].update(seed="1")),
    "a name to break a terminal": broken(lambda d: d["experiment"].update(name="\x1b[2J")),
    "another horizon": broken(lambda d: d["experiment"].update(horizon=4)),
    "a missing event": broken(lambda d: d["events"].pop(1)),
    "an event twice": broken(lambda d: d["events"].insert(1, d["events"][1])),
    "an unknown kind": broken(lambda d: d["events"][0].update(kind="invented")),
    "a design outside": broken(lambda d: d["events"][0]["data"].update(design=[9.0])),
    "two outcomes": broken(lambda d: d["events"][1]["data"].update(y=[1.0, 2.0])),
    "a text as an outcome": broken(lambda d: d["events"][1]["data"].update(y="1")),
    "more data": broken(lambda d: d["events"][1]["data"].update(z=1)),
    "no time": broken(lambda d: d["events"][1].update(at="yesterday")),
    "a step that is true": broken(lambda d: d["events"][1].update(step=True)),
    "no hash": broken(lambda d: d["experiment"].update(policy_sha256="../x")),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_file_that_is_wrong_anywhere_is_refused_whole(run, tmp_path, eventful, name):
    text = BROKEN[name](json.loads(eventful.export_json()))
    with Session.open(run, db=tmp_path / "second.sqlite", experiment="other") as other:
        with pytest.raises(InvalidValueError, match="an exported experiment, got") as refusal:
            Session.import_json(run, text, db=other._store)
        assert "\n" not in str(refusal.value)
        assert [experiment.name for experiment in other._store.experiments()] == ["other"]


def test_files_of_later_versions_and_other_policies_are_refused(run, store, tmp_path, eventful):
    document = json.loads(eventful.export_json())
    with pytest.raises(NewerFormatError, match=f"version {VERSION + 1}"):
        Session.import_json(run, json.dumps(document | {"version": VERSION + 1}), db=store)
    other = load(make_run(tmp_path / "other", seed=1))
    with pytest.raises(ConflictError, match="another policy"):
        Session.import_json(other, eventful.export_json(), db=store, experiment="copy")


def test_the_table_has_both_designs_and_no_formula(eventful):
    rows = list(csv.DictReader(io.StringIO(eventful.export_csv())))
    assert [row["status"] for row in rows] == ["corrected", "skipped", "measured"]
    records = eventful.state.records
    assert [float(row["proposed covariate"]) for row in rows] == [
        record.proposal.design[0] for record in records
    ]
    assert [(row["covariate"], row["response"]) for row in rows[:2]] == [("1.25", "0.75"), ("", "")]
    assert rows[1]["notes"] == ' =first,\n"quoted" µ'


def test_foresight_stores_nothing_and_comes_true(session):
    session.propose()
    before = session.state.sequence
    foreseen = session.foresee(0.5), session.foresee(0.5, -1.5)
    assert session.state.sequence == before
    assert foreseen[0] != foreseen[1]
    session.observe(0.5, -1.5)
    assert session.propose().design == foreseen[1]
