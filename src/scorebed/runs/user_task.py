"""Tasks of the user's own, FILE.py:NAME. A file is executed because the user has named it, and for
no other reason.

A run of such a task stores the name and the sha256 of the file, never code. Whoever reads the run
hands the task over again (on the command line by `--task FILE.py:NAME`, in Python as an object),
and the two hashes are compared: a run that went on with another source would be half of one model
and half of another, so that is refused; whatever only looks at a run warns."""

import dataclasses
import hashlib
import inspect
import itertools
import logging
import re
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from scorebed.errors import InvalidValueError, ScorebedError, UnknownNameError, require
from scorebed.runs.config import RunConfig
from scorebed.runs.history import after_history
from scorebed.tasks import make_task
from scorebed.tasks.base import Task
from scorebed.user_errors import PREFIX, explain

_log = logging.getLogger("scorebed.runs").warning


class UserTask(NamedTuple):
    """A task from a file: FILE.py:NAME as it was given, and the sha256 of the file."""

    name: str
    task: Task
    digest: str


def is_user_task(name: str) -> bool:
    """Whether a name means a task in a file; no built-in name has a colon."""
    return ":" in name


class UserFile(NamedTuple):
    """A Python file that was executed because the user named it."""

    path: str
    module: types.ModuleType
    attribute: str
    digest: str

    def find(self, what: str, accepts: Callable[[object], bool], *, fix: str) -> Any:
        """The object that the user named, if it is one of `what`; else the nearest that is."""
        found = [
            key
            for key, value in vars(self.module).items()
            if accepts(value) and _defined_by(self.module, value)
        ]
        if self.attribute not in vars(self.module):
            require(
                len(found) > 0,
                f"the file {self.path}",
                got=f"no {what} in it",
                expected=f"a class {self.attribute}",
                fix=fix,
            )
            raise UnknownNameError(f"{what} of {self.path}", self.attribute, found)
        value = vars(self.module)[self.attribute]
        kind = f"a {type(value).__name__}"
        require(
            accepts(value),
            f"{self.attribute} of {self.path}",
            got=f"a class that is not a {what}" if isinstance(value, type) else kind,
            expected=f"a scorebed {what}",
            fix=fix,
        )
        return value


def execute_file(name: str, what: str) -> UserFile:
    """Execute the file of FILE.py:NAME; `what` is meant by it, for the errors."""
    file, _, attribute = name.rpartition(":")
    require(
        file.endswith(".py") and attribute.isidentifier(),
        f"a {what} from a file",
        got=f"'{name}'",
        expected="FILE.py:NAME",
        fix=f"write it like my_{what.replace(' ', '_')}.py:Mine.",
    )
    path = Path(file)
    require(
        path.is_file(),
        f"the file {file}",
        got="no such file",
        expected="a Python file",
        fix="check its name and the folder that you are in.",
    )
    data = path.read_bytes()
    digest = hashlib.sha256(data).hexdigest()
    return UserFile(file, _execute(path, data, digest), attribute, digest)


def read_task(name: str) -> UserTask:
    """Execute FILE.py and give its task NAME: an instance, or a class that is made without
    arguments.
    """
    file = execute_file(name, "task")
    fix = "inherit from IID, Markov or History; docs/own-model.md shows one of twenty lines."
    value = file.find("task", _is_task, fix=fix)
    made = _make(value, file.path) if isinstance(value, type) else value
    return UserTask(name, made, file.digest)


def task_of(
    config: RunConfig,
    given: UserTask | Task | None,
    *,
    strict: bool = False,
    on_warning: Callable[[str], Any] = _log,
) -> Task:
    """The task of a run: the built-in one of its name, or the one handed over, if its source is
    still the same.

    Where some steps were over when the run began it is what was left of it.
    """
    return after_history(
        _whole_task(config, given, strict=strict, on_warning=on_warning), config.history
    )


def _whole_task(
    config: RunConfig,
    given: UserTask | Task | None,
    *,
    strict: bool,
    on_warning: Callable[[str], Any],
) -> Task:
    if not is_user_task(config.task):
        require(
            given is None,
            f"a run of the built-in task {config.task}",
            got="a task of your own",
            expected="none",
            fix="leave --task out.",
        )
        return make_task(config.task)
    if given is None:
        raise InvalidValueError(
            f"a run of {config.task}",
            got="no task",
            expected="--task FILE.py:NAME, since a run executes no file by itself",
            fix=f"if you trust that file, add --task {config.task}; in Python: load(run, "
            f"task=MyTask()).",
        )
    compare_source(config.sources.task, given, strict=strict, on_warning=on_warning)
    return given.task if isinstance(given, UserTask) else given


