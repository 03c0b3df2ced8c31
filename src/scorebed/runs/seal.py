"""Checksums inside of files, by which a flipped bit in a number is found before the number is used.

Disks and copies change single bits without an error. Arrays have theirs in their header
(`serialisation`); JSON objects and configurations have it here: an object as its last key, a TOML
text as its last line, a comment. What an earlier version wrote has none, and is taken as it is."""

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

from scorebed.runs import strict_json

KEY = "sha256"
_LAST_LINE = re.compile(rb"# sha256 = (?P<seal>[0-9a-f]{64})\n\Z")
_SEAL = re.compile("[0-9a-f]{64}")


def sealed(values: Mapping[str, Any], *, beside: Sequence[Any] = ()) -> dict[str, Any]:
    """An object with its checksum as the last key; what is kept `beside` it is summed up too."""
    plain = strict_json.plain(values)
    return {**plain, KEY: _sum(plain, beside)}


def unsealed(values: Any, *, beside: Sequence[Any] = ()) -> Any:
    """The values that were sealed, without the checksum; `ValueError` for others. What has no
    checksum comes as it is.
    """
    if not isinstance(values, dict):
        return values
    if KEY not in values:
        name, value = list(values.items())[-1] if values else ("", "")
        if len(name) == len(KEY) and isinstance(value, str) and _SEAL.fullmatch(value):
            raise ValueError(f"a damaged name, '{name}' in place of '{KEY}'")
        return values
    plain = {key: value for key, value in values.items() if key != KEY}
    if values[KEY] != _sum(plain, beside):
        raise ValueError("values that are not those that were written")
    return plain


def sealed_text(text: str) -> bytes:
    """A TOML text with its checksum as the last line."""
    data = text.encode()
    return data + f"# sha256 = {_digest(data)}\n".encode()


def check_text(data: bytes) -> None:
    """Raise `ValueError` for a text that is not the one that was sealed."""
    found = _LAST_LINE.search(data)
    if found is None and b"\n# sha256 =" in data:
        raise ValueError("its last line is damaged")
    if found is not None and _digest(data[: found.start()]) != found["seal"].decode():
        raise ValueError("it is not what was written")


def _sum(plain: Any, beside: Sequence[Any]) -> str:
    return _digest(strict_json.dumps([*beside, plain]).encode())


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
