"""The JSON interface is the engine: the same designs, the same refusals, one row per step whatever
is sent twice.
"""

import concurrent.futures

import pytest

pytest.importorskip("fastapi", reason="the web page needs fastapi: pip install 'scorebed[web]'")

from scorebed.session import validation
from scorebed.session.events import Remaining
from scorebed.session.refine import RefineResult
from scorebed.session.session import Session
from scorebed.web import requests
from scorebed.web.hub import Hub


def rows(hub, kind="observed"):
    return [event for event in hub.store.events(1) if event.kind == kind]


def test_an_experiment_by_requests_gives_the_designs_that_python_gives(
    instrument, begun, run, tmp_path
):
    with Session.create(run, db=tmp_path / "python.sqlite", seed=3) as python:
        answer = instrument.get(begun).json()
        for y, xi in ((0.5, None), (-1.0, 1.25), (0.7, None)):
            assert answer["next"]["design"] == list(python.propose().design)
            body = {"y": y, "xi": xi, "proposal": answer["next"]["id"]}
            answer = instrument.post(f"{begun}/observe", json=body).json()
            record = python.observe(y, xi)
            assert answer["stored"]["used"] == list(record.used)
            assert answer["stored"]["proposed"] == list(record.proposal.design)
        assert answer["next"] is None
        assert answer["step"] == 4
        assert instrument.post(f"{begun}/finish", json={}).json()["finished"]
        summary = instrument.get(f"{begun}/summary").json()
        assert [r["y"] for r in summary["records"]] == [[0.5], [-1.0], [0.7]]
        assert summary["posterior"][0]["name"] == "coefficient"
        assert "db" not in summary


def test_what_is_sent_twice_is_stored_once(instrument, begun, hub):
    proposal = instrument.get(begun).json()["next"]["id"]
    body = {"y": 0.5, "proposal": proposal, "token": "mine"}
    first, second = (instrument.post(f"{begun}/observe", json=body) for _ in range(2))
    assert first.status_code == second.status_code == 200
    assert first.json()["stored"] == second.json()["stored"]
    assert first.json()["next"] == second.json()["next"]
    assert len(rows(hub)) == 1
    asked = instrument.post(
        f"{begun}/observe", json={**body, "ask": True}
    )  # of a step that is past: not improbable, known
    assert asked.status_code == 200
    other = instrument.post(f"{begun}/observe", json={**body, "y": 0.6})
    assert other.status_code == 409
    assert "correct the step" in other.json()["detail"]
    assert len(rows(hub)) == 1


@pytest.mark.parametrize("y", [0.5, "0.5"], ids=["number", "text"])
def test_what_is_sent_is_checked_once_on_its_way_to_the_disk(instrument, begun, monkeypatch, y):
    seen, check = [], validation.check_vector

    def counted(what, values, quantities):
        seen.append(what)
        return check(what, values, quantities)

    for module in (validation, requests):
        monkeypatch.setattr(module, "check_vector", counted)
    answer = instrument.post(f"{begun}/observe", json={"y": y, "xi": 1.25, "step": 1, "ask": True})
    assert answer.json()["stored"]["used"] == [1.25]
    assert seen == ["the outcome", "the design used"]


def test_an_outcome_and_the_next_design_reach_the_disk_by_one_write(instrument, begun, hub):
    proposal, seen = instrument.get(begun).json()["next"]["id"], []
    hub.store._connection.set_trace_callback(
        lambda sql: seen.append(sql) if sql == "COMMIT" else None
    )
    answer = instrument.post(f"{begun}/observe", json={"y": 0.5, "proposal": proposal})
    hub.store._connection.set_trace_callback(None)
    assert answer.headers["content-type"] == "application/json"
    assert len(seen) == 1
    assert [event.kind for event in hub.store.events(1)] == ["proposed", "observed", "proposed"]
    assert answer.json()["next"]["id"] == 3