def compare_source(
    expected: str,
    given: "UserTask | Task",
    *,
    strict: bool,
    on_warning: Callable[[str], Any] = _log,
) -> None:
    """Refuse, or warn of, a task whose file is not the one that the run was made with."""
    digest = given.digest if isinstance(given, UserTask) else source_digest(type(given))
    name = given.name if isinstance(given, UserTask) else type(given).__name__
    compare_digests(name, digest, expected, strict=strict, on_warning=on_warning)


def compare_digests(
    name: str,
    digest: str | None,
    expected: str,
    *,
    strict: bool,
    on_warning: Callable[[str], Any] = _log,
) -> None:
    """Refuse, or warn of, a file that is not the one that the run was made with."""
    if digest == expected:
        return
    if digest is None:
        on_warning(
            f"The source of {name} cannot be read, so it was not compared with that of the run."
        )
    elif strict:
        raise InvalidValueError(
            f"the source of {name}",
            got=f"a file that has changed since the run began (sha256 {digest[:12]})",
            expected=f"the same file ({expected[:12]})",
            fix="undo the change, or train a new run.",
        )
    else:
        on_warning(
            f"The file of {name} has changed since the run was made: what it says may be of "
            f"another model."
        )


def source_digest(defined: Any) -> str | None:
    """The sha256 of the file that defines a class or a function, if there is one."""
    try:
        file = inspect.getsourcefile(defined)
        return hashlib.sha256(Path(file).read_bytes()).hexdigest() if file else None
    except (TypeError, OSError):
        return None


def _execute(path: Path, data: bytes, digest: str) -> types.ModuleType:
    module = types.ModuleType(f"{PREFIX}{re.sub(r'[^0-9a-zA-Z]', '_', path.stem)}_{digest[:8]}")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module  # where dataclasses look for a class's own module
    neighbours = str(path.parent.resolve())
    sys.path.insert(0, neighbours)  # a file may import its neighbours, as a script may
    try:
        exec(compile(data, str(path), "exec"), vars(module))
    except SyntaxError as error:
        raise InvalidValueError(
            f"{error.filename or path}, line {error.lineno or 1}",
            got=error.msg or "a syntax error",
            expected="Python",
            fix="correct that line.",
        ) from error
    except (Exception, SystemExit) as error:
        raise explain(error) or ScorebedError(f"{path}: {error}") from error
    finally:
        sys.path.remove(neighbours)
    return module


def _is_task(value: object) -> bool:
    return isinstance(value, Task) or (isinstance(value, type) and issubclass(value, Task))


def _defined_by(module: types.ModuleType, value: object) -> bool:
    return isinstance(value, Task) or getattr(value, "__module__", "") == module.__name__


def _make(kind: Any, file: str) -> Task:
    """An instance, or in one line why there is none."""
    name = f"the class {kind.__name__} of {file}"
    missing = sorted({*kind.__abstractmethods__, *kind.__abstractvars__})
    require(
        not missing,
        name,
        got=f"no {', '.join(missing)}",
        expected="all that a task needs",
        fix=f"write {' and '.join(missing)} in the class; docs/own-model.md says what each is.",
    )
    required = [
        p.name
        for p in inspect.signature(kind).parameters.values()
        if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    ]
    require(
        not required,
        name,
        got=f"a constructor that needs {', '.join(required)}",
        expected="one without arguments",
        fix=f"give them defaults, or write my_task = {kind.__name__}(…) below it and name that.",
    )
    try:
        task: Task = kind()
    except Exception as error:
        raise explain(error) or ScorebedError(f"{name}: {error}") from error
    _refuse_hidden(task, name)
    return task


def _refuse_hidden(task: Task, name: str) -> None:
    """A plain attribute of the class where a base class has made an argument of it would be passed
    over in silence.
    """
    users = [each for each in type(task).__mro__ if each.__module__.startswith(PREFIX)]
    for field, each in itertools.product((field.name for field in dataclasses.fields(task)), users):
        if field not in vars(each) or field in inspect.get_annotations(each):
            continue
        written, used = vars(each)[field], getattr(task, field)
        require(
            written is used,
            name,
            got=f"{field} = {written}, which is not used: the task has {used}",
            expected=f"{field} as an argument, as its base class wants it",
            fix=f"write my_task = {type(task).__name__}({field}={written}) below it and name "
            f"my_task.",
        )
