"""The scale that fits into a time: by arithmetic on paces that are given."""

import dataclasses
from pathlib import Path

import pytest

from scorebed.errors import InvalidValueError
from scorebed.paper import forecast as module
from scorebed.paper.forecast import GRID, MethodPace, forecast, largest_scale, scale_for
from scorebed.paper.rows import table_rows
from scorebed.paper.study import Study
from scorebed.runs.stage import Progress

ROWS = [row for row in table_rows("gravimetry") if row.policies == 1][:2]  # score and pce
PACES = {
    "score": MethodPace(upfront=1e-6, policies=2e-6, before=10.0, width=56),
    "pce": MethodPace(upfront=0.0, policies=1e-7, before=5.0, width=0),
}


def at(scale, out=Path("unused")):
    return Study(out=out, scale=scale)


def test_seconds_follow_the_evaluations_and_the_width():
    """At S = 0.01 the network is the timed one: stage 1 and four repeats of policies of 10⁴ steps
    and 1024·20 evaluations each, a hundredth of both.
    """
    found = forecast(ROWS, at(0.01), PACES)
    upfront, policies = 1_900 * 1024 * 20, 4 * 100 * 1024 * 20
    pilot = found["gravimetry-score-P1"] - 1.25 * (1e-6 * upfront + 2e-6 * policies) - 10.0
    assert 0 <= pilot < 0.1
    assert found["gravimetry-pce-P1"] == pytest.approx(5.0 + 1.25 * 1e-7 * policies * 20)
    tenth = forecast(ROWS, at(0.1), PACES)
    assert tenth["gravimetry-pce-P1"] - 5.0 == pytest.approx(
        10 * (found["gravimetry-pce-P1"] - 5.0), rel=0.01
    )
    wider = (120 / 56) ** 2
    assert tenth["gravimetry-score-P1"] - 10.0 == pytest.approx(
        10 * wider * (found["gravimetry-score-P1"] - 10.0), rel=0.01
    )


def test_the_largest_scale_that_fits_is_taken():
    scale = largest_scale(ROWS, at(1.0), PACES, hours=0.1)
    place = GRID.index(scale)
    taken = [sum(forecast(ROWS, at(s), PACES).values()) for s in GRID[place : place + 2]]
    assert taken[0] <= 360 < taken[1]
    assert largest_scale(ROWS, at(1.0), PACES, hours=1e6) == 1.0
    with pytest.raises(InvalidValueError, match="--hours"):
        largest_scale(ROWS, at(1.0), PACES, hours=1e-3)


def test_what_was_timed_is_kept_for_the_same_command(tmp_path, monkeypatch):
    timed = []

    def time_methods(units, study, *, progress):
        del study, progress
        timed.append(len(units))
        return PACES

    monkeypatch.setattr(module, "time_methods", time_methods)
    study = at(1.0, tmp_path / "out")
    first = scale_for(ROWS, study, 0.1, progress=Progress())
    assert scale_for(ROWS, study, 0.1, progress=Progress()) == first
    assert timed == [2]
    other = dataclasses.replace(study, repeats=2)
    assert scale_for(ROWS, other, 0.1, progress=Progress())[0] >= first[0]
    assert timed == [2, 2]
