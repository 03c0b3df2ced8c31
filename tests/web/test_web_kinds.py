"""A model without a density on the page and by requests: designs, steps and pictures, and a
sentence in the posterior's place.
"""

from pathlib import Path

import pytest

pytest.importorskip("fastapi", reason="the web page needs fastapi: pip install 'scorebed[web]'")

from live_runs import make_run

from scorebed.runs.load import load
from scorebed.runs.user_task import read_task
from scorebed.session.posterior import NO_DENSITY

WASHOUT = f"{Path(__file__).parents[2] / 'examples' / 'tasks' / 'washout.py'}:Washout"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = make_run(tmp_path_factory.mktemp("washout") / "run", WASHOUT, "random")
    return load(folder, task=read_task(WASHOUT))


def test_without_a_density_there_is_a_sentence_in_the_place_of_the_posterior(
    page, instrument, begun
):
    answer = instrument.post(f"{begun}/observe", json={"y": 0.8, "ask": True}).json()
    assert answer["problem"] is None
    assert answer["next"]["step"] == 2
    summary = instrument.get(f"{begun}/summary").json()
    assert (summary["problem"], summary["posterior"]) == (NO_DENSITY, None)
    outlook = instrument.get(f"{begun}/outlook")
    assert (outlook.status_code, outlook.json()["detail"]) == (422, NO_DENSITY)
    refined = instrument.post(f"{begun}/refine", json={"seconds": 1})
    assert refined.status_code == 422
    assert "without a density" in refined.json()["detail"]
    assert instrument.post(f"{begun}/foresee", json={"y": 0.3}).status_code == 200
    known = page.get("/experiments/1/knowledge").text
    assert known.count(NO_DENSITY) == 1
    assert "nats gained" not in known
    assert "<svg" in known  # where was measured, and what came
    assert NO_DENSITY in page.get("/experiments/1/outlook").text
    assert "Step 2 of 4" in page.get("/experiments/1").text
    assert instrument.post(f"{begun}/undo", json={"step": 1}).json()["step"] == 1
    assert "observed" in page.get("/experiments/1/experiment.json").text
