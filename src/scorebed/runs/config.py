"""The configuration of a run: frozen dataclasses, checked once, read from and written to TOML.

Values come from a preset, then a file, then `--set key=value`, each over the one before; what
results is complete and is written into the run folder. An unknown key is answered with the nearest
right one, a wrong value with what was expected, in one line. Sizes have no defaults: a preset
decides them for each task. Configuration stops in this layer; code below receives values."""

import dataclasses
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import tomli_w
from pydantic import TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass
from pydantic_core import ErrorDetails

from scorebed.errors import InvalidValueError, NewerFormatError, ScorebedError, UnknownNameError
from scorebed.runs.durable import explained
from scorebed.runs.fields import (
    Count,
    Name,
    Seed,
    choice,
    digest,
    whole,
)
from scorebed.runs.sections import (
    SECTION,
    DensityConfig,
    EvaluationConfig,
    HistoryConfig,
    IOSMCConfig,
    PolicyConfig,
    ScoreConfig,
)

FORMAT = 1

METHODS = (
    "score",
    "jointscore",
    "pce",
    "nmc",
    "mlmc",
    "varmarg",
    "varpost",
    "jointvarpost",
    "iosmc",
    "static",
    "random",
    "myopic",
)


@dataclass(frozen=True, kw_only=True, config=SECTION)
class RunConfig:
    """All that decides a run, together with the version of the code."""

    task: Name
    """A built-in task, or FILE.py:NAME."""
    task_source: Annotated[str, digest()] = ""
    """The sha256 of that file; empty for a built-in task."""
    method: Annotated[str, choice(*METHODS)]
    """The gradient estimator: the paper's method or one of its baselines."""
    preset: Name
    """The preset that the other values started from."""
    policy: Name
    """The architecture of the policy."""
    policies: Count = 1
    """Number of policies, P, of which the best is kept."""
    repeats: Count = 1
    """Number of times that the whole choice is repeated, for the standard error across policies."""
    seed: Seed = 0
    """The seed of all random numbers."""
    budget: Annotated[int, whole(0, 10**15)] = 0
    """Likelihood evaluations that training may spend; 0 for no limit. --budget also chooses sizes
    that use them.
    """
    score_run: str = ""
    """The run whose scores or density were taken over; empty if the run trains its own."""
    history: HistoryConfig = HistoryConfig()
    """Steps that were over before the run began."""
    score: ScoreConfig
    """Stage 1; for the methods 'score' and 'jointscore'."""
    density: DensityConfig
    """The density of the variational methods."""
    policy_training: PolicyConfig
    """Stage 2."""
    iosmc: IOSMCConfig
    """The method 'iosmc'."""
    evaluation: EvaluationConfig
    """Bounds."""


_ADAPTER = TypeAdapter(RunConfig)


def make_config(
    preset_values: Mapping[str, Any], overrides: Sequence[str] = (), file: Path | None = None
) -> RunConfig:
    """The configuration from a preset's values, a TOML file over them, and `key=value` overrides
    over both.
    """
    values = _over(preset_values, read_toml(file)) if file is not None else preset_values
    return from_values(merge(values, overrides))


def from_values(values: Mapping[str, Any]) -> RunConfig:
    """Check a nested dict and make it a configuration. Every fault is one line that names the
    key.
    """
    try:
        config = _ADAPTER.validate_python(_tables(values))
    except ValidationError as error:
        # A misspelt key comes before the one that is then missing.
        faults = error.errors(include_url=False)
        raise _explain(min(faults, key=lambda fault: _key(fault) in _fields(RunConfig))) from None
    _check_pairs(config)
    return config


