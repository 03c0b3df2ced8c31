"""Tables of names: a user's entry is found like a built-in one, and bad names are refused."""

import subprocess
import sys

import pytest

from scorebed.errors import InvalidValueError, UnknownNameError
from scorebed.registry import Late, Registry


@pytest.fixture
def table():
    return Registry("colour", {"red": list, "green": dict}, made_by="a class")


def test_a_registered_entry_is_found_like_a_built_in_one(table):
    @table.register("deep-blue")
    class Blue:
        pass

    assert Blue is not None  # the decorator gives back what it was given
    assert (table.find("red"), table.find("deep-blue")) == (list, Blue)
    assert list(table) == ["red", "green", "deep-blue"]
    table.register("deep-blue")(set)  # a file that is executed again
    assert table.find("deep-blue") is set


def test_an_unknown_name_is_answered_with_the_nearest(table):
    with pytest.raises(UnknownNameError, match=r"unknown colour, got 'gren'.*did you mean 'green'"):
        table.find("gren")


@pytest.mark.parametrize("name", ["", "Red", "1st", "a b", "a_b"])
def test_a_malformed_name_is_refused(table, name):
    with pytest.raises(InvalidValueError, match=r'the name of a colour.*Fix: write it like "my-'):
        table.register(name)


def test_a_built_in_name_is_refused(table):
    with pytest.raises(InvalidValueError, match=r"got 'red', which is built in.*call it my-red"):
        table.register("red")


def test_what_cannot_be_called_is_refused(table):
    with pytest.raises(InvalidValueError, match="the colour 'blue', got a int, expected a class"):
        table.register("blue")(3)


def test_a_late_entry_is_imported_when_it_is_looked_up(monkeypatch):
    monkeypatch.delitem(sys.modules, "colorsys", raising=False)
    late = {"hue": Late("colorsys", "rgb_to_hls"), "empty": Late("builtins", "list", made=True)}
    table = Registry("colour", late, made_by="a class")
    assert "hue" in table
    assert list(table) == ["hue", "empty"]
    assert len(table) == 2
    assert "colorsys" not in sys.modules
    assert table.find("hue") is sys.modules["colorsys"].rgb_to_hls
    assert table["empty"] == []
    assert table["empty"] is table["empty"]


def test_the_tables_of_a_start_import_no_variant():
    """Whoever asks for a bound does not wait for policies, tasks and training."""
    program = "import sys, scorebed; scorebed.eig_bounds; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    late = ("scorebed.policies.modes", "scorebed.tasks.library.pendulum", "scorebed.bounds.smc")
    heavy = ("scipy.stats", "optax", "blackjax", "flowjax", "matplotlib", "scorebed.training.fit")
    assert loaded.returncode == 0
    assert not {*late, *heavy} & {*loaded.stdout.split()}
