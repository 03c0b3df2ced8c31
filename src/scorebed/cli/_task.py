"""A task that the user names on the command line: a built-in one, or FILE.py:NAME."""

from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

if TYPE_CHECKING:
    from scorebed.runs.user_task import UserTask
    from scorebed.tasks.base import Task

TaskOption = Annotated[
    str | None,
    Parameter(
        name="--task",
        help="FILE.py:NAME, for a run of a task of your own: a run executes no file unless you "
        "name it here.",
    ),
]


def user_task(name: str | None) -> "UserTask | None":
    """What `--task` names."""
    from scorebed.runs.user_task import read_task

    return None if name is None else read_task(name)


def named_task(name: str) -> "tuple[Task, UserTask | None]":
    """The task of a name, and where it comes from if that is a file."""
    from scorebed.runs.user_task import is_user_task, read_task
    from scorebed.tasks import make_task

    own = read_task(name) if is_user_task(name) else None
    return (own.task if own else make_task(name)), own
