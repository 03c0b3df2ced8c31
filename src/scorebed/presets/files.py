"""The TOML files of this folder, each read once."""

import functools
import tomllib
from importlib import resources
from typing import Any

from scorebed.errors import UnknownNameError

Values = dict[str, Any]


@functools.cache
def read(name: str) -> Values:
    """The contents of NAME.toml, to be read only: all callers share them."""
    files = {each.name: each for each in resources.files(__package__).iterdir()}
    if f"{name}.toml" not in files:
        known = [file.removesuffix(".toml") for file in sorted(files) if file.endswith(".toml")]
        raise UnknownNameError("file of presets", name, known)
    return tomllib.loads(files[f"{name}.toml"].read_text("utf-8"))


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