def test_many_threads_that_send_each_step_twice_store_one_row_each(instrument, begun, hub):
    for step in (1, 2, 3):
        proposal = instrument.get(begun).json()["next"]["id"]
        body = {"y": 0.1 * step, "proposal": proposal}
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            answers = list(
                pool.map(lambda _, b=body: instrument.post(f"{begun}/observe", json=b), range(8))
            )
        assert {answer.status_code for answer in answers} == {200}
        assert len(rows(hub)) == step


def test_the_name_of_an_experiment_begins_one(instrument):
    for _ in range(2):
        assert (
            instrument.post("/api/experiments", json={"token": "a"}).json()["name"]
            == "experiment-1"
        )
    assert instrument.post("/api/experiments", json={"name": "experiment-1"}).status_code == 409
    for bad in (
        {"name": ""},
        {"name": "x" * 81},
        {"name": "a\nb"},
        {"seed": -1},
        {"seed": 2**31},
        {"name": 5},
        {"what": 1},
    ):
        assert instrument.post("/api/experiments", json=bad).status_code == 422
    assert [item["name"] for item in instrument.get("/api/experiments").json()] == ["experiment-1"]


def test_the_improbable_is_asked_back_only_where_somebody_can_answer_and_never_discarded(
    instrument, begun, hub
):
    body = {
        "y": ["60"],
        "xi": ["2"],
        "proposal": instrument.get(begun).json()["next"]["id"],
        "token": "t",
    }
    asked = instrument.post(f"{begun}/observe", json={**body, "ask": True})
    assert asked.status_code == 409
    assert asked.json()["improbable"]
    assert 0 < asked.json()["tail"] < 1e-3
    assert "response 60" in asked.json()["detail"]
    assert not rows(hub)
    kept = instrument.post(f"{begun}/observe", json={**body, "ask": False})
    assert kept.json()["stored"]["y"] == [60.0]
    again = instrument.post(
        f"{begun}/observe", json={**body, "ask": True}
    )  # known, and no question of the step after it
    assert again.json()["stored"] == kept.json()["stored"]
    fine = instrument.post(f"{begun}/correct", json={"step": 1, "y": "0.5", "ask": True})
    assert fine.json()["stored"]["y"] == [0.5]
    wrong = instrument.post(f"{begun}/correct", json={"step": 1, "y": "-80", "ask": True})
    assert wrong.json()["improbable"]
    assert instrument.get(begun).json()["sequence"] == fine.json()["sequence"]


def test_refusals_name_the_field_of_the_form(instrument, begun):
    def field(body):
        answer = instrument.post(f"{begun}/observe", json=body)
        assert answer.status_code == 422
        return answer.json()["field"]

    assert field({"y": ["1,5"]}) == "y-0"
    assert field({"y": ["1"], "xi": ["nan"]}) == "xi-0"
    assert field({"y": ["1"], "xi": ["2.5"]}) == "xi-0"


def test_undo_skip_note_and_the_end_are_events_and_no_retry_does_them_twice(instrument, begun, hub):
    def post(verb, **body):
        return instrument.post(f"{begun}/{verb}", json=body)

    first = post("observe", y=0.5).json()
    assert post("undo").status_code == 422
    assert post("undo", step=1).json()["step"] == 1
    assert post("undo", step=1).status_code == 409
    again = instrument.get(begun).json()["next"]
    assert again["design"] == first["stored"]["proposed"]
    assert post("skip", step=1).json()["stored"]["y"] is None
    assert post("skip", step=1).status_code == 200  # the same
    assert len(rows(hub, "skipped")) == 1
    assert post("correct", step=1, y=2.0).status_code == 409  # was skipped
    assert post("note", text="sensor cleaned").status_code == 200
    assert post("note", text="").status_code == 422
    seen = instrument.get(begun).json()["sequence"]
    assert post("finish", sequence=seen).json()["finished"]
    assert post("observe", y=1.0).status_code == 409
    assert post("undo", sequence=seen).status_code == 409  # made before the end
    assert not post("undo", sequence=seen + 1).json()["finished"]
    assert post("undo", sequence=seen + 1).status_code == 409
    assert instrument.get("/api/experiments/2").status_code == 404


