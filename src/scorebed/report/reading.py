"""What a report reads of a run: JSON objects, sections and numbers that may be missing."""

import math
from collections.abc import Mapping
from typing import Any

from scorebed.errors import RunFolderError
from scorebed.runs.folder import RunFolder


def json_object(folder: RunFolder, name: str) -> dict[str, Any] | None:
    """A JSON object of the run, if it is there."""
    if not (folder.path / name).exists():
        return None
    found = folder.read_json(name)
    if not isinstance(found, dict):
        raise RunFolderError(
            str(folder.path / name),
            got=type(found).__name__,
            expected="a JSON object",
            fix="delete it and run the command that makes it.",
        )
    return found


def section(values: Mapping[str, Any] | None, key: str) -> dict[str, Any]:
    """A part of a record that is an object itself; an empty one if it is not there."""
    found = (values or {}).get(key)
    return found if isinstance(found, dict) else {}


def as_number(value: object) -> float:
    """NaN for what is no number: records keep null for what was not finite."""
    return (
        float(value) if isinstance(value, int | float) and not isinstance(value, bool) else math.nan
    )
