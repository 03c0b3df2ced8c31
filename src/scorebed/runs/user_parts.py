"""Parts of a run that are the user's own: a method, policy, kind of score, sampler or bound from a
file.

Like a task (`user_task.py`) each is executed because the user has named it, FILE.py:NAME, and for
no other reason, and named again by whoever reads the run; the sha256 of its file is compared.
"""

from collections.abc import Callable, Mapping, MutableMapping
from pathlib import Path
from typing import Any, NamedTuple

from scorebed.bounds import BOUNDS
from scorebed.bounds.base import Bound
from scorebed.errors import InvalidValueError, require
from scorebed.methods import METHODS
from scorebed.methods.base import Method
from scorebed.methods.score import chosen_kind
from scorebed.policies import POLICIES
from scorebed.runs.config import RunConfig
from scorebed.runs.user_task import (
    UserTask,
    compare_digests,
    execute_file,
    read_task,
    source_digest,
)
from scorebed.samplers import SAMPLERS
from scorebed.scores import SCORES
from scorebed.scores.base import ScoreKind
from scorebed.tasks.base import Task


class UserPart(NamedTuple):
    """An object from a file: FILE.py:NAME as it was given, the object, the file's sha256."""

    name: str
    value: Any
    digest: str | None


class PartKind(NamedTuple):
    """A kind of part: what it is called, its option, its table, and what may be one."""

    what: str
    option: str
    table: MutableMapping[str, Any]
    accepts: Callable[[object], bool]
    fix: str


def _subclass_of(base: type) -> Callable[[object], bool]:
    return lambda value: isinstance(value, type) and issubclass(value, base) and value is not base


METHOD = PartKind(
    "method",
    "--method",
    METHODS,
    _subclass_of(Method),
    "inherit from scorebed's Method or EstimatorMethod; CONTRIBUTING.md shows one.",
)
POLICY = PartKind(
    "policy",
    "--policy",
    POLICIES,
    callable,
    "write a class that is made as Mine(task, key=key); CONTRIBUTING.md shows one.",
)
SCORE_KIND = PartKind(
    "kind of score",
    "--score-kind",
    SCORES,
    _subclass_of(ScoreKind),
    "inherit from scorebed's ScoreKind; CONTRIBUTING.md shows one.",
)
SAMPLER = PartKind(
    "sampler",
    "--sampler",
    SAMPLERS,
    callable,
    "write a class that is made as Mine(task); CONTRIBUTING.md shows one.",
)
BOUND = PartKind(
    "bound",
    "--bound",
    BOUNDS,
    lambda value: isinstance(value, Bound) or _subclass_of(Bound)(value),
    "inherit from scorebed's Bound; CONTRIBUTING.md shows one.",
)


class UserParts(NamedTuple):
    """What the user hands over with a run, as objects or from files; None for what is built in."""

    task: UserTask | Task | None = None
    method: Any = None
    policy: Any = None
    score_kind: Any = None
    sampler: Any = None


BUILT_IN = UserParts()  # nothing is the user's


class PartNames(NamedTuple):
    """The same by their names, FILE.py:NAME: what another process is told of them."""

    task: str | None = None
    method: str | None = None
    policy: str | None = None
    score_kind: str | None = None
    sampler: str | None = None

    def anywhere(self) -> "PartNames":
        """With the whole paths of files, which mean the same in every folder."""
        return PartNames(*(None if name is None else whole_path(name) for name in self))


def whole_path(name: str) -> str:
    """FILE.py:NAME with the whole path of the file; any other name as it is."""
    if not is_from_file(name):
        return name
    file, _, what = name.rpartition(":")
    return f"{Path(file).resolve()}:{what}"


