"""Several designs at once and the stopping rule, by requests and on the page."""

import pytest

pytest.importorskip("fastapi", reason="the web page needs fastapi: pip install 'scorebed[web]'")

from scorebed.errors import InvalidValueError
from scorebed.session.stopping import StoppingRule
from scorebed.web.hub import Hub


@pytest.fixture
def hub(run, tmp_path):
    made = Hub(run, db=tmp_path / "live.sqlite", at_once=2, rule=StoppingRule(stop_below=9.0))
    yield made
    made.close()


def test_two_designs_wait_and_an_outcome_says_which_it_answers(instrument, begun):
    answer = instrument.get(begun).json()
    first, second = answer["pending"]
    assert answer["next"] == first
    assert (first["step"], second["step"]) == (1, 2)
    refused = instrument.post(f"{begun}/observe", json={"y": 0.5})
    assert refused.status_code == 409
    assert "which of them was measured" in refused.json()["detail"]
    body = {"y": 0.5, "proposal": second["id"], "ask": True}
    answer = instrument.post(f"{begun}/observe", json=body).json()
    assert answer["stored"]["used"] == second["design"]
    assert [d["step"] for d in answer["pending"]] == [1, 3]
    skipped = instrument.post(f"{begun}/skip", json={"proposal": first["id"]}).json()
    assert skipped["stored"]["proposed"] == first["design"]
    assert [d["step"] for d in skipped["pending"]] == [3]  # no more steps are left
    assert instrument.post(f"{begun}/skip", json={"proposal": first["id"]}).json()["step"] == 3


@pytest.mark.usefixtures("begun")
def test_the_page_shows_every_design_and_asks_which(page, hub):
    text = page.get("/experiments/1").text
    assert "2 designs to measure, in any order" in text
    assert text.count('type="radio"') == 2
    assert text.count('id="y-0"') == 1
    known = page.get("/experiments/1/knowledge").text
    assert "at design 1" in known
    assert "at design 2" in known
    assert "It is time to stop" in known
    assert not hub.session(1).state.finished


def test_a_price_needs_a_cost_before_the_server_starts(run, tmp_path):
    with pytest.raises(InvalidValueError, match="whose designs cost nothing"):
        Hub(run, db=tmp_path / "x.sqlite", rule=StoppingRule(price_per_nat=1.0))
