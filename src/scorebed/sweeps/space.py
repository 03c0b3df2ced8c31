"""The space of a sweep: which settings are searched, and within which limits; a TOML file.

    policy = ["dad", "gru"]                                             one of some values
    [policy_training]
    learning_rate = { low = 1e-4, high = 1e-2, log = true }             a number within limits
    batch = { low = 64, high = 256, step = 64 }
    steps = 2000                                                        the same in all trials

Keys are those of a configuration, and every value is checked against the setting that it is for.
A trial has the settings that its method and schedule use, and no others: `final_rate` is suggested
where the schedule is a cosine.
"""

import abc
import dataclasses
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, TypeAlias, get_args

import tomli_w
from optuna.trial import Trial

from scorebed.errors import InvalidValueError, UnknownNameError, require
from scorebed.methods.settings import Setting, check_section, unknown_key

# What other settings depend on, in this order; the rest follows as it stands in the file.
FIRST = ("method", "policy", "policy_training.schedule")
# What a study fixes for all of its trials.
OF_STUDY = ("task", "preset", "seed", "minutes", "budget", "score_run", "fresh_scores", "sampler")
OF_STUDY_TABLES = ("sources", "history")
LIMITS = ("low", "high", "log", "step", "points")

Primitive: TypeAlias = str | int | float | bool
Settings: TypeAlias = dict[str, Primitive]
UsedKeys: TypeAlias = Callable[[Mapping[str, Primitive]], Collection[str]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Dimension(abc.ABC):
    """One setting that is searched."""

    key: str

    @abc.abstractmethod
    def suggest(self, trial: Trial) -> Primitive:
        """A value for a trial; the one that it has if it has one."""

    @property
    @abc.abstractmethod
    def ends(self) -> tuple[Any, ...]:
        """The values that have to be right for all of them to be."""

    @property
    @abc.abstractmethod
    def grid(self) -> tuple[Primitive, ...]:
        """The values of a grid; refused where they are not said."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ChoiceDimension(Dimension):
    """One of some values."""

    values: tuple[Any, ...]

    def suggest(self, trial: Trial) -> Primitive:
        found: Primitive = trial.suggest_categorical(self.key, self.grid)
        return found

    @property
    def ends(self) -> tuple[Any, ...]:
        return self.values

    @property
    def grid(self) -> tuple[Primitive, ...]:
        return tuple(_primitive(value) for value in self.values)


@dataclasses.dataclass(frozen=True, kw_only=True)
class WholeDimension(Dimension):
    """A whole number within limits."""

    low: int
    high: int
    log: bool = False
    step: int = 1

    def suggest(self, trial: Trial) -> Primitive:
        found: int = trial.suggest_int(self.key, self.low, self.high, log=self.log, step=self.step)
        return found

    @property
    def ends(self) -> tuple[Any, ...]:
        return (self.low, self.high)

    @property
    def grid(self) -> tuple[Primitive, ...]:
        return tuple(range(self.low, self.high + 1, self.step))


@dataclasses.dataclass(frozen=True, kw_only=True)
class RealDimension(Dimension):
    """A number within limits; `points` are those of a grid."""

    low: float
    high: float
    log: bool = False
    points: int = 0

    def suggest(self, trial: Trial) -> Primitive:
        found: float = trial.suggest_float(self.key, self.low, self.high, log=self.log)
        return found

    @property
    def ends(self) -> tuple[Any, ...]:
        return (self.low, self.high)

    @property
    def grid(self) -> tuple[Primitive, ...]:
        require(
            self.points > 1,
            f"{self.key} in a grid",
            got="limits alone",
            expected="the number of points between them",
            fix="add points = 3 to its limits, or list its values.",
        )
        low, high = (math.log(self.low), math.log(self.high)) if self.log else (self.low, self.high)
        even = [low + (high - low) * i / (self.points - 1) for i in range(self.points)]
        return tuple(math.exp(x) if self.log else x for x in even)


@dataclasses.dataclass(frozen=True)
class SearchSpace:
    """What is searched, and what is the same in all trials."""

    dimensions: tuple[Dimension, ...]
    fixed: Mapping[str, Any]

    def suggest(self, trial: Trial, used: UsedKeys) -> Settings:
        """The settings of a trial, in a fixed order. One that was suggested before stays as it
        is.
        """
        found: Settings = {k: _primitive(v) for k, v in self.fixed.items() if k in FIRST}
        for dimension in self.dimensions:
            if dimension.key in FIRST or dimension.key in used(found):
                found[dimension.key] = dimension.suggest(trial)
        keys = used(found)
        return found | {k: _primitive(v) for k, v in self.fixed.items() if k in keys}

    @property
    def grid_size(self) -> int:
        """The number of points of its grid."""
        return math.prod(len(dimension.grid) for dimension in self.dimensions)

    def grid_point(self, number: int) -> Settings:
        """Number `number` of the points of its grid, the last dimension changing fastest."""
        found: Settings = {}
        for dimension in reversed(self.dimensions):
            number, place = divmod(number, len(dimension.grid))
            found[dimension.key] = dimension.grid[place]
        return found

    def examples(self) -> Iterator[Settings]:
        """Settings that together have every choice, to be planned before anything is run."""
        fixed = {key: _primitive(value) for key, value in self.fixed.items()}
        first = fixed | {each.key: _primitive(each.ends[0]) for each in self.dimensions}
        yield first
        for dimension in self.dimensions:
            for value in dimension.ends[1:]:
                yield first | {dimension.key: _primitive(value)}


def read_space(
    values: Mapping[str, Any], known: Mapping[str, Setting], *, taken_over: Collection[str] = ()
) -> SearchSpace:
    """A space from the values of its file. `known` are the settings that trials may have, and
    `taken_over` the tables whose settings come with the score.
    """
    fixed: dict[str, Any] = {}
    dimensions: list[Dimension] = []
    for key, value in _flat(values, known):
        _require_searchable(key, known, taken_over)
        setting = known[key]
        if isinstance(value, Mapping):
            dimension: Dimension | None = _limits(key, value, setting)
        elif isinstance(value, list) and not _is_setting(value, setting):
            dimension = _choice(key, value)
        else:
            dimension = None
            _check(key, setting, [value])
            fixed[key] = value
        if dimension is not None:
            _check(key, setting, dimension.ends)
            dimensions.append(dimension)
    require(
        bool(dimensions),
        "the space",
        got="no setting with several values",
        expected="at least one to search",
        fix="write one like learning_rate = { low = 1e-4, high = 1e-2, log = true }.",
    )
    return SearchSpace(tuple(sorted(dimensions, key=_place)), fixed)


def _place(dimension: Dimension) -> int:
    return FIRST.index(dimension.key) if dimension.key in FIRST else len(FIRST)


def _flat(values: Mapping[str, Any], known: Mapping[str, Setting]) -> Iterator[tuple[str, Any]]:
    """Dotted keys and what stands at them: tables of the configuration are opened, limits are
    not.
    """
    tables = {key.partition(".")[0] for key in known if "." in key}
    for key, value in values.items():
        limits = isinstance(value, Mapping) and bool(value) and set(value) <= set(LIMITS)
        if isinstance(value, Mapping) and (key in tables or not (limits or key in known)):
            if not value:
                raise unknown_key(key, known)
            yield from ((f"{key}.{name}", part) for name, part in value.items())
        else:
            yield key, value


def _require_searchable(
    key: str, known: Mapping[str, Setting], taken_over: Collection[str]
) -> None:
    if key in OF_STUDY or key.partition(".")[0] in (*OF_STUDY_TABLES, *taken_over):
        raise InvalidValueError(
            f"the key {key} of the space",
            got="a setting that a study fixes",
            expected="one that its trials may differ in",
            fix="leave it out: the score, its task and the seed are the study's.",
        )
    if key not in known:
        raise unknown_key(key, known)


def _limits(key: str, value: Mapping[str, Any], setting: Setting) -> Dimension:
    for name in value:
        if name not in LIMITS:
            raise UnknownNameError(f"word in the limits of {key}", str(name), LIMITS)
    kinds = _kinds(setting)
    low, high = value.get("low"), value.get("high")
    require(
        _is_number(low) and _is_number(high) and low < high,  # type: ignore[operator]
        f"the limits of {key}",
        got=f"low = {low}, high = {high}",
        expected="two finite numbers, the lower one first",
        fix="write them like { low = 1, high = 8 }, or list values: [1, 2, 8].",
    )
    log = value.get("log", False)
    require(
        isinstance(log, bool) and (not log or low > 0),  # type: ignore[operator]
        f"log in the limits of {key}",
        got=f"{log} from {low}",
        expected="true or false, and limits above 0 where it is true",
        fix="leave it out, or raise low.",
    )
    step, points = value.get("step", 1), value.get("points", 0)
    whole = int in kinds and bool not in kinds
    require(
        whole or float in kinds,
        f"the limits of {key}",
        got="a range",
        expected=f"a list of values ({setting.meaning.rstrip('.')})",
        fix="list them: [..., ...].",
    )
    for name, number, suits in (("step", step, whole), ("points", points, not whole)):
        require(
            name not in value or (suits and type(number) is int and number >= 1),
            f"{name} in the limits of {key}",
            got=f"{number}",
            expected="a whole number from 1 up; step is for whole numbers, points for others",
            fix="leave it out.",
        )
    require(
        not (log and step != 1),
        f"step in the limits of {key}",
        got="log as well",
        expected="one of them",
        fix="leave one of them out.",
    )
    if whole:
        _check(key, setting, [low, high])
        return WholeDimension(key=key, low=int(low), high=int(high), log=log, step=step)  # type: ignore[arg-type]
    return RealDimension(key=key, low=float(low), high=float(high), log=log, points=points)  # type: ignore[arg-type]


def _choice(key: str, values: Sequence[Any]) -> ChoiceDimension | None:
    require(
        len(values) > 1 and len({str(value) for value in values}) == len(values),
        f"the values of {key}",
        got=str(values),
        expected="several different ones",
        fix="write a single value without brackets.",
    )
    return ChoiceDimension(key=key, values=tuple(values))


def _check(key: str, setting: Setting, values: Sequence[Any]) -> None:
    table, _, name = key.rpartition(".")
    for value in values:
        check_section({name: setting}, {name: value}, f"{table}." if table else "")


def _is_setting(value: Any, setting: Setting) -> bool:
    """Whether a list is one value of a setting, such as the widths of a network."""
    try:
        check_section({"value": setting}, {"value": value}, "")
    except InvalidValueError:
        return False
    return True


def _kinds(setting: Setting) -> tuple[Any, ...]:
    """The types that a setting may have."""
    outer = get_args(setting.annotation)
    base = outer[0] if outer else setting.annotation
    return (base, *get_args(base))


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)


def _primitive(value: Any) -> Primitive:
    """A value as Optuna keeps it; a list as its TOML."""
    if isinstance(value, str | int | float | bool):
        return value
    return tomli_w.dumps({"value": value}).partition("=")[2].strip()
