"""Runs and sessions that version 0.1.0 wrote are still read, and mean the same.

`tests/fixtures/runs-v1` holds them with the numbers that they gave then; nothing there is ever
written anew. Numbers are compared to 1e-4: XLA may order sums otherwise."""

import json
import shutil

import numpy as np
import pytest
from old_files import (
    CHANGED,
    POLICIES,
    RUNS,
    SCORES,
    copy_run,
    designs,
    policy_run,
    score_run,
    scores,
)
from record import metrics, plain
from safetensors.numpy import load_file

import scorebed as sb
from scorebed.cli import main

KINDS = json.loads((RUNS / "kinds.json").read_text())
LIVE = json.loads((RUNS / "live.json").read_text())
CLOSE = {"rtol": 1e-4, "atol": 1e-6}


@pytest.mark.parametrize("name", KINDS["kept"])
def test_a_finished_run_gives_the_designs_and_scores_it_gave(name):
    run, expected = sb.load(RUNS / name), KINDS["kept"][name]
    assert run.record.run == name
    np.testing.assert_allclose(designs(run.policy, run.task), expected["designs"], **CLOSE)
    assert (run.score is None) == ("scores" not in expected)
    if run.score is not None:
        np.testing.assert_allclose(scores(run.score, run.task), expected["scores"], **CLOSE)


@pytest.mark.parametrize("name", POLICIES)
def test_the_leaves_of_every_policy_find_their_places(tmp_path, name):
    run = sb.load(policy_run(name, KINDS["policies"][name], tmp_path / "run"))
    np.testing.assert_allclose(
        designs(run.policy, run.task), KINDS["policies"][name]["designs"], **CLOSE
    )


@pytest.mark.parametrize("name", SCORES)
def test_the_leaves_of_every_score_find_their_places(tmp_path, name):
    run = sb.load(score_run(name, KINDS["scores"][name], tmp_path / "run"))
    np.testing.assert_allclose(
        scores(run.score, run.task), KINDS["scores"][name]["scores"], **CLOSE
    )


@pytest.mark.parametrize("name", CHANGED)
def test_a_network_that_has_changed_since_is_refused_with_the_reason(tmp_path, name):
    path = score_run(name, KINDS["scores"][name], tmp_path / "run")
    with pytest.raises(sb.InvalidValueError, match=r"frequencies, norms and heads.*train it again"):
        sb.load(path)


def test_a_run_that_was_killed_goes_on_from_its_checkpoint(tmp_path, capsys):
    """At step 140 of 400 of its policy; the one beside it was never stopped."""
    path, expected = copy_run("interrupted", tmp_path / "run"), KINDS["resumed"]
    with pytest.raises(SystemExit) as ended:
        main(["resume", str(path), "--json"])
    assert not ended.value.code
    record = json.loads(capsys.readouterr().out)
    assert {name: record[name] for name in ("nle", "nle_stages")} == {
        k: expected[k] for k in ("nle", "nle_stages")
    }
    found = metrics(path)
    assert {stage: lines["steps"] for stage, lines in found.items()} == expected["steps"]
    assert found["policy-0-0"]["first"]["seconds"] == pytest.approx(
        _seconds_before()
    )  # what was done is not done again
    np.testing.assert_allclose(
        load_file(path / "policy-0.safetensors")["us"], expected["us"], **CLOSE
    )
    assert record["lower"] == pytest.approx(expected["lower"], abs=0.1 * expected["lower_se"])


def _seconds_before() -> float:
    return metrics(RUNS / "interrupted")["policy-0-0"]["first"]["seconds"]


@pytest.fixture
def db(tmp_path):
    return shutil.copy(RUNS / "live.sqlite", tmp_path / "live.sqlite")


def test_the_kept_experiments_have_events_of_every_kind():
    assert {kind for kept in LIVE.values() for kind, *_ in kept["events"]} == {
        "proposed",
        "observed",
        "skipped",
        "undone",
        "corrected",
        "noted",
        "finished",
        "limited",
        "planned",
        "refined",
    }


@pytest.mark.parametrize("name", LIVE)
def test_an_experiment_stands_where_it_stood(db, name):
    expected = LIVE[name]
    with sb.Session.open(sb.load(RUNS / "pce"), db=db, experiment=name) as session:
        assert [
            [event.kind, event.step, dict(event.data)] for event in session.history()
        ] == expected["events"]
        told = json.loads(json.dumps(session.summary()))
    before, now = plain(expected["summary"]), plain(told)
    assert {key: now["exact"].get(key) for key in before["exact"]} == before["exact"]
    for kind in ("numbers", "bounds"):
        for key, value in before[kind].items():
            if key.startswith("/expected/"):  # since 0.2 from the posterior so far, not the record
                continue
            np.testing.assert_allclose(now[kind][key], value, rtol=1e-3, atol=1e-6, err_msg=key)


@pytest.mark.parametrize("name", ["bench", "refined"])
def test_an_experiment_proposes_again_what_it_proposed(db, name):
    """The pending design is in the file; once withdrawn, the stored or refined policy gives it
    again.
    """
    with sb.Session.open(sb.load(RUNS / "pce"), db=db, experiment=name) as session:
        pending = session.propose()
        assert list(pending.design) == LIVE[name]["summary"]["proposal"]["design"]
        (measured,) = session.state.records[0].y
        for y in (
            measured + 0.1,
            measured,
        ):  # there and back: the design is chosen anew, from the same outcomes
            session.correct(1, y)
            again = session.propose()
        assert again.id > pending.id
        np.testing.assert_allclose(again.design, pending.design, **CLOSE)
        assert (again.wanted is None) == (pending.wanted is None)
        if pending.wanted is not None:
            np.testing.assert_allclose(again.wanted, pending.wanted, **CLOSE)
