"""Is a task sound? Everything that can be found out before training, in a few seconds."""

from jaxtyping import PRNGKeyArray

from scorebed.check.finding import ERROR, Finding
from scorebed.check.measured import measured_findings
from scorebed.check.traced import traced_findings
from scorebed.tasks.base import Task

__all__ = ["ERROR", "Finding", "check_task"]


def check_task(task: Task, *, key: PRNGKeyArray) -> list[Finding]:
    """Find the faults of a task before training, in seconds. Draws are made only if the task can be
    traced.

    Arguments:
        task: the task to check.
        key: the random key.

    Returns:
        What was found, errors first; empty if the task is sound.

    Example:
        >>> sb.check_task(sb.make_task("linear-gaussian"), key=jr.key(0))
        []
    """
    found = traced_findings(task)
    if not any(f.severity == ERROR for f in found):
        found += measured_findings(task, key=key)
    return sorted(found, key=lambda f: f.severity != ERROR)
