"""Numbers as people and instruments give them, checked before anything is stored.

Typed text is read strictly: decimal points, blanks between numbers, nothing else. A decimal comma
is refused rather than guessed at, since `1,5` is one number in half of the world and two in the
other."""

import math
import numbers
import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from scorebed.errors import InvalidValueError
from scorebed.session.state import LONGEST_PLAN, Limits, Vector
from scorebed.tasks.base import Task
from scorebed.tasks.spaces import Box, Quantity

NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)(e[+-]?\d+)?", re.ASCII | re.IGNORECASE)
LONGEST = 1000  # characters of an entry
LONGEST_REFINING = 3600.0  # seconds
LARGEST = float(np.finfo(np.float32).max)  # what policies and posteriors compute with
SLACK = 4 * float(
    np.finfo(np.float32).eps
)  # a policy's design close to a limit may be rounded past it


class Entry(NamedTuple):
    """What was typed: the outcome, and the design used if it was not the one proposed."""

    y: Vector
    xi: Vector | None


def parse_entry(task: Task, text: str) -> Entry:
    """`y`, or `y @ ξ` where the design used was another one than that proposed."""
    outcome, at, design = text.partition("@")
    y = parse_numbers("the outcome", outcome, task.outcomes)
    return Entry(
        y,
        check_design(task, parse_numbers("the design used", design, task.designs.quantities))
        if at
        else None,
    )


def parse_numbers(what: str, text: str, quantities: Sequence[Quantity]) -> Vector:
    """One number per quantity, with blanks between them."""
    words = text.replace("\N{MINUS SIGN}", "-").split() if len(text) <= LONGEST else [text]
    if not words:
        raise _wrong(what, "nothing", quantities)
    if len(text) > LONGEST:
        raise _wrong(what, f"{len(text)} characters", quantities)
    return check_vector(what, [_number(what, word, quantities) for word in words], quantities)


def check_outcome(task: Task, y: Any) -> Vector:
    """An outcome as finite numbers, one per coordinate; a single number will do for a single
    coordinate.
    """
    return check_vector("the outcome", y, task.outcomes)


def check_design(task: Task, xi: Any) -> Vector:
    """A design as finite numbers within the task's design space."""
    what = "the design used"
    values = check_vector(what, xi, task.designs.quantities)
    if isinstance(task.designs, Box):
        limits = zip(
            values, task.designs.quantities, task.designs.low, task.designs.high, strict=True
        )
        for value, quantity, low, high in limits:
            slack = SLACK * max(abs(low), abs(high))
            if not low - slack <= value <= high + slack:
                raise InvalidValueError(
                    f"{what}, {quantity}",
                    got=f"{value:g}",
                    expected=f"{low:g} to {high:g}",
                    fix="enter the design that was used; the model says nothing about others.",
                )
    return values


def parse_limits(task: Task, text: str) -> Limits | None:
    """`low:high` for every design coordinate, with blanks between; either may be left out. None for
    `off`, and for no limit.
    """
    quantities = task.designs.quantities
    words = text.replace("\N{MINUS SIGN}", "-").split() if len(text) <= LONGEST else []
    if words == ["off"]:
        return None
    if len(words) != len(quantities) or any(word.count(":") != 1 for word in words):
        raise _no_limits(f"'{text[:40]}'", quantities)
    sides = [
        [_number("the limits", side, quantities) if side else None for side in word.split(":")]
        for word in words
    ]
    return check_limits(task, [low for low, _ in sides], [high for _, high in sides])


def check_limits(task: Task, low: Any, high: Any) -> Limits | None:
    """Limits within those of the task, one pair per design coordinate, None where there is none;
    None if none is tighter.
    """
    quantities, space = task.designs.quantities, task.designs
    given = zip(_side(low, quantities), _side(high, quantities), strict=True)
    outer = [(-math.inf, math.inf)] * space.dim
    if isinstance(space, Box):
        outer = list(zip(space.low, space.high, strict=True))
    inner = []
    for quantity, (a, b), (lowest, highest) in zip(quantities, given, outer, strict=True):
        least, most = lowest if a is None else a, highest if b is None else b
        slack = SLACK * max(abs(lowest), abs(highest))
        if not lowest - slack <= least <= most <= highest + slack:
            within = f" within {lowest:g} to {highest:g}" if isinstance(space, Box) else ""
            raise InvalidValueError(
                f"the limits of {quantity}",
                got=f"{least:g} to {most:g}",
                expected=f"a lower and an upper one{within}",
                fix="limits can only be tighter than those of the task, for which the policy was "
                "trained.",
            )
        inner.append((least, most))
    if inner == outer:
        return None
    finite = [[None if math.isinf(value) else value for value in pair] for pair in inner]
    return Limits(tuple(least for least, _ in finite), tuple(most for _, most in finite))


def check_plan(steps: Any) -> int:
    """A number of steps for an experiment."""
    if isinstance(steps, bool) or not isinstance(steps, int) or not 1 <= steps <= LONGEST_PLAN:
        raise InvalidValueError(
            "the number of steps",
            got=repr(steps)[:40],
            expected=f"a whole number from 1 to {LONGEST_PLAN}",
            fix="for example 10.",
        )
    return steps


