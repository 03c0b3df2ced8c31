"""Tight bounds where contrastive ones are loose: when they lead, and designs compared in the same
experiments.
"""

import dataclasses
import time

import numpy as np
import pytest

from scorebed.bounds.base import Bounds
from scorebed.bounds.groups import GroupSums
from scorebed.cli._execute import show
from scorebed.report.tables import NOTHING, bounds_rows, warnings
from scorebed.runs.config import from_values
from scorebed.runs.evaluation import headline, loose, tight_in_words
from scorebed.runs.execution import Execution
from scorebed.runs.folder import RunFolder
from scorebed.runs.record import BoundsRecord, PairedRecord, Record
from scorebed.runs.stage import Progress
from scorebed.runs.watch import Watch
from scorebed.tasks.library.location import LocationFinding

CONTRASTIVE = BoundsRecord(
    lower=9.0,
    lower_se=0.1,
    upper=9.05,
    upper_se=0.1,
    outer=64,
    inner=100,
    ceiling=9.2,
    saturated=0.0,
)
EVALUATION = {"outer": 4, "inner": 3, "select_outer": 4, "select_inner": 3, "tight_outer": 3}
VALUES = {
    "task": "location-finding",
    "method": "static",
    "preset": "quick",
    "policy": "static",
    "static": {"inner": 3},
    "policy_training": {
        "steps": 2,
        "batch": 2,
        "learning_rate": 0.1,
        "schedule": "constant",
        "monitor_every": 2,
        "monitor_inner": 3,
    },
}


def tight(each):
    each = np.asarray(each, float)
    groups = GroupSums.of(*[np.split(each + gap, len(each)) for gap in (0.0, 0.01)])
    return Bounds(each.mean(), 0.1, each.mean() + 0.01, 0.1, len(each), 8, 30.0, 0.0, 5, groups)


def run_of(path, *, minutes=0.0, **evaluation):
    config = from_values(VALUES | {"evaluation": EVALUATION | evaluation})
    task = LocationFinding(dim=1, sources=1, horizon=2)
    with RunFolder.create(path, config) as folder:
        watch = Watch(folder, minutes, begun=time.monotonic()) if minutes else None
        return config, Execution(folder, config, task, progress=Progress(), watch=watch).run()


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """(config, record, path) of a run whose contrastive bounds cannot exceed log 4."""
    path = tmp_path_factory.mktemp("tight") / "run"
    return *run_of(path), path


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, False),
        ({"saturated": 0.06}, True),
        ({"upper": 9.2}, True),
        ({"upper": float("inf")}, True),
        ({"upper": float("nan")}, False),  # no upper bound, no gap
    ],
)
def test_bounds_are_loose_if_they_are_saturated_or_far_apart(change, expected):
    assert loose(dataclasses.replace(CONTRASTIVE, **change)) is expected


def test_tight_bounds_lead():
    assert CONTRASTIVE.leading == (9.0, 9.05)
    assert headline(CONTRASTIVE.values())["outer"] == 64
    assert tight_in_words(CONTRASTIVE.values()) == ""
    both = CONTRASTIVE.with_tight(tight([20.0, 22.0]), "importance")
    assert both.leading == (21.0, 21.01)
    assert headline(both.values())["lower"] == 21.0
    assert headline(both.values())["bound"] == "importance"
    assert both.lower == 9.0
    words = tight_in_words(both.values())
    assert "by importance" in words
    assert "9.00 to 9.05" in words


def test_differences_are_those_of_single_experiments():
    """Both vary by ten nats between experiments; the difference hardly does."""
    policy = np.asarray([5.0, 15.0, 25.0, 10.0])
    other = policy - [1.0, 1.1, 0.9, 1.0]
    found = PairedRecord.of(tight(policy), tight(other), "others")
    assert found.advantage == pytest.approx(1.0)
    assert found.advantage_se == pytest.approx(np.std([1.0, 1.1, 0.9, 1.0], ddof=1) / 2)
    assert found.lower == pytest.approx(other.mean())


def test_a_run_compares_its_policy_in_the_same_experiments(run):
    _, record, path = run
    assert record.bounds.tight_outer == 3
    assert record.bounds.tight_bound == "importance"
    assert record.bounds.leading[0] > np.log(4)
    assert record.paired.keys() == {"untrained", "random"}
    for each in record.paired.values():
        assert each.advantage == pytest.approx(record.bounds.tight_lower - each.lower, abs=1e-5)
    stages = {"tight-0", "tight-untrained", "tight-random"}
    assert stages <= record.seconds.keys()
    # Everything is in files: a run that was stopped goes on from them.
    assert {path / f"{stage}.json" for stage in stages} <= set(path.iterdir())


def test_a_run_of_some_minutes_compares_it_with_the_references_alone(tmp_path):
    """And takes no further rounds of bounds that say nothing."""
    _, record = run_of(tmp_path / "run", minutes=10.0)
    assert record.paired.keys() == {"random"}
    assert not list((tmp_path / "run").glob("round-*"))


def test_the_record_comes_back_from_json(run):
    _, record, _ = run
    again = Record.read(record.values())
    assert again.paired == record.paired
    assert again.bounds == record.bounds


def test_what_is_shown_leads_with_them(run, capsys):
    config, record, path = run
    values = record.values()
    rows = bounds_rows(values, config)
    assert [row.name for row in rows] == ["policy (static)", "untrained", "random"]
    assert rows[0].lower.startswith(f"{record.bounds.tight_lower:.3f}")
    assert rows[0].advantage == NOTHING
    assert rows[1].advantage.startswith(f"{record.paired['untrained'].advantage:+.3f}")
    assert warnings(values, str(path)) == []
    show(values, str(path))
    shown = capsys.readouterr().out
    assert f"{record.bounds.tight_lower:.3f}" in shown
    assert "Contrastive bounds are loose here" in shown
    assert "policy ahead by" in shown


def test_zero_experiments_are_no_tight_bounds(tmp_path):
    _, record = run_of(tmp_path / "none", tight_outer=0, references=False)
    assert record.paired is None
    assert record.bounds.tight_lower is None
