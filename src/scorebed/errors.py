"""Every error that scorebed raises on purpose. Each says what was expected, what it got, and how to
fix it.
"""

import difflib
from collections.abc import Iterable


class ScorebedError(Exception):
    """Base class of all errors; the command line prints one as a single line and exits with 2.

    Example:
        >>> try:
        ...     sb.make_task("pendulm")
        ... except sb.ScorebedError as error:
        ...     print(str(error).split("Fix: ")[1])
        did you mean 'pendulum'?
    """


class UnknownNameError(ScorebedError):
    """A name that is not in its table; the message offers the nearest one.

    Example:
        >>> try:
        ...     sb.make_bound("smk")
        ... except sb.UnknownNameError as error:
        ...     print(str(error).split("Fix: ")[1])
        did you mean 'smc'?
    """

    def __init__(self, kind: str, name: str, among: Iterable[str]):
        names = sorted(among)
        near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
        fix = f"did you mean '{near[0]}'?" if near else f"choose one of {', '.join(names)}."
        super().__init__(
            f"unknown {kind}, got '{name}', expected one of {', '.join(names)}. Fix: {fix}"
        )


class InvalidValueError(ScorebedError):
    """A value that a constructor or command does not accept.

    Example:
        >>> try:
        ...     sb.make_task("pendulum", horizon=0)
        ... except sb.InvalidValueError as error:
        ...     print(str(error).split(",")[0])
        a dynamical task
    """

    def __init__(self, what: str, *, got: object, expected: str, fix: str):
        super().__init__(f"{what}, got {got}, expected {expected}. Fix: {fix}")


class NoDensityError(ScorebedError):
    """The density of something that can only be sampled.

    Example:
        >>> try:
        ...     Bursts().log_prob(jnp.zeros(1), jnp.ones(1), None, jnp.ones(1))
        ... except sb.NoDensityError as error:
        ...     print(str(error).split(",")[0])
        the density of Bursts
    """


class BudgetExceededError(ScorebedError):
    """A charge beyond the budget of likelihood evaluations; it has not been spent.

    Example:
        >>> from scorebed.nle import Ledger
        >>> try:
        ...     Ledger(100).charge("bounds", 101)
        ... except sb.BudgetExceededError as error:
        ...     print("101" in str(error))
        True
    """


def require(condition: bool, what: str, *, got: object, expected: str, fix: str) -> None:
    """Raise `InvalidValueError` unless `condition` holds."""
    if not condition:
        raise InvalidValueError(what, got=got, expected=expected, fix=fix)


class CheckpointError(InvalidValueError):
    """A file of saved arrays that is damaged, truncated or not ours."""


class LeafMismatchError(InvalidValueError):
    """Saved arrays that do not fit the model they are loaded into."""


class NewerFormatError(InvalidValueError):
    """A file written by a later version of scorebed."""


class RunFolderError(InvalidValueError):
    """A run's folder or file that cannot be created, read or written, or a folder that is not a
    run.
    """


class FolderInUseError(RunFolderError):
    """A run folder that another process is using."""


class DiskFullError(RunFolderError):
    """No space for a file; earlier files are untouched."""


class ConflictError(InvalidValueError):
    """An entry that contradicts what a live experiment has recorded, such as a second outcome of a
    step.
    """