def merge(values: Mapping[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    """`values` with overrides such as "score.steps=100" over them.

    The right side is a TOML value; what is none is taken as a string, so that
    `score.kind=transformer` needs no quotes."""
    merged = _tables(values)
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
        table = merged
        for part in parts[:-1]:
            table = table.setdefault(part, {})
            if not isinstance(table, dict):
                raise UnknownNameError("key", ".".join(parts), _known(tuple(parts)))
        table[parts[-1]] = _toml_value(text.strip())
    return merged


def to_toml(config: RunConfig) -> str:
    """The configuration as the text of a `config.toml`; `from_values(parse_toml(text))` gives it
    back.
    """
    return tomli_w.dumps({"format": FORMAT, **dataclasses.asdict(config)})


def read_toml(path: Path) -> dict[str, Any]:
    """The values of a TOML file, unchecked but for its format number."""
    with explained("reading the configuration", path):
        data = path.read_bytes()
    return parse_toml(data, where=str(path))


def parse_toml(data: bytes, *, where: str) -> dict[str, Any]:
    """The values of a TOML text, unchecked but for its format number, which is taken out; `where`
    names the source in errors.
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
    return values


def describe() -> dict[str, str]:
    """Every key, dotted, and what it means."""
    return {key: description for key, (description, _) in _fields(RunConfig).items()}


def _tables(values: Mapping[str, Any]) -> dict[str, Any]:
    """A copy with every table a dict of its own."""
    return {
        key: _tables(value) if isinstance(value, Mapping) else value
        for key, value in values.items()
    }


def _over(values: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """`values` with those of `above` in their place, table by table."""
    result = dict(values)
    for key, value in above.items():
        below = result.get(key)
        result[key] = (
            _over(below, value)
            if isinstance(below, Mapping) and isinstance(value, Mapping)
            else value
        )
    return result


def _toml_value(text: str) -> Any:
    try:
        parsed = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):
        return text
    return parsed["value"] if len(parsed) == 1 else text


def _fields(section: type, prefix: str = "") -> dict[str, tuple[str, bool]]:
    """Dotted key → (description, whether it is a section) for all keys of a section and those below
    it.
    """
    found: dict[str, tuple[str, bool]] = {}
    for field in dataclasses.fields(section):
        below = (
            field.type
            if isinstance(field.type, type) and dataclasses.is_dataclass(field.type)
            else None
        )
        description = section.__pydantic_fields__[field.name].description or ""  # type: ignore[attr-defined]
        found[prefix + field.name] = (description, below is not None)
        found |= _fields(below, f"{prefix}{field.name}.") if below is not None else {}
    return found


def _known(parts: tuple[str, ...]) -> list[str]:
    """What a wrong key may have meant: the same name elsewhere, else the keys of its section, else
    those of the top.
    """
    keys = list(_fields(RunConfig))
    elsewhere = [key for key in keys if key.rpartition(".")[2] == parts[-1] and key != parts[-1]]
    section = ".".join(parts[:-1]) + "." if len(parts) > 1 else ""
    beside = [key for key in keys if key.startswith(section) and "." not in key[len(section) :]]
    return elsewhere or beside or [key for key in keys if "." not in key]


def _explain(detail: ErrorDetails) -> ScorebedError:
    """What pydantic found first, in our own form."""
    key, got = _key(detail), _short(repr(detail["input"]))
    if key not in _fields(RunConfig):
        return UnknownNameError("key", _short(key), _known(tuple(key.split("."))))
    description, section = _fields(RunConfig)[key]
    meaning = description.rstrip(".")
    if detail["type"] in ("missing", "missing_argument", "missing_keyword_only_argument"):
        fix = f"choose a preset, or give it in the file or by --set {key}=VALUE."
        return InvalidValueError(key, got="nothing", expected=f"a value ({meaning})", fix=fix)
    if section:
        return InvalidValueError(
            key, got=got, expected=f"a table [{key}]", fix=f"set its keys, such as {key}.steps."
        )
    context = detail.get("ctx", {})
    if "names" in context and isinstance(detail["input"], str):
        return UnknownNameError(f"value of {key}", _short(detail["input"]), context["names"])
    expected = context.get("expected") or f"one of {', '.join(context.get('names', ()))}"
    return InvalidValueError(
        key, got=got, expected=expected, fix=f"give another value ({meaning})."
    )


def _key(detail: ErrorDetails) -> str:
    return ".".join(str(part) for part in detail["loc"])


def _short(text: str) -> str:
    return text if len(text) <= 60 else text[:57] + "..."


def _check_pairs(config: RunConfig) -> None:
    """Values that are sound alone but not together."""
    score, policy, density = config.score, config.policy_training, config.density
    faults = [
        (
            "score.floor_rate",
            score.floor_rate,
            score.floor_rate <= score.learning_rate,
            f"at most score.learning_rate, {score.learning_rate}",
        ),
        (
            "score.cloud",
            score.cloud,
            score.kind.startswith("transformer") or score.cloud % 2 == 0,
            "an even number",
        ),
        (
            "score.heads",
            score.heads,
            not score.kind.startswith("transformer") or score.width % score.heads == 0,
            f"a divisor of score.width, {score.width}",
        ),
        (
            "score.kind",
            score.kind,
            (config.method, score.kind) != ("jointscore", "laplace"),
            "a score that learns beside the policy of method jointscore",
        ),
        (
            "density.floor_rate",
            density.floor_rate,
            density.floor_rate <= density.learning_rate,
            f"at most density.learning_rate, {density.learning_rate}",
        ),
        (
            "density.heads",
            density.heads,
            config.method not in ("varpost", "jointvarpost") or density.width % density.heads == 0,
            f"a divisor of density.width, {density.width}",
        ),
        (
            "policy_training.final_rate",
            policy.final_rate,
            policy.final_rate <= policy.learning_rate,
            f"at most policy_training.learning_rate, {policy.learning_rate}",
        ),
    ]
    for key, got, sound, expected in faults:
        if not sound:
            raise InvalidValueError(
                key, got=got, expected=expected, fix=f"change one of the two by --set {key}=VALUE."
            )
