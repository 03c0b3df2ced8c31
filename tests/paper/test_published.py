"""The paper's numbers, against sums over its columns that were made apart from the file."""

import pytest

from scorebed.paper.data import described, item_names, published_repeats, published_rows, read
from scorebed.paper.figures import FIGURES
from scorebed.paper.items import ITEMS

# Sums over a column, (lower, its errors, upper, its errors), from the source of the paper by a
# program that shares nothing with the one that made the file.
SUMS = {
    ("table1", "location-finding"): (106.94, 0.63, 108.13, 0.70),
    ("table1", "location-finding-3d"): (82.64, 0.68, 84.22, 0.78),
    ("table2", "pendulum"): (41.86, 0.33, 41.87, 0.33),
    ("table2", "cart-pole"): (73.01, 0.40, 73.13, 0.39),
    ("table2", "double-link"): (127.08, 0.44, 138.35, 1.16),
    ("gravimetry", "gravimetry"): (83.85, 0.73, 93.54, 1.73),
    ("samplers", "location-finding"): (35.52, 0.42, 35.96, 0.44),
    ("mlmc", "location-finding"): (7.21, 0.40, 7.27, 0.40),
}


@pytest.mark.parametrize(("item", "task"), SUMS)
def test_columns_add_up(item, task):
    rows = published_rows(item, task).values()
    found = [
        sum(getattr(getattr(row, side), part) for row in rows)
        for side in ("lower", "upper")
        for part in ("mean", "se")
    ]
    assert found == pytest.approx(SUMS[item, task], abs=1e-9)


def test_bold_rows_are_the_papers():
    bold = {
        (item, task): [label for label, row in published_rows(item, task).items() if row.best]
        for item, task in SUMS
    }
    assert bold["table1", "location-finding"] == ["JointVarPost (P=1)"]
    assert bold["table1", "location-finding-3d"] == ["ScoreBED (P=1)", "ScoreBED (P=5)"]
    assert [len(bold["table2", t]) for t in ("pendulum", "cart-pole", "double-link")] == [6, 5, 1]
    assert len(bold["gravimetry", "gravimetry"]) == 4
    assert bold["samplers", "location-finding"] == ["Random scale Gaussian", "Low rank projection"]


def test_what_iosmc_spent():
    spent = [
        published_rows("iosmc-nle", task)["IO-SMC² (P=1)"]
        for task in ("pendulum", "cart-pole", "double-link")
    ]
    assert [row.nle for row in spent] == [(9.9e9, 5.7e7), (1.5e10, 3.6e7), (1.8e10, 7.8e7)]
    for task, row in zip(("pendulum", "cart-pole", "double-link"), spent, strict=True):
        assert row[:2] == published_rows("table2", task)["IO-SMC² (P=1)"][:2]


def test_every_row_has_its_line_and_every_line_its_row():
    assert published_repeats() == 4
    for item, table in read("items")["tables"].items():
        labels = [row["label"] for row in table["rows"]]
        for task in table["tasks"]:
            assert list(published_rows(item, task)) == labels
        assert set(read("published")[item]) == set(table["tasks"])


def test_items_are_those_of_the_data():
    assert tuple(ITEMS) == item_names()
    assert set(FIGURES) <= set(read("published")["figures"])
    assert all(len(described(name)) > 100 for name in read("published")["figures"])
