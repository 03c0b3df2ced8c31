"""The TOML files of this folder, each read once."""

import functools
import tomllib
from importlib import resources
from typing import Any

Values = dict[str, Any]


@functools.cache
def read(name: str) -> Values:
    """The contents of NAME.toml. Not to be changed: everybody shares them."""
    return tomllib.loads((resources.files(__package__) / f"{name}.toml").read_text("utf-8"))


def chain(name: str) -> tuple[Values, ...]:
    """A file and those that it builds on, the most general one first."""
    file = read(name)
    return (*(chain(file["base"]) if "base" in file else ()), file)


def overlaid(below: Values, above: Values) -> Values:
    """Both, with `above` winning where they meet; tables are joined, anything else replaced."""
    meet = {
        key: overlaid(below[key], value)
        for key, value in above.items()
        if isinstance(value, dict) and isinstance(below.get(key), dict)
    }
    return below | above | meet
