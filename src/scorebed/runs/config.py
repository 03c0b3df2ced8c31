"""The configuration of a run: frozen, checked once, read from and written to TOML.

Values come from a preset, then a file, then `--set key=value`, each over the one before; what
results is complete and is written into the run folder. It has the settings that the run uses and no
others: those of its method, of its kind of score, of its bounds. An unknown key is answered with
the nearest right one, a wrong value with what was expected, in one line. Configuration stops in
this layer; code below receives values.
"""

import dataclasses
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import tomli_w

from scorebed.errors import InvalidValueError, NewerFormatError, ScorebedError, require
from scorebed.methods import METHODS
from scorebed.methods._densities import PosteriorTraining
from scorebed.methods.aliases import OF_RUN, POSTERIOR, renamed, revalued, upgraded
from scorebed.methods.base import Method
from scorebed.methods.fields import Count, Flag, Name, NonNegative, Seed, digest, whole
from scorebed.methods.reading import method_values, read_method, table_settings
from scorebed.methods.sections import chosen_schedule, unused_by
from scorebed.methods.settings import (
    Setting,
    check_section,
    make_section,
    settings_of,
    unknown_key,
)
from scorebed.runs import seal
from scorebed.runs.durable import explained
from scorebed.runs.sections import EvaluationConfig, HistoryConfig
from scorebed.samplers import PAPER