def read_parts(names: PartNames) -> UserParts:
    """Execute the files that are named, and no others."""
    kinds = {"method": METHOD, "policy": POLICY, "score_kind": SCORE_KIND, "sampler": SAMPLER}
    given = {field: getattr(names, field) for field in kinds}
    return UserParts(
        task=None if names.task is None else read_task(names.task),
        **{
            field: read_part(kinds[field], name)
            for field, name in given.items()
            if name is not None and is_from_file(name)
        },
    )


def is_from_file(name: str) -> bool:
    """Whether a name means something in a file; no built-in name has a colon."""
    return ":" in name


def read_part(kind: PartKind, name: str) -> UserPart:
    """Execute FILE.py and give its NAME, entered into the table of its kind under that name."""
    file = execute_file(name, kind.what)
    value = file.find(kind.what, kind.accepts, fix=kind.fix)
    _require_whole(kind, name, value)
    kind.table[name] = value() if kind is BOUND and isinstance(value, type) else value
    return UserPart(name, value, file.digest)


def _require_whole(kind: PartKind, name: str, value: object) -> None:
    """Refuse a class that lacks something of what its base class asks for."""
    asked = (getattr(value, each, ()) for each in ("__abstractmethods__", "__abstractvars__"))
    missing = sorted({each for names in asked for each in names})
    require(
        not (isinstance(value, type) and missing),
        f"the {kind.what} {name}",
        got=f"no {', '.join(missing)}",
        expected=f"all that a {kind.what} needs",
        fix="write that in the class; CONTRIBUTING.md shows one.",
    )


def hand_over(values: Mapping[str, Any], parts: UserParts, *, strict: bool = False) -> None:
    """Enter the method and the kind of score of a run, if they are the user's, into their tables
    under the names that its configuration has for them; it can be checked only then.

    A part that is needed and was not given is refused, and so, if `strict`, is one whose file has
    changed; otherwise that is a warning.
    """
    sources = values.get("sources")
    digests = sources if isinstance(sources, Mapping) else {}
    for kind, name, given, source in (
        (METHOD, values.get("method"), parts.method, "method"),
        (SCORE_KIND, chosen_kind(values), parts.score_kind, "score_kind"),
    ):
        if isinstance(name, str) and is_from_file(name):
            _enter(kind, name, given, str(digests.get(source, "")), strict=strict)


def hand_over_rest(config: RunConfig, parts: UserParts, *, strict: bool = False) -> None:
    """The same for its policy and sampler, which whoever takes over its score does not need; a part
    of the user's where the run has a built-in one is refused.
    """
    sources = config.sources
    for kind, name, given, digest in (
        (POLICY, config.policy, parts.policy, sources.policy),
        (SAMPLER, config.sampler, parts.sampler, sources.sampler),
    ):
        if is_from_file(name):
            _enter(kind, name, given, digest, strict=strict)
    for kind, name, given in (
        (METHOD, config.method, parts.method),
        (POLICY, config.policy, parts.policy),
        (SCORE_KIND, config.trained_by.score_kind or "", parts.score_kind),
        (SAMPLER, config.sampler, parts.sampler),
    ):
        require(
            given is None or is_from_file(name),
            f"a run with a built-in {kind.what}",
            got=f"{kind.option}, one of your own",
            expected="none",
            fix=f"leave {kind.option} out.",
        )


def require_part(kind: PartKind, name: str, given: Any) -> Any:
    """What the user gave for a name that means a file; refused if that is nothing."""
    if given is None:
        raise InvalidValueError(
            f"a run with the {kind.what} {name}",
            got=f"no {kind.option}",
            expected=f"{kind.option} FILE.py:NAME, since a run executes no file by itself",
            fix=f"if you trust that file, add {kind.option} {name}.",
        )
    return given.value if isinstance(given, UserPart) else given


def _enter(kind: PartKind, name: str, given: Any, expected: str, *, strict: bool) -> None:
    value = require_part(kind, name, given)
    digest = given.digest if isinstance(given, UserPart) else source_digest(value)
    compare_digests(name, digest, expected, strict=strict)
    kind.table[name] = value
