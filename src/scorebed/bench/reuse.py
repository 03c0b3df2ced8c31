"""Going on with a run that a bench finds in its folder: only if it is the run that was asked for.

The whole resolved configuration is compared, not a few names of it: a seed, a preset or a setting
that differs would put numbers of another run into the table.
"""

import dataclasses
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from scorebed.errors import InvalidValueError
from scorebed.runs.config import RunConfig, to_values
from scorebed.runs.execution import job_for
from scorebed.tasks.base import Task


class SettingDifference(NamedTuple):
    """A setting that two configurations do not share; None where one of them has none."""

    key: str
    found: Any
    wanted: Any


def require_same(
    path: Path, found: RunConfig, wanted: RunConfig, *, apart_from: Collection[str] = ()
) -> None:
    """Refuse the run in a folder unless it is configured as the one that is wanted, but for some
    settings.
    """
    for key, has, wants in differences(found, wanted):
        if key not in apart_from:
            raise InvalidValueError(
                f"the run in {path}",
                got=f"{key} = {_word(has)}",
                expected=f"{key} = {_word(wants)}, as asked for",
                fix="give another folder by --out, or ask for the settings that it has.",
            )


def differences(found: RunConfig, wanted: RunConfig) -> Iterator[SettingDifference]:
    """The settings in which two configurations differ, in the order in which they are listed."""
    has, wants = _flat(to_values(found)), _flat(to_values(wanted))
    for key in dict.fromkeys([*wants, *has]):
        if has.get(key) != wants.get(key):
            yield SettingDifference(key, has.get(key), wants.get(key))


def timed_settings(config: RunConfig, task: Task) -> set[str]:
    """The settings that a time limit decides: numbers of steps, which no two measurements of the
    pace share.
    """
    job, method = job_for(config, task), config.trained_by
    upfront = bool(method.upfront_stem)
    one, two = (
        dataclasses.replace(config, trained_by=method.with_steps(job, n if upfront else None, n))
        for n in (1, 2)
    )
    return {each.key for each in differences(one, two)}


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in values.items():
        inner = isinstance(value, Mapping)
        found |= _flat(value, f"{prefix}{key}.") if inner else {f"{prefix}{key}": value}
    return found


def _word(value: Any) -> str:
    text = "nothing" if value is None else str(value)
    return text if len(text) <= 60 else text[:57] + "..."
