"""Is a task sound? Everything that can be found out before training, in a few seconds."""

from jaxtyping import PRNGKeyArray

from scorebed.check.finding import ERROR, Finding
from scorebed.check.measured import measured_findings
from scorebed.check.traced import traced_findings
from scorebed.tasks.base import Task

__all__ = ["ERROR", "Finding", "check_task"]


def check_task(task: Task, *, key: PRNGKeyArray) -> list[Finding]:
    """The faults of a task, errors first; none if it is sound. Draws are made only if the task can
    be traced.
    """
    found = traced_findings(task)
    if not any(f.severity == ERROR for f in found):
        found += measured_findings(task, key=key)
    return sorted(found, key=lambda f: f.severity != ERROR)
