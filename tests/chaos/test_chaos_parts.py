"""The scripts of `make chaos` run: each part with a handful of cases, and no promise broken.
Those that start processes of their own, or make every kind of file, take longer.
"""

import dataclasses
import sys
from pathlib import Path

import pytest

pytest.importorskip("fastapi", reason="the web page needs fastapi: pip install 'scorebed[web]'")
pytest.importorskip("httpx", reason="these tests need httpx: pip install 'scorebed[dev]'")
sys.path.insert(0, str(Path(__file__).parents[2]))

from chaos.nursery import Nursery
from chaos.page import SECTION, page
from chaos.parts import RECORDS, Found, PartRecord, carry_out
from chaos.table import PARTS

from chaos import damage

LONGER = ("training", "server", "disk", "races", "damage")


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    """A folder for all parts: what several of them need is made once."""
    return tmp_path_factory.mktemp("chaos")


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=pytest.mark.slow) if n in LONGER else n for n in PARTS],
)
def test_no_promise_is_broken_in_a_few_cases(name, work):
    found = PARTS[name].piece(work, 1, PARTS[name].small)
    assert found.faults == []
    assert found.counts[PARTS[name].counted] > 0


def test_what_an_earlier_command_said_is_not_taken_for_this_ones(tmp_path, monkeypatch):
    """Clients once asked at the port of a server that had been killed, and waited for an answer."""
    nursery = object.__new__(Nursery)
    nursery.work, nursery._count = tmp_path, 0
    monkeypatch.setattr(Nursery, "ask", lambda *_: {"pid": 1})
    (tmp_path / "said-1.txt").write_text("the link of a server that was killed")
    assert nursery.start(["serve"]).said() == ""


@pytest.mark.slow
def test_a_damaged_file_that_is_read_without_a_word_is_a_broken_promise(work, monkeypatch):
    # Nobody looks at the checksums of arrays and of JSON objects.
    monkeypatch.setattr("scorebed.runs.serialisation._content", lambda header, _: header.sha256)
    monkeypatch.setattr(
        "scorebed.runs.seal.unsealed",
        lambda values, **_: {name: value for name, value in values.items() if name != "sha256"},
    )
    found = damage.damage(work, 0, 70)
    assert any("silently used" in fault for fault in found.faults)


def test_pieces_add_up_are_kept_and_are_not_carried_out_again(tmp_path):
    numbers = []

    def piece(_, number, cases):
        numbers.append(number)
        found = Found()
        found.counts["kills"] += cases
        found.expect(number != 1, "the second went wrong")
        return found

    part = dataclasses.replace(PARTS["training"], piece=piece, pieces=3, cases=5)
    said = []
    carry_out(part, tmp_path / "work", until=float("inf"), folder=tmp_path, say=said.append)
    record = PartRecord.read("training", tmp_path)
    assert (record.pieces, record.counts, record.broken) == (3, {"kills": 15}, 1)
    assert record.faults == ["the second went wrong"]
    carry_out(part, tmp_path / "work", until=float("inf"), folder=tmp_path, say=said.append)
    assert numbers == [0, 1, 2]


def test_the_page_is_what_the_records_say():
    assert page() == (RECORDS.parent / "reliability.md").read_text()
    for name in PARTS:
        if PartRecord.read(name).pieces:
            assert f"`{name}`" in page().split(SECTION)[1]