def test_whoever_shares_the_file_is_seen_at_once(instrument, begun, hub, run):
    before = instrument.get(f"{begun}/version").json()["sequence"]
    version = instrument.get("/version").text
    with Session.open(run, db=hub.store.path, experiment="bench") as terminal:
        terminal.propose()
        terminal.observe(0.25)
    assert instrument.get(f"{begun}/version").json()["sequence"] > before
    assert instrument.get("/version").text != version
    assert "0.25" in instrument.get("/experiments/1/now").text
    other = Hub(run, db=hub.store.path)
    assert other.session(1).state.records == hub.session(1).state.records
    other.close()


def test_the_page_shows_design_history_posterior_and_pictures(page, begun, hub):
    page.post(f"{begun}/observe", json={"y": 0.5, "xi": 1.25})
    session = hub.session(1)
    proposal = session.propose()
    text = page.get("/experiments/1").text
    assert f"{proposal.design[0]:.6g}".replace("-", "−") in text
    assert f"Step {proposal.step} of 3" in text
    assert 'aria-live="polite"' in text
    assert "<main" in text
    assert 'lang="en"' in text
    for found in ("y-0", "xi-0", "note", "name"):
        whole = text if found != "name" else page.get("/").text
        assert f'<label for="{found}"' in whole
    known = page.get("/experiments/1/knowledge").text
    posterior = session.posterior()
    (marginal,) = posterior.marginals
    for value, digits in (
        (marginal.mean, 4),
        (marginal.sd, 3),
        *((q, 4) for q in marginal.quantiles),
        (posterior.information, 3),
    ):
        assert f"{value:.{digits}g}".replace("-", "−") in known
    assert f"Effective sample size {int(posterior.ess)} of 2048" in known
    expected = session.expected
    assert f"{expected.lower:.3g} to {expected.upper:.3g} expected by the end" in known
    assert known.count("<svg") == 3
    assert known.count('role="img" aria-label="') == 3


def test_what_if_says_the_design_that_then_follows_and_stores_nothing(instrument, page, begun):
    """The law: whatever was foreseen is what is proposed once the outcome is there."""
    seen = instrument.get(begun).json()["sequence"]
    rows = instrument.get(f"{begun}/outlook").json()
    assert [row["level"] for row in rows] == [0.05, 0.25, 0.5, 0.75, 0.95]
    assert [row["y"] for row in rows] == sorted(row["y"] for row in rows)
    assert rows[0]["design"] != rows[-1]["design"]
    text = page.get("/experiments/1/outlook").text
    assert f'data-key="{seen}"' in text
    for row in rows:
        assert f"{row['design'][0]:.6g}".replace("-", "−") in text
        foreseen = instrument.post(f"{begun}/foresee", json={"y": row["y"]}).json()
        assert foreseen["design"] == row["design"]
    assert instrument.post(f"{begun}/foresee", json={"y": ["1,5"]}).json()["field"] == "y-0"
    assert instrument.get(f"{begun}/version").json()["sequence"] == seen
    stored = instrument.post(f"{begun}/observe", json={"y": rows[3]["y"]}).json()
    assert stored["next"]["design"] == rows[3]["design"]
    instrument.post(f"{begun}/observe", json={"y": 0.1})
    assert "last step" in page.get("/experiments/1/outlook").text
    assert instrument.post(f"{begun}/foresee", json={"y": 1}).status_code == 409
    instrument.post(f"{begun}/finish", json={})
    assert "No step is left" in page.get("/experiments/1/outlook").text