FORMAT = 2


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunSettings:
    """What every run has, in no section."""

    task: Name
    """A built-in task, or FILE.py:NAME."""
    method: Name
    """How policies are trained: the paper's method, one of its baselines, or FILE.py:NAME."""
    preset: Name
    """The preset that the other values started from."""
    policy: Name
    """The architecture of the policy, or FILE.py:NAME."""
    sampler: Name = PAPER
    """The designs that a score or density learns from: the paper's for the task, or another, with
    settings of its own in brackets: ar1(low=0.5, high=3).
    """
    policies: Count = 1
    """Number of policies, P, of which the best is kept."""
    repeats: Count = 1
    """Number of times that the whole choice is repeated, for the standard error across policies."""
    fresh_scores: Flag = False
    """Whether every repeat learns a score or density of its own; otherwise they share one, and the
    standard error is across policies alone.
    """
    seed: Seed = 0
    """The seed of all random numbers."""
    budget: Annotated[int, whole(0, 10**15)] = 0
    """Likelihood evaluations that the training of each repeat may spend, with what it shares in
    full; 0 for no limit. --budget also chooses sizes that use them.
    """
    minutes: NonNegative = 0.0
    """Minutes that the numbers of steps were chosen for, by --minutes; 0 if they were not."""
    score_run: str = ""
    """The run whose scores or density were taken over; empty if the run trains its own."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sources:
    """The sha256 of every file of the user's that the run rests on; empty for what is built in."""

    task: Annotated[str, digest()] = ""
    """Of the task."""
    method: Annotated[str, digest()] = ""
    """Of the method."""
    policy: Annotated[str, digest()] = ""
    """Of the policy."""
    score_kind: Annotated[str, digest()] = ""
    """Of the kind of score."""
    sampler: Annotated[str, digest()] = ""
    """Of the sampler."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunConfig(RunSettings):
    """All that decides a run, together with the version of the code."""

    sources: Sources
    history: HistoryConfig
    """Steps that were over before the run began."""
    evaluation: EvaluationConfig
    posterior: PosteriorTraining | None
    """The posterior that bounds the EIG where the model has no density."""
    trained_by: Method
    """The method with its settings."""


# Tables that do not depend on the method; those of the second line may be missing.
TABLES = {"evaluation": EvaluationConfig}
OPTIONAL = {"sources": Sources, "history": HistoryConfig, POSTERIOR: PosteriorTraining}


class Used(NamedTuple):
    """A setting that a run uses: its dotted key, its value, its meaning."""

    key: str
    value: Any
    meaning: str


def make_config(
    preset_values: Mapping[str, Any], overrides: Sequence[str] = (), file: Path | None = None
) -> RunConfig:
    """The configuration from a preset's values, a TOML file over them, and `key=value` overrides
    over both.
    """
    method = chosen_method(overrides, file) or str(preset_values.get("method", ""))
    from_file = read_toml(file) if file is not None else {}
    chosen = merge(_renamed(from_file, method), overrides, method)
    _refuse_posterior(preset_values, chosen)
    values = _over(preset_values, chosen)
    # Another kind of score has other settings than the preset's: what it does not use goes.
    before, after = _tables(preset_values), _tables(values)
    for table in [each for each in after if _is_table(values.get(each))]:
        given, lost = chosen.get(table, {}), before.get(table, {}).keys() - after[table].keys()
        values[table] = {k: v for k, v in values[table].items() if k in given or k not in lost}
    return from_values(values)


def chosen_method(overrides: Sequence[str] = (), file: Path | None = None) -> str:
    """The method that overrides or a file name; empty if they name none."""
    method = _chosen("method", overrides, file)
    return method if isinstance(method, str) else ""


def chosen_policies(overrides: Sequence[str] = (), file: Path | None = None) -> int | None:
    """The number of policies that overrides or a file give; None if they give none, or no number,
    which is refused where all values are checked.
    """
    policies = _chosen("policies", overrides, file)
    return policies if type(policies) is int else None


def sets_upfront(overrides: Sequence[str] = (), file: Path | None = None) -> bool:
    """Whether overrides or a file set anything of what is learned before policies."""
    named = [each.partition("=")[0].strip() for each in overrides]
    named += read_toml(file) if file is not None else {}
    learned = {each.upfront_stem for each in METHODS.values()} | {"sampler"}
    return any(name.partition(".")[0] in learned for name in named)


def refuse_contradictions(overrides: Sequence[str], arguments: Mapping[str, str | None]) -> None:
    """Refuse settings that contradict what the command line says elsewhere; None: it says
    nothing.
    """
    for setting, argument in arguments.items():
        value = _chosen(setting, overrides, None)
        require(
            value is None or argument is None or value == argument,
            f"--set {setting}={value}",
            got=f"{argument} as the command's own {setting}",
            expected="the same in both places",
            fix=f"leave --set {setting} out.",
        )


def _chosen(setting: str, overrides: Sequence[str], file: Path | None) -> Any:
    """The value of a setting of the run itself in overrides or a file; None if they have none."""
    given = [each.partition("=") for each in overrides]
    named = [text for key, _, text in given if key.strip() == setting]
    if named:
        return _toml_value(named[-1].strip())
    return read_toml(file).get(setting) if file is not None else None


def overrides_for(method: str, overrides: Sequence[str]) -> list[str]:
    """Of the overrides for runs of several methods those that concern this one: settings of tables
    that only others use are left out.
    """
    kept = []
    for override in overrides:
        table, point, _ = override.partition("=")[0].strip().partition(".")
        users = [each for each in METHODS if table in table_settings(each, {})] if point else []
        if not users or method in users:
            kept.append(override)
    return kept


def from_values(values: Mapping[str, Any]) -> RunConfig:
    """A configuration from nested values. Every fault is one line that names the key."""
    tables, top = _tables(values), settings_of(RunSettings)
    known = [*top, *tables, *(f"{table}.{key}" for table, keys in tables.items() for key in keys)]
    below = {key: next(iter(value), "") for key, value in values.items() if _is_table(value)}
    if names := [key for key in below if key in top]:  # policy.steps: a name has no keys
        raise unknown_key(f"{names[0]}.{below[names[0]]}", known)
    plain = {key: value for key, value in values.items() if key not in {*tables, *below}}
    run = check_section(top, plain, "", known)
    if unused := [key for key in below if key not in tables]:
        raise _unused(unused[0], below[unused[0]], run["method"], known)
    sections: dict[str, Any] = {}
    section: Any
    for table, section in (TABLES | OPTIONAL).items():
        if table in values or table in TABLES:
            checked = check_section(tables[table], values.get(table, {}), f"{table}.", known)
            sections[table] = make_section(section, checked, f"{table}.")
        else:
            sections[table] = None if section is PosteriorTraining else section()
    method = read_method(run["method"], values, known)
    return RunConfig(**run, **sections, trained_by=method)


def merge(values: Mapping[str, Any], overrides: Sequence[str], method: str = "") -> dict[str, Any]:
    """`values` with overrides such as "score.steps=100" over them.

    The right side is a TOML value; anything else is taken as a string, so that
    `score.kind=transformer` needs no quotes.
    """
    merged = _copied(values)
    for override in overrides:
        key, equals, text = override.partition("=")
        parts = [part.strip() for part in key.split(".")]
        if not equals or not all(parts):
            raise InvalidValueError(
                "an override",
                got=f"'{override}'",
                expected="KEY=VALUE",
                fix="write it like score.steps=100.",
            )
        value = _toml_value(text.strip())
        if tuple(parts) in OF_RUN:
            parts = [OF_RUN[parts[0], parts[1]]]
        if len(parts) == 2:
            parts = list(renamed(parts[0], parts[1], method))
            value = revalued(parts[0], parts[1], value)
        table = merged
        for part in parts[:-1]:
            table = table.setdefault(part, {})
            if not isinstance(table, dict):
                raise unknown_key(".".join(parts), settings_of(RunSettings))
        table[parts[-1]] = value
    return merged


def to_toml(config: RunConfig) -> str:
    """The configuration as the text of a `config.toml`; `from_values(parse_toml(text))` gives it
    back.
    """
    return tomli_w.dumps({"format": FORMAT, **to_values(config)})


def to_values(config: RunConfig) -> dict[str, Any]:
    """The configuration as nested values, without what says nothing."""
    run = {name: getattr(config, name) for name in settings_of(RunSettings)}
    found: dict[str, Any] = {key: value for key, value in run.items() if value != ""}
    if digests := {k: v for k, v in dataclasses.asdict(config.sources).items() if v}:
        found["sources"] = digests
    if config.history.designs:
        found["history"] = dataclasses.asdict(config.history)
    found |= method_values(config.method, config.trained_by)
    if config.posterior is not None:
        found["posterior"] = dataclasses.asdict(config.posterior)
    return found | {"evaluation": dataclasses.asdict(config.evaluation)}


def known_settings(values: Mapping[str, Any]) -> dict[str, Setting]:
    """Every setting that a run of these values may have, by its dotted key. The values name the
    method, and where they matter the kind of score and the schedule.
    """
    tables = _tables(values).items()
    below = {f"{table}.{key}": setting for table, keys in tables for key, setting in keys.items()}
    return settings_of(RunSettings) | below


def used_settings(config: RunConfig) -> Iterator[Used]:
    """Every setting of a run with its meaning, for a report."""
    values = to_values(config)
    tables, top = _tables(values), settings_of(RunSettings)
    for key, value in values.items():
        if key in top:
            yield Used(key, value, top[key].meaning)
        else:
            for name, part in value.items():
                yield Used(f"{key}.{name}", part, tables[key][name].meaning)


def read_toml(path: Path) -> dict[str, Any]:
    """The values of a TOML file, unchecked but for its format number."""
    with explained("reading the configuration", path):
        data = path.read_bytes()
    return parse_toml(data, where=str(path))


def read_sealed_toml(path: Path) -> dict[str, Any]:
    """The values of the configuration of a run, if it is the one that the run began with."""
    with explained("reading the configuration", path):
        data = path.read_bytes()
    try:
        seal.check_text(data)
    except ValueError as error:
        raise InvalidValueError(
            f"the configuration {path}",
            got=f"a changed one: {error}",
            expected="the one that the run began with",
            fix="use another copy; if you changed it on purpose, delete its last line.",
        ) from None
    return parse_toml(data, where=str(path))


def parse_toml(data: bytes, *, where: str) -> dict[str, Any]:
    """The values of a TOML text, unchecked but for its format number, which is taken out; `where`
    names the source in errors. What an earlier version wrote comes as that of today.
    """
    try:
        values = tomllib.loads(data.decode())
    except (ValueError, RecursionError) as error:  # TOML and UTF-8 errors are both ValueErrors
        raise InvalidValueError(
            f"the configuration {where}",
            got=f"'{error}'",
            expected="a TOML file",
            fix="correct it there.",
        ) from None
    number = values.pop("format", FORMAT)
    if not isinstance(number, int) or number > FORMAT:
        raise NewerFormatError(
            f"the configuration {where}",
            got=f"format {number}",
            expected=f"at most format {FORMAT}",
            fix="install a newer version of scorebed.",
        )
    # A file of a few settings has their old names alone: `make_config` knows those.
    if "method" not in values:
        return values
    whole = _without_other_schedules(values)
    return upgraded(whole, _tables(whole)) if number < FORMAT else whole


def _without_other_schedules(values: dict[str, Any]) -> dict[str, Any]:
    """A whole configuration without what earlier versions listed of schedules that it does not
    have.
    """
    section = values.get("policy_training")
    if not isinstance(section, Mapping):
        return values
    unused = unused_by(chosen_schedule(values))
    kept = {key: value for key, value in section.items() if key not in unused}
    return values | {"policy_training": kept}


def _tables(values: Mapping[str, Any]) -> dict[str, dict[str, Setting]]:
    """The settings of every table that a run of these values may have."""
    method = values.get("method")
    fixed = {name: settings_of(section) for name, section in (TABLES | OPTIONAL).items()}
    return fixed | (table_settings(method, values) if isinstance(method, str) else {})


def _is_table(value: object) -> bool:
    return isinstance(value, Mapping)


def _refuse_posterior(preset_values: Mapping[str, Any], chosen: Mapping[str, Any]) -> None:
    """A posterior bounds models without a density: where the preset has none, none is used."""
    given = chosen.get(POSTERIOR)
    if POSTERIOR in preset_values or given is None:
        return
    key = next(iter(given), "") if isinstance(given, Mapping) else ""
    raise InvalidValueError(
        f"{POSTERIOR}.{key}" if key else POSTERIOR,
        got="a setting for models without a density",
        expected="one that this run uses",
        fix="leave it out.",
    )


def _unused(table: str, key: str, method: str, known: Sequence[str]) -> ScorebedError:
    """A table that the run does not use: one of another method, or no method's."""
    name = f"{table}.{key}" if key else table
    users = [each for each in METHODS if table in table_settings(each, {})]
    if not users:
        return unknown_key(name, known)
    return InvalidValueError(
        name,
        got=f"a setting of {', '.join(users)}",
        expected=f"one that a run of {method} uses",
        fix="leave it out.",
    )


def _renamed(values: Mapping[str, Any], method: str) -> dict[str, Any]:
    """Keys of a user's file that are called otherwise today."""
    found: dict[str, Any] = {}
    for section, value in values.items():
        if not isinstance(value, Mapping):
            found[section] = value
            continue
        for key, setting in value.items():
            if (section, key) in OF_RUN:
                found[OF_RUN[section, key]] = setting
                continue
            new, name = renamed(section, key, method)
            found.setdefault(new, {})[name] = revalued(new, name, setting)
    return found


def _copied(values: Mapping[str, Any]) -> dict[str, Any]:
    """A copy with every table a dict of its own."""
    return {
        key: _copied(value) if isinstance(value, Mapping) else value
        for key, value in values.items()
    }


def _over(values: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """`values` with those of `above` in their place, table by table."""
    result = dict(values)
    for key, value in above.items():
        below = result.get(key)
        both = isinstance(below, Mapping) and isinstance(value, Mapping)
        result[key] = _over(below, value) if both else value  # type: ignore[arg-type]
    return result


def _toml_value(text: str) -> Any:
    try:
        parsed = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):
        return text
    return parsed["value"] if len(parsed) == 1 else text
