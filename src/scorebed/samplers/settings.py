"""A sampler's name with settings of its own: `ar1(low=0.5, high=3)`.

The settings are the numbers among the fields of its class; what is left out keeps its default."""

import dataclasses
import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

from scorebed.errors import InvalidValueError, UnknownNameError
from scorebed.samplers.base import DesignSampler
from scorebed.tasks.spaces import Space

_SHAPE = re.compile(r"(?P<name>[^()]+?)\s*\((?P<inside>[^()]*)\)\s*")


class Spelled(NamedTuple):
    """A name, and the settings behind it."""

    name: str
    settings: Mapping[str, float]


def spell(text: str) -> Spelled:
    """The name and settings of `NAME` or `NAME(key=number, …)`."""
    found = _SHAPE.fullmatch(text.strip())
    if found is None:
        return Spelled(text, {})
    pairs = [part.partition("=") for part in found["inside"].split(",") if part.strip()]
    try:
        settings = {key.strip(): float(value) for key, _, value in pairs}
    except ValueError:
        raise InvalidValueError(
            "the settings of a design sampler",
            got=f"'{text}'",
            expected="numbers by name",
            fix="write them like ar1(low=0.5, high=3).",
        ) from None
    return Spelled(found["name"], settings)


def with_settings(
    kind: Callable[..., DesignSampler],
    horizon: int,
    space: Space,
    settings: Mapping[str, float],
) -> DesignSampler:
    """A sampler of a class whose fields beyond horizon and space are its settings."""
    known = [field.name for field in dataclasses.fields(kind)][2:]  # type: ignore[arg-type]
    for key in settings:
        if key not in known:
            name = getattr(kind, "__name__", "a sampler")
            raise UnknownNameError(f"setting of {name}", key, known)
    return kind(horizon, space, **settings)
