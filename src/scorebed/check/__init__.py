"""Is a task sound? Everything that can be found out about one before it is trained on, in a few
seconds.
"""

from jaxtyping import PRNGKeyArray

from scorebed.check.finding import ERROR, Finding
from scorebed.check.measured import measured_findings
from scorebed.check.traced import traced_findings
from scorebed.tasks.base import Task

__all__ = ["ERROR", "Finding", "check_task"]


def check_task(task: Task, *, key: PRNGKeyArray) -> list[Finding]:
    """What is wrong with a task, the worst first; nothing if it is sound. Draws are made only of a
    task that can be traced.
    """
    found = traced_findings(task)
    if not any(f.severity == ERROR for f in found):
        found += measured_findings(task, key=key)
    return sorted(found, key=lambda f: f.severity != ERROR)