def test_limits_and_length_are_events_that_the_page_explains_and_undo_takes_back(
    instrument, page, begun
):
    first = instrument.get(begun).json()["next"]["design"][0]
    low, high = (first + 0.1, 2.0) if first < 1 else (-2.0, first - 0.1)
    limited = instrument.post(f"{begun}/limit", json={"low": [str(low)], "high": high}).json()
    nearest = low if first < 1 else high
    assert limited["next"]["design"] == pytest.approx([nearest], abs=1e-9)
    now = page.get("/experiments/1/now").text
    assert "The policy wanted" in now
    assert "Designs are limited to" in now
    assert "Undo the last change" in now
    assert instrument.post(f"{begun}/limit", json={"low": [""], "high": [None]}).json()["next"][
        "design"
    ] == [first]
    assert "Not as trained" not in page.get("/experiments/1/now").text
    planned = instrument.post(f"{begun}/plan", json={"steps": 2}).json()
    assert planned["horizon"] == 2
    assert instrument.get("/api/experiments").json()[0]["horizon"] == 2
    now = page.get("/experiments/1/now").text
    assert "Step 1 of 2" in now
    assert "This experiment has 2 steps" in now
    undone = instrument.post(f"{begun}/undo", json={"sequence": planned["sequence"]}).json()
    assert undone["horizon"] == 3
    for _ in range(3):
        instrument.post(f"{begun}/observe", json={"y": 0.1})
    assert instrument.post(f"{begun}/plan", json={"steps": 2}).status_code == 409
    longer = instrument.post(f"{begun}/plan", json={"steps": 4}).json()
    assert longer["next"]["step"] == 4
    assert 'id="undo-3"' not in page.get("/experiments/1/now").text  # the change came later
    instrument.post(f"{begun}/undo", json={"sequence": longer["sequence"]})
    assert 'id="undo-3"' in page.get("/experiments/1/now").text


def test_one_policy_is_refined_at_a_time_and_what_came_of_it_is_told(
    instrument, begun, hub, monkeypatch
):
    session = hub.session(1)
    nothing = Remaining(0.5, 0.6, 0.01)
    found = RefineResult(False, "pce", 40, 3.2, nothing, nothing, 0.0, 0.01)

    def refine(seconds):
        assert seconds == 3.0
        assert (
            instrument.post(f"{begun}/refine", json={"seconds": 3}).status_code == 503
        )  # meanwhile
        assert instrument.post(f"{begun}/observe", json={"y": 0.5}).status_code == 200
        return found

    monkeypatch.setattr(session, "refine", refine)
    answer = instrument.post(f"{begun}/refine", json={"seconds": 3}).json()
    assert answer["kept"] is False
    assert answer["sentence"] == found.sentence
    assert answer["step"] == 2


@pytest.mark.slow
def test_a_policy_is_refined_by_a_request(instrument, begun, page):
    instrument.post(f"{begun}/observe", json={"y": 0.5})
    answer = instrument.post(f"{begun}/refine", json={"seconds": 12})
    assert answer.status_code == 200, answer.text
    assert "nats" in answer.json()["sentence"]
    assert answer.json()["next"]["step"] == 2
    assert ("Refined" in page.get("/experiments/1/now").text) == answer.json()["kept"]


@pytest.mark.usefixtures("begun")
def test_doubts_about_the_designs_are_shown_with_what_is_known(page, hub, monkeypatch):
    monkeypatch.setattr(
        hub.session(1),
        "warnings",
        lambda: ("The policy has not met <b>such</b> a design: step 1.",),
    )
    assert (
        'class="warning">The policy has not met &lt;b&gt;such'
        in page.get("/experiments/1/knowledge").text
    )


def test_who_waits_for_a_posterior_never_keeps_others_from_a_design(instrument, begun, hub):
    seats = [hub.seats.acquire(blocking=False) for _ in range(100)]
    assert not all(seats)  # some threads are always left
    assert instrument.get("/experiments/1/knowledge").status_code == 503
    assert instrument.post(f"{begun}/observe", json={"y": 0.5}).status_code == 200
    for _ in filter(None, seats):
        hub.seats.release()
    assert instrument.get("/experiments/1/knowledge").status_code == 200


@pytest.mark.usefixtures("begun")
def test_an_experiment_of_another_run_is_listed_and_not_opened(page, hub):
    found = hub.store.find("bench")
    values = {
        name: getattr(found, name) for name in ("run", "task", "policy_sha256", "seed", "horizon")
    }
    with hub.store.writing():
        hub.store.begin({**values, "name": "other", "fingerprint": "0" * 64})
    assert [item["ours"] for item in page.get("/api/experiments").json()] == [False, True]
    assert "serve that run" in page.get("/").text
    assert page.get("/experiments/2").status_code == 409
