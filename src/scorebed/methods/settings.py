"""Settings of methods and of kinds of scores: the fields of a class, checked, read and written.

A class whose fields are its settings is a section of a configuration: `inner: int = 15` with a
string below it that says what it means. A fault is one line that names the key, what came, what was
expected and how to fix it; an unknown key is answered with the nearest right one.
"""

import ast
import dataclasses
import functools
import inspect
import itertools
import textwrap
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeVar, get_type_hints

from pydantic import BaseModel, ConfigDict, ValidationError, create_model
from pydantic_core import ErrorDetails

from scorebed.errors import InvalidValueError, ScorebedError, UnknownNameError
from scorebed.methods.fields import AnyNumber, AnyWhole, Flag, Widths

# Marks a field whose own fields are keys of the method's section, not a section of their own.
INLINE = "inline"
_MISSING = ("missing", "missing_argument", "missing_keyword_only_argument")
_UNKNOWN = ("extra_forbidden", "unexpected_keyword_argument")
_PLAIN = {int: AnyWhole, float: AnyNumber, bool: Flag, tuple[int, ...]: Widths}

Made = TypeVar("Made")


class Setting(NamedTuple):
    """One field: its type as pydantic takes it, its default (`...` if it has none), its meaning."""

    annotation: Any
    default: Any
    meaning: str


def settings_of(section: type) -> dict[str, Setting]:
    """The settings of a class: its fields, by name."""
    found = {}
    hints, docs = get_type_hints(section, include_extras=True), _docs(section)
    for field in dataclasses.fields(section):
        default = field.default if field.default is not dataclasses.MISSING else ...
        if default is ... and field.default_factory is not dataclasses.MISSING:
            default = field.default_factory()
        annotation = hints[field.name]
        found[field.name] = Setting(
            _PLAIN.get(annotation, annotation), default, docs.get(field.name, "")
        )
    return found


def check_section(
    settings: Mapping[str, Setting], values: object, prefix: str, known: Iterable[str] = ()
) -> dict[str, Any]:
    """Checked values of the settings of one section; `prefix` is its name with a point, or nothing.

    `known` are keys of other sections, for the answer to a misspelt one.
    """
    if not isinstance(values, Mapping):
        name = prefix.rstrip(".")
        raise InvalidValueError(
            name,
            got=_short(repr(values)),
            expected=f"a table [{name}]",
            fix=f"set its keys, such as {prefix}{next(iter(settings), 'key')}.",
        )
    try:
        checked = _model(tuple(settings.items())).model_validate(dict(values))
    except ValidationError as error:
        # A misspelt key comes before the one that is then missing.
        faults = error.errors(include_url=False)
        first = min(faults, key=lambda fault: fault["type"] not in _UNKNOWN)
        raise _explain(first, settings, prefix, known) from None
    return {name: getattr(checked, name) for name in settings}


class PairError(InvalidValueError):
    """Two settings of one section that do not go together; `at` names the section."""

    def __init__(self, key: str, other: str, *, got: object, limit: object, expected: str):
        self.key, self.other = key, other
        self.given: dict[str, Any] = {"got": got, "limit": limit, "expected": expected}
        super().__init__(
            key,
            got=got,
            expected=f"{expected} {other}, {limit}",
            fix=f"change one of the two by --set {key}=VALUE.",
        )

    def at(self, prefix: str) -> "PairError":
        """The same fault in the section of a prefix such as "score."."""
        return PairError(prefix + self.key, prefix + self.other, **self.given)


def make_section(section: Callable[..., Made], values: Mapping[str, Any], prefix: str) -> Made:
    """A section of checked values; settings that do not go together are refused by name."""
    try:
        return section(**values)
    except PairError as error:
        raise error.at(prefix) from None


def unknown_key(key: str, keys: Iterable[str]) -> UnknownNameError:
    """A key that no section has, with what it may have meant: the same name elsewhere, the keys of
    its section, the key that it continues, or those of the top.
    """
    keys, (section, _, last) = sorted(set(keys)), key.rpartition(".")
    elsewhere = [each for each in keys if each.rpartition(".")[2] == last and each != last]
    start = f"{section}." if section else ""
    near = [each for each in keys if each.startswith(start) and "." not in each[len(start) :]]
    above = [section] if section in keys else [each for each in keys if "." not in each]
    return UnknownNameError("key", _short(key), elsewhere or near or above)


@functools.lru_cache(maxsize=256)
def _model(settings: tuple[tuple[str, Setting], ...]) -> type[BaseModel]:
    fields: dict[str, Any] = {name: (s.annotation, s.default) for name, s in settings}
    model: type[BaseModel] = create_model(
        "Section", __config__=ConfigDict(extra="forbid"), **fields
    )
    return model


def _explain(
    detail: ErrorDetails, settings: Mapping[str, Setting], prefix: str, known: Iterable[str]
) -> ScorebedError:
    """What pydantic found first, in our own form."""
    name = str(detail["loc"][0])
    key, got = prefix + ".".join(map(str, detail["loc"])), _short(repr(detail["input"]))
    if name not in settings:
        return unknown_key(key, [*(prefix + each for each in settings), *known])
    meaning = settings[name].meaning.rstrip(".")
    if detail["type"] in _MISSING:
        fix = f"choose a preset, or give it in the file or by --set {key}=VALUE."
        return InvalidValueError(key, got="nothing", expected=f"a value ({meaning})", fix=fix)
    if isinstance(detail["input"], Mapping) and detail["input"]:  # score.steps.x
        return unknown_key(f"{key}.{next(iter(detail['input']))}", [key])
    context = detail.get("ctx", {})
    if "names" in context and isinstance(detail["input"], str):
        return UnknownNameError(f"value of {key}", _short(detail["input"]), context["names"])
    expected = context.get("expected") or (
        f"one of {', '.join(context['names'])}" if "names" in context else detail["msg"].lower()
    )
    return InvalidValueError(
        key, got=got, expected=str(expected), fix=f"give another value ({meaning})."
    )


def _short(text: str) -> str:
    return text if len(text) <= 60 else text[:57] + "..."


@functools.cache
def _docs(section: type) -> dict[str, str]:
    """The string below every field, of a class and of those that it inherits from."""
    found: dict[str, str] = {}
    for each in reversed(section.__mro__):
        try:
            tree = ast.parse(textwrap.dedent(inspect.getsource(each)))
        except (OSError, TypeError, SyntaxError):
            continue
        body = getattr(tree.body[0], "body", [])
        for field, below in itertools.pairwise(body):
            if (
                isinstance(field, ast.AnnAssign)
                and isinstance(field.target, ast.Name)
                and isinstance(below, ast.Expr)
                and isinstance(below.value, ast.Constant)
                and isinstance(below.value.value, str)
            ):
                found[field.target.id] = " ".join(below.value.value.split())
    return found
