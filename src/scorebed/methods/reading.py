"""Methods from the tables of a configuration, and back.

The fields of a method are its settings. A field that is itself a set of settings is a table of its
own, [policy_training] or [score]; the others are the table of the method's name, [pce].
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, get_args, get_type_hints

from scorebed.methods import METHODS
from scorebed.methods.base import Method
from scorebed.methods.score import ScoreSection
from scorebed.methods.settings import INLINE, Setting, check_section, settings_of


def method_class(name: str) -> type[Method]:
    """The class of a method."""
    return METHODS.find(name)


def own_table(name: str) -> str:
    """The table of a method's own settings: its name, or the NAME of FILE.py:NAME."""
    return name.rpartition(":")[2].lower()


def table_settings(name: str, values: Mapping[str, Any]) -> dict[str, dict[str, Setting]]:
    """The settings of every table that a method uses; `values` say which kind of score it has."""
    tables: dict[str, dict[str, Setting]] = {}
    own: dict[str, Setting] = {}
    for field, hint in _fields(method_class(name)).items():
        kind = get_args(hint)[0] if INLINE in get_args(hint) else hint
        if kind is ScoreSection:
            section = values.get(field, {})
            chosen = section.get("kind") if isinstance(section, Mapping) else None
            tables[field] = ScoreSection.settings(str(chosen))
        elif kind is not hint:
            own |= settings_of(kind)
        elif isinstance(kind, type) and dataclasses.is_dataclass(kind):
            tables[field] = settings_of(kind)
        else:
            own[field] = settings_of(method_class(name))[field]
    return tables | ({own_table(name): own} if own else {})


def read_method(name: str, values: Mapping[str, Any]) -> Method:
    """The method of a name with the settings of its tables; every fault is one line."""
    cls, tables = method_class(name), table_settings(name, values)
    known = [f"{table}.{key}" for table, keys in tables.items() for key in keys]
    own = (
        check_section(
            tables.get(own_table(name), {}),
            values.get(own_table(name), {}),
            f"{own_table(name)}.",
            known,
        )
        if own_table(name) in tables
        else {}
    )
    fields: dict[str, Any] = {}
    for field, hint in _fields(cls).items():
        kind = get_args(hint)[0] if INLINE in get_args(hint) else hint
        if kind is ScoreSection:
            fields[field] = ScoreSection.read(values.get(field, {}), known)
        elif kind is not hint:
            fields[field] = kind(**{key: own[key] for key in settings_of(kind)})
        elif isinstance(kind, type) and dataclasses.is_dataclass(kind):
            section = values.get(field, {})
            fields[field] = kind(**check_section(tables[field], section, f"{field}.", known))
        else:
            fields[field] = own[field]
    return cls(**fields)


def method_values(name: str, method: Method) -> dict[str, dict[str, Any]]:
    """The tables of a method: what `read_method` takes."""
    tables: dict[str, dict[str, Any]] = {}
    own: dict[str, Any] = {}
    for field, hint in _fields(type(method)).items():
        value = getattr(method, field)
        if isinstance(value, ScoreSection):
            tables[field] = value.values()
        elif INLINE in get_args(hint):
            own |= dataclasses.asdict(value)
        elif dataclasses.is_dataclass(value):
            tables[field] = dataclasses.asdict(value)  # type: ignore[arg-type]
        else:
            own[field] = value
    return tables | ({own_table(name): own} if own else {})


def _fields(cls: type[Method]) -> dict[str, Any]:
    hints = get_type_hints(cls, include_extras=True)
    return {field.name: hints[field.name] for field in dataclasses.fields(cls)}
