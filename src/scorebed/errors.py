"""Every error that a user of scorebed can meet. Each says what was expected, what came, and how to
fix it.
"""

import difflib
from collections.abc import Iterable


class ScorebedError(Exception):
    """Base of all errors that scorebed raises on purpose; the command line prints it as one line
    and exits 2.
    """


class UnknownNameError(ScorebedError):
    """A name that is in none of our tables; the message offers the nearest one that is."""

    def __init__(self, kind: str, name: str, known: Iterable[str]):
        names = sorted(known)
        near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
        fix = f"did you mean '{near[0]}'?" if near else f"choose one of {', '.join(names)}."
        super().__init__(
            f"unknown {kind}, got '{name}', expected one of {', '.join(names)}. Fix: {fix}"
        )


class InvalidValueError(ScorebedError):
    """A value outside of what a constructor or command accepts."""

    def __init__(self, what: str, *, got: object, expected: str, fix: str):
        super().__init__(f"{what}, got {got}, expected {expected}. Fix: {fix}")


class NoDensityError(ScorebedError):
    """The density of something that can be sampled but has none that can be computed."""


class BudgetExceededError(ScorebedError):
    """A charge that the likelihood budget cannot cover. Nothing has been spent when this is
    raised.
    """


def require(condition: bool, what: str, *, got: object, expected: str, fix: str) -> None:
    """Raise `InvalidValueError` unless `condition` holds. For static faults at construction."""
    if not condition:
        raise InvalidValueError(what, got=got, expected=expected, fix=fix)


class CheckpointError(InvalidValueError):
    """A file of saved arrays that is damaged, cut short or none of ours."""


class LeafMismatchError(InvalidValueError):
    """Saved arrays that are intact but do not fit the model they are loaded into."""


class NewerFormatError(InvalidValueError):
    """A file that a later version of scorebed has written."""


class RunFolderError(InvalidValueError):
    """A folder or file of a run that cannot be made, read or written, or a folder that is no
    run.
    """


class FolderInUseError(RunFolderError):
    """A run folder that another process owns."""


class DiskFullError(RunFolderError):
    """No space for a file. What had been saved before is untouched."""


class ConflictError(InvalidValueError):
    """Something that does not fit what a live experiment has recorded already, such as a second
    outcome of one step.
    """
