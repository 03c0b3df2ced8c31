"""A finding of a check: one sentence, and its fix."""

from typing import NamedTuple

from scorebed.tasks.base import Task
from scorebed.user_errors import explain, reason

# An error makes training wrong or impossible; a warning may be intended; a hint saves time.
ERROR, WARNING, HINT = "error", "warning", "hint"

DISCRETE_OUTCOME = (
    "declare it by categories(…) or counts(…), inherit from Discrete and give its probabilities"
)


class Finding(NamedTuple):
    """`kind` is a word for programs: shape, dtype, traced, impure, no-effect, gradient, density,
    discrete, additive-noise, overflow, …
    """

    kind: str
    severity: str
    sentence: str
    fix: str

    def __str__(self) -> str:
        return f"{self.sentence}. Fix: {self.fix}."


def fault(kind: str, sentence: str, fix: str) -> Finding:
    """A finding that makes training wrong or impossible."""
    return Finding(kind, ERROR, sentence, fix)


def failed(task: Task, what: str, error: Exception) -> Finding:
    """An exception in the user's code as a finding, with the user's line where there is one."""
    explained = explain(error, (type(task).__module__,))
    if explained is None:
        words = reason(error)
        return fault("raises", f"`{what}` fails: {words['got']}", str(words["fix"]).rstrip("."))
    sentence, _, fix = str(explained).partition(". Fix: ")
    kind = "traced" if "only known when the compiled program runs" in sentence else "raises"
    return fault(kind, f"`{what}` fails at {sentence}", (fix or "correct that line").rstrip("."))
