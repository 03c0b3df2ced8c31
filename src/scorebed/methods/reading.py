"""Methods from the tables of a configuration, and back.

The fields of a method are its settings. A field that is itself a set of settings is a table of its
own, [policy_training] or [score]; the others are the table of the method's name, [pce].
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, get_args, get_type_hints

from scorebed.errors import InvalidValueError
from scorebed.methods import METHODS
from scorebed.methods.base import Method
from scorebed.methods.score import ScoreSection, chosen_kind
from scorebed.methods.sections import PolicyTraining, chosen_schedule, unused_by, users_of
from scorebed.methods.settings import INLINE, Setting, check_section, make_section, settings_of


def method_class(name: str) -> type[Method]:
    """The class of a method."""
    return METHODS.find(name)


# What a configuration has besides: no method's own table is called that.
RESERVED = frozenset(
    (
        *("task", "method", "preset", "policy", "sampler", "policies", "repeats", "seed"),
        *("budget", "score_run", "sources", "history", "evaluation", "posterior"),
        *("policy_training", "score"),
    )
)


def own_table(name: str) -> str:
    """The table of a method's own settings: its name, or the NAME of FILE.py:NAME."""
    table = name.rpartition(":")[2].lower()
    return f"{table}_method" if table in RESERVED else table


def table_settings(name: str, values: Mapping[str, Any]) -> dict[str, dict[str, Setting]]:
    """The settings of every table that a method uses; `values` say which kind of score and
    which schedule it has.
    """
    tables: dict[str, dict[str, Setting]] = {}
    own: dict[str, Setting] = {}
    for field, hint in _fields(method_class(name)).items():
        kind = get_args(hint)[0] if INLINE in get_args(hint) else hint
        if kind is ScoreSection:
            tables[field] = ScoreSection.settings(chosen_kind(values))
        elif kind is not hint:
            own |= settings_of(kind)
        elif kind is PolicyTraining:
            tables[field] = PolicyTraining.settings(chosen_schedule(values))
        elif isinstance(kind, type) and dataclasses.is_dataclass(kind):
            tables[field] = settings_of(kind)
        else:
            own[field] = settings_of(method_class(name))[field]
    return tables | ({own_table(name): own} if own else {})


def read_method(name: str, values: Mapping[str, Any], known: Sequence[str] = ()) -> Method:
    """The method of a name with the settings of its tables; every fault is one line. `known` are
    all keys of the configuration, for the answer to a misspelt one.
    """
    cls, tables, table = method_class(name), table_settings(name, values), own_table(name)
    known = known or [f"{each}.{key}" for each, keys in tables.items() for key in keys]
    own: dict[str, Any] = {}
    if table in tables:
        own = check_section(tables[table], values.get(table, {}), f"{table}.", known)
    _refuse_other_schedules(values)
    fields: dict[str, Any] = {}
    for field, hint in _fields(cls).items():
        kind = get_args(hint)[0] if INLINE in get_args(hint) else hint
        if kind is ScoreSection:
            fields[field] = ScoreSection.read(values.get(field, {}), known)
        elif kind is not hint:
            fields[field] = make_section(kind, {k: own[k] for k in settings_of(kind)}, f"{table}.")
        elif isinstance(kind, type) and dataclasses.is_dataclass(kind):
            checked = check_section(tables[field], values.get(field, {}), f"{field}.", known)
            fields[field] = make_section(kind, checked, f"{field}.")
        else:
            fields[field] = own[field]
    return cls(**fields)


def method_values(name: str, method: Method) -> dict[str, dict[str, Any]]:
    """The tables of a method: what `read_method` takes."""
    tables: dict[str, dict[str, Any]] = {}
    own: dict[str, Any] = {}
    for field, hint in _fields(type(method)).items():
        value = getattr(method, field)
        if isinstance(value, ScoreSection | PolicyTraining):
            tables[field] = value.values()
        elif INLINE in get_args(hint):
            own |= dataclasses.asdict(value)
        elif dataclasses.is_dataclass(value):
            tables[field] = dataclasses.asdict(value)  # type: ignore[arg-type]
        else:
            own[field] = value
    return tables | ({own_table(name): own} if own else {})


def _refuse_other_schedules(values: Mapping[str, Any]) -> None:
    """Refuse a setting of a schedule that the run does not have: it would change nothing."""
    schedule, section = chosen_schedule(values), values.get("policy_training")
    given = sorted(unused_by(schedule) & set(section)) if isinstance(section, Mapping) else []
    if given:
        raise InvalidValueError(
            f"policy_training.{given[0]}",
            got=f"a setting of the schedule {' or '.join(users_of(given[0]))}",
            expected=f"one that the schedule {schedule} uses",
            fix="leave it out, or choose that schedule by --set policy_training.schedule=NAME.",
        )


def _fields(cls: type[Method]) -> dict[str, Any]:
    hints = get_type_hints(cls, include_extras=True)
    return {field.name: hints[field.name] for field in dataclasses.fields(cls)}
