"""Tables of names: a user's entry is found like a built-in one, and bad names are refused."""

import pytest

from scorebed.errors import InvalidValueError, UnknownNameError
from scorebed.registry import Registry


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
