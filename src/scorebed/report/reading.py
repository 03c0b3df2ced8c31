"""Reading a run's JSON, of which any part may be missing."""

import math
from collections.abc import Mapping
from typing import Any

from scorebed.errors import RunFolderError
from scorebed.runs.folder import RunFolder


def json_object(folder: RunFolder, name: str) -> dict[str, Any] | None:
    """A JSON object in the run's folder, if there is one."""
    if not (folder.path / name).exists():
        return None
    found = folder.read_json(name)
    if not isinstance(found, dict):
        raise RunFolderError(
            str(folder.path / name),
            got=type(found).__name__,
            expected="a JSON object",
            fix="delete it, and run the command that writes it again.",
        )
    return found


def section(values: Mapping[str, Any] | None, key: str) -> dict[str, Any]:
    """An object inside of a record; empty if it is missing."""
    found = (values or {}).get(key)
    return found if isinstance(found, dict) else {}


def as_number(value: object) -> float:
    """A number; NaN for anything else, such as the null of a value that was not finite."""
    return (
        float(value) if isinstance(value, int | float) and not isinstance(value, bool) else math.nan
    )
