"""The values of a run, put together from the files.

Files come first, later ones over earlier ones: `general`, what else the task's file builds on, the
task's file, `traits`. Each gives the tables of the preset (`every`, `two-cores`, then the preset
itself), and after them the same for each trait that the task has.

The tables that result are then overlaid from the general to the special: the tables of the run,
what its policy changes, what its method changes, the method's settings for that many policies:
those that the user asks for, or else the preset's own number."""

from collections.abc import Iterator, Sequence

from scorebed.errors import UnknownNameError
from scorebed.presets import DEFAULT_METHOD, PRESETS
from scorebed.presets.files import Values, chain, overlaid, read
from scorebed.presets.traits import TRAITS, UNTRAINED, few_modes
from scorebed.tasks.base import Task

RUN = ("policy", "policies", "repeats")  # settings of the run itself, which are in no table


def preset_values(
    preset: str,
    task_name: str,
    task: Task,
    *,
    method: str,
    policy: str | None = None,
    policies: int | None = None,
    score_kind: str | None = None,
) -> Values:
    """The configuration of a preset as nested values, before the user's settings are laid over it.

    It has the tables that the method uses, and no others. `policy`, `policies` and `score_kind` are
    the user's choices where other settings follow from them; None takes the preset's."""
    tables = _tables(preset, task)
    names = _names(tables, method)
    policy = policy or _policy(tables, names)
    run = {key: tables[key] for key in RUN} | {name: _settings(tables, name) for name in names}
    run = _changed(run, _changes(tables, names, policy))
    count = int(run["policies"]) if policies is None else policies
    run = _changed(run, _rows(tables, names, count)) | {"policy": policy, "policies": count}
    if score_kind is not None and "score" in run:
        run["score"]["kind"] = score_kind
    settings = {name: _chosen(run.pop(name)) for name in names}
    named = {"task": task_name, "method": method, "preset": preset}
    return named | run | {name: table for name, table in settings.items() if table}


def default_method(
    preset: str, task: Task, *, policy: str | None = None, trained: bool = False
) -> str:
    """The method of a run that names none. Where the usual one trains no policy, another is meant
    by a `policy` that it would have to train, or by settings of what is `trained`.
    """
    tables = _tables(preset, task)
    method = str(tables.get("method", DEFAULT_METHOD))
    if trained or policy not in (None, _policy(tables, _names(tables, method))):
        method = str(_tables(preset, task, without=UNTRAINED).get("method", DEFAULT_METHOD))
    return method


def shared_policy(task: Task) -> str:
    """The policy that all methods can train: the paper's for its tasks, and for others one that
    uses exchangeability exactly where it holds.
    """
    return policy_for("paper", task)


def policy_for(preset: str, task: Task, *, method: str = "") -> str:
    """The policy that a method takes in a preset; without a method, that of most of them."""
    tables = _tables(preset, task)
    return _policy(tables, _names(tables, method))


def _tables(preset: str, task: Task, without: str = "") -> Values:
    """All tables of a preset for a task, of all methods; `without` those of a trait."""
    if preset not in PRESETS:
        raise UnknownNameError("preset", preset, PRESETS)
    tables: Values = {}
    for part in _parts(task, without):
        for name in read("general")["presets"][preset]:
            tables = overlaid(tables, part.get(name, {}))
    return tables


def _parts(task: Task, without: str) -> Iterator[Values]:
    """The files of a task, each followed by its tables for the task's traits."""
    has = {trait for trait, holds in TRAITS.items() if trait != without and holds(task)}
    for file in (*chain(_file(task)), read("traits")):
        yield file
        yield from (table for trait, table in file.items() if trait in has)


def _file(task: Task) -> str:
    """The name of the task's file: the one that it asks for, or that of its structure."""
    name = task.preset_file.removesuffix(".toml") or task.structure
    return name if few_modes(task) else str(read(name).get("many_modes", name))


def _names(tables: Values, method: str) -> list[str]:
    """The tables of a run."""
    methods: dict[str, list[str]] = read("general")["methods"]
    return [*methods.get(method, methods["other"]), *tables["tables"]]


def _policy(tables: Values, names: Sequence[str]) -> str:
    """The last of the policies that the run and its tables name."""
    named = [tables["policy"], *(tables.get(name, {}).get("policy") for name in names)]
    return str([policy for policy in named if policy is not None][-1])


def _changed(run: Values, changes: Iterator[Values]) -> Values:
    """The tables of a run with changes laid over them, of tables that it has."""
    for change in changes:
        run = overlaid(run, {key: value for key, value in change.items() if key in run})
    return run


def _changes(tables: Values, names: Sequence[str], policy: str) -> Iterator[Values]:
    """What is laid over the tables of a run by its policy and by its method."""
    yield tables.get("with", {}).get(policy, {})
    for name in names:
        yield _split(tables.get(name, {}), tables)[1]


def _rows(tables: Values, names: Sequence[str], policies: int) -> Iterator[Values]:
    """What is laid over the tables of a run by its number of policies."""
    for name in names:
        settings, changes = _split(tables.get(name, {}).get(f"P{policies}", {}), tables)
        yield changes | {name: settings}


def _settings(tables: Values, name: str) -> Values:
    """The settings of a table, over those of the table that it is like."""
    settings, _ = _split(tables.get(name, {}), tables)
    like = settings.pop("like", None)
    return settings if like is None else overlaid(_settings(tables, like), settings)


def _split(table: Values, tables: Values) -> tuple[Values, Values]:
    """The settings of a table, and what it changes in the run and in other tables."""
    changes = {key: value for key, value in table.items() if key in RUN or key in tables}
    rows = {key for key in table if key[0] == "P" and key[1:].isdigit()}
    return {key: table[key] for key in table if key not in changes and key not in rows}, changes


def _chosen(table: Values) -> Values:
    """The settings of a table, with those of its tables that are named after one of its choices."""
    inner = {key: value for key, value in table.items() if isinstance(value, dict)}
    plain = {key: value for key, value in table.items() if key not in inner}
    for choice in [value for value in plain.values() if isinstance(value, str)]:
        plain |= inner.get(choice, {})
    without = plain.pop("without", ())
    return {key: value for key, value in plain.items() if key not in without}