def check_seconds(seconds: Any) -> float:
    """A time to refine."""
    (value,) = check_vector("the time to refine", seconds, (Quantity("seconds"),))
    if not 0 < value <= LONGEST_REFINING:
        raise InvalidValueError(
            "the time to refine",
            got=f"{value:g} seconds",
            expected=f"more than 0 and at most {LONGEST_REFINING:.0f}",
            fix="30 is usual.",
        )
    return value


def check_vector(what: str, values: Any, quantities: Sequence[Quantity]) -> Vector:
    """Finite numbers, one per quantity."""
    if isinstance(values, str | bytes) or (
        not isinstance(values, Iterable) and not isinstance(values, numbers.Real)
    ):
        raise _wrong(what, repr(values)[:40], quantities)
    # A single number, in whatever form: Python's, NumPy's, or an array without axes.
    rows = (
        [values]
        if isinstance(values, numbers.Real) or np.ndim(_sized(what, values, quantities)) == 0
        else values
    )
    found = [_real(what, value, quantities) for value in rows]
    if len(found) != len(quantities):
        raise _wrong(what, f"{len(found)} numbers", quantities)
    for value in found:
        if not math.isfinite(value):
            raise _wrong(what, f"{value}, which is not finite", quantities)
        if abs(value) > LARGEST:
            raise _wrong(what, f"{value:g}, which is too large to compute with", quantities)
    return tuple(found)


def check_text(what: str, text: str, *, longest: int, lines: bool = False) -> str:
    """Text that can be stored and shown anywhere: not empty, not endless, without control
    characters.
    """
    allowed = "\n\t" if lines else ""
    bad = next((c for c in text if not (c.isprintable() or c in allowed)), None)
    got = (
        "nothing"
        if not text.strip()
        else f"{len(text)} characters"
        if len(text) > longest
        else f"the character {bad!a}"
    )
    if not text.strip() or len(text) > longest or bad is not None:
        raise InvalidValueError(
            what, got=got, expected=f"1 to {longest} printable characters", fix="write plain text."
        )
    return text


def _side(given: Any, quantities: Sequence[Quantity]) -> list[float | None]:
    """Lower or upper limits: finite numbers or None, one per coordinate; None alone for none at
    all.
    """
    if given is None:
        return [None] * len(quantities)
    rows = (
        [given]
        if isinstance(given, numbers.Real) or not isinstance(given, Sequence | np.ndarray)
        else list(given)
    )
    if len(rows) != len(quantities):
        raise _no_limits(f"{len(rows)} numbers", quantities)
    return [
        None if value is None else check_vector(f"the limits of {quantity}", value, (quantity,))[0]
        for value, quantity in zip(rows, quantities, strict=True)
    ]


def _no_limits(got: str, quantities: Sequence[Quantity]) -> InvalidValueError:
    names = ", ".join(map(str, quantities[:4])) + (", …" if len(quantities) > 4 else "")
    return InvalidValueError(
        "the limits",
        got=got,
        expected=f"low:high for {names}",
        fix=f"for example {' '.join(['0:1.5', '-1:1', ':3'][i % 3] for i in range(min(len(quantities), 3)))}, or off for none.",
    )


def _sized(what: str, values: Any, quantities: Sequence[Quantity]) -> Any:
    try:
        if np.ndim(values) <= 1:
            return values
    except ValueError:  # rows of different lengths
        pass
    raise _wrong(what, "a table", quantities)


def _real(what: str, value: Any, quantities: Sequence[Quantity]) -> float:
    if isinstance(value, np.ndarray) or (
        not isinstance(value, numbers.Real) and getattr(value, "shape", None) == ()
    ):
        value = value.item()
    if isinstance(value, bool | np.bool_) or not isinstance(value, numbers.Real):
        raise _wrong(what, repr(value)[:40], quantities)
    try:
        return float(value)
    except OverflowError:
        raise _wrong(what, "a number that is too large", quantities) from None


def _number(what: str, word: str, quantities: Sequence[Quantity]) -> float:
    shown = f"'{word[:40]}'"
    if not NUMBER.fullmatch(word):
        if "," in word:
            shown += ", whose comma could separate decimals or numbers"
        raise _wrong(what, shown, quantities)
    value = float(word)
    if math.isinf(value):
        raise _wrong(what, f"{shown}, which is too large", quantities)
    if value == 0 and re.search("[1-9]", re.split("[eE]", word)[0]):
        raise _wrong(what, f"{shown}, which is too small to tell from zero", quantities)
    return value


def _wrong(what: str, got: str, quantities: Sequence[Quantity]) -> InvalidValueError:
    many = len(quantities) > 1
    count = f"{len(quantities)} finite numbers" if many else "one finite number"
    names = ", ".join(map(str, quantities[:4])) + (", …" if len(quantities) > 4 else "")
    example = " ".join(["1.5", "-0.2", "3e-4"][i % 3] for i in range(min(len(quantities), 3)))
    fix = f"for example {example}" + (
        ", with blanks between." if many else ", with a decimal point."
    )
    return InvalidValueError(what, got=got, expected=f"{count}: {names}", fix=fix)
