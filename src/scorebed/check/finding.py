"""What a check has found: one sentence, and the way out."""

from typing import NamedTuple

from scorebed.tasks.base import Task
from scorebed.user_errors import explain, reason

# An error makes training wrong or impossible; a warning may be meant; a hint is an opportunity.
ERROR, WARNING, HINT = "error", "warning", "hint"

DISCRETE_OUTCOME = (
    "train with --method iosmc --policy gru or --method myopic, which need no gradient of the "
    "outcome"
)


class Finding(NamedTuple):
    """`kind` is a word for programs: shape, dtype, traced, impure, no-effect, gradient, density,
    discrete, additive-noise, …
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
    told = explain(error, (type(task).__module__,))
    if told is None:
        words = reason(error)
        return fault("raises", f"`{what}` fails: {words['got']}", str(words["fix"]).rstrip("."))
    sentence, _, fix = str(told).partition(". Fix: ")
    kind = "traced" if "known only when the compiled program runs" in sentence else "raises"
    return fault(kind, f"`{what}` fails at {sentence}", (fix or "correct that line").rstrip("."))
