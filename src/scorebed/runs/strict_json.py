"""JSON as its standard has it: no NaN, no infinity, no key twice. Numbers that are not finite are
written as null.
"""

import json
import math
from collections.abc import Mapping
from typing import Any, Never

from scorebed.errors import InvalidValueError

# A plain value: None, bool, int, float, str, and lists and string-keyed dicts of them.
Json = Any


def dumps(value: Any, *, indent: int | None = None) -> str:
    """`value` as JSON text, keys in the order given. Scalars of NumPy and JAX are taken as the
    numbers they are.
    """
    return json.dumps(plain(value), indent=indent, allow_nan=False)


def loads(text: str | bytes) -> Json:
    """The value of a JSON text; raises `ValueError` for anything else, non-finite numbers and
    repeated keys included.
    """
    try:
        return json.loads(
            text, parse_constant=_no_constant, parse_float=_finite, object_pairs_hook=_unique
        )
    except RecursionError:
        raise ValueError("nested too deeply") from None


def plain(value: Any) -> Json:
    """`value` in plain Python, with null for numbers that are not finite."""
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise _not_json(key)
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if getattr(value, "shape", None) == ():
        return plain(value.item())
    raise _not_json(value)


def _not_json(value: object) -> InvalidValueError:
    return InvalidValueError(
        "a value for a JSON file",
        got=f"{value!r:.80} of type {type(value).__name__}",
        expected="numbers, strings, lists and dicts with string keys",
        fix="convert arrays to lists and names to strings.",
    )


def _no_constant(name: str) -> Never:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text:.40} is too large")
    return number


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key stands twice in one object")
    return found
