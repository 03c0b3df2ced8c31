"""`scorebed nle`: the library's integers, unchanged, on paper and in JSON."""

import json
import typing

import pytest

from scorebed.cli import main
from scorebed.cli.nle import Name
from scorebed.presets.budgets import TABLES


def output(capsys, *arguments):
    with pytest.raises(SystemExit) as exit_:
        main(["nle", *arguments])
    captured = capsys.readouterr()
    assert (exit_.value.code, captured.err) == (0, "")
    return captured.out


def test_the_command_offers_every_table():
    assert set(typing.get_args(Name)) == set(TABLES)


@pytest.mark.parametrize("name", TABLES)
def test_json_has_the_exact_amounts(capsys, name):
    document = json.loads(output(capsys, name, "--json"))
    table = TABLES[name]
    assert (document["table"], document["budget"]) == (name, table.budget)
    assert document["notes"] == list(table.notes)
    assert len(document["rows"]) == len(table.rows)
    for found, row in zip(document["rows"], table.rows, strict=True):
        assert found["methods"] == list(row.methods)
        for key, amount in row.cost.bill().items():
            assert found[key] == amount
            assert type(found[key]) is type(amount)
        assert found["P"] == row.cost.P


@pytest.mark.parametrize("name", TABLES)
def test_text_shows_every_total_with_separators(capsys, name):
    text = output(capsys, name)
    for row in TABLES[name].rows:
        for key, amount in row.cost.bill().items():
            if key.startswith("nle"):
                assert f"{round(amount):,}" in text, key
    for note in TABLES[name].notes:
        assert note in text


def test_the_location_table_reads_as_in_the_paper(capsys):
    lines = [line.split() for line in output(capsys, "location").splitlines()]
    assert lines[2] == ["method", "P", "K_U", "M", "K_J", "nle"]
    assert lines[3] == ["score,", "varmarg,", "varpost", "1", "190,000", "—", "—", "6,144,000,000"]
    assert lines[6] == ["pce", "5", "—", "3", "—", "6,144,000,000"]
    assert lines[9] == ["jointvarpost", "5", "—", "—", "40,000", "6,144,000,000"]
    assert "K_P = 10,000" in output(capsys, "location").splitlines()[1]


def test_the_mlmc_table_says_where_the_paper_differs(capsys):
    text = output(capsys, "mlmc")
    assert (
        "The paper prints 2.0e13 as realised; its formula gives 12,288,000,000,000 at T = 30"
        in text
    )
