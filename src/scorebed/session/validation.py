"""Values as people and instruments give them, checked once, before anything is stored.

Terminal, web page and Python share these functions. What they return (`ParsedEntry`, `Limits`,
`ExperimentRequest`) is checked: passed on to a session it is taken as it is.

Typed text is read strictly: decimal points, blanks between numbers, nothing else. A decimal comma
is refused rather than guessed at, since `1,5` is one number in half of the world and two in the
other."""

import math
import numbers
import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax.random as jr
import numpy as np

from scorebed.errors import InvalidValueError, require
from scorebed.policies.base import Policy
from scorebed.session.events import (
    LONGEST_HORIZON,
    Event,
    ExperimentState,
    Kind,
    Limits,
    ProposedDesign,
    Vector,
    limits_data,
)
from scorebed.session.remaining import require_feasible
from scorebed.tasks.base import Task
from scorebed.tasks.spaces import Quantity

NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)(e[+-]?\d+)?", re.ASCII | re.IGNORECASE)
LONGEST_ENTRY, LONGEST_NAME, LONGEST_NOTE, LONGEST_TOKEN = 1000, 80, 2000, 200  # characters
LONGEST_REFINING = 3600.0  # seconds
SEEDS = 2**31
LARGEST = float(np.finfo(np.float32).max)  # what policies and posteriors compute with
# A policy's design at a limit may be rounded past it.
SLACK = 4 * float(np.finfo(np.float32).eps)


class ParsedEntry(NamedTuple):
    """A checked outcome, and the design used if it was not the one proposed."""

    y: Vector
    xi: Vector | None


class Submission(NamedTuple):
    """A checked outcome: where it was measured if not as proposed, and whatever says which step is
    meant.
    """

    y: Vector
    used: Vector | None = None
    step: int | None = None
    proposal: int | None = None
    token: str | None = None

    def matches(self, y: Vector | None, used: Vector | None) -> bool:
        """Whether these are the same values."""
        return self.y == y and self.used in (None, used)

    def data(self, proposal: ProposedDesign) -> dict[str, Vector]:
        """What the event says."""
        return {"used": self.used or proposal.design, "y": self.y}


class ExperimentRequest(NamedTuple):
    """What is asked of an experiment, checked; None where anything will do. `limits_given` tells no
    limits from limits that were left out.
    """

    name: str | None
    seed: int | None
    horizon: int | None
    limits: Limits | None
    limits_given: bool

    def first_events(self, trained: int) -> list[Event]:
        """What a new experiment begins with if it is not as the policy was trained for."""
        changes: list[tuple[Kind, dict[str, Any]]] = []
        if self.horizon not in (None, trained):
            changes.append((Kind.PLANNED, {"horizon": self.horizon}))
        if self.limits is not None:
            changes.append((Kind.LIMITED, limits_data(self.limits)))
        return [Event(i + 1, kind, 1, "", data) for i, (kind, data) in enumerate(changes)]


# ---- outcomes and designs


def parse_entry(task: Task, text: str) -> ParsedEntry:
    """`y`, or `y @ ξ` where the design used was another one than that proposed."""
    outcome, at, design = text.partition("@")
    y = parse_numbers("the outcome", outcome, task.outcomes)
    if not at:
        return ParsedEntry(y, None)
    xi = parse_numbers("the design used", design, task.designs.quantities)
    return ParsedEntry(y, require_in_space(task, xi))


def check_entry(task: Task, y: Any, xi: Any = None) -> ParsedEntry:
    """An outcome and perhaps a design in any container of numbers; what was parsed already is
    returned as it is.
    """
    if isinstance(y, ParsedEntry):
        return y
    return ParsedEntry(check_outcome(task, y), None if xi is None else check_design(task, xi))


def check_submission(
    task: Task, y: Any, xi: Any, step: int | None, proposal: int | None, token: str | None
) -> Submission:
    """An outcome on its way to the disk."""
    given = check_entry(task, y, xi)
    if token is not None:
        check_text("the token of a submission", token, longest=LONGEST_TOKEN)
    return Submission(given.y, given.xi, step, proposal, token)


def parse_numbers(what: str, text: str, quantities: Sequence[Quantity]) -> Vector:
    """One number per quantity, with blanks between them."""
    if len(text) > LONGEST_ENTRY:
        raise _wrong(what, f"{len(text)} characters", quantities)
    words = _entries(text, quantities)
    if not words:
        raise _wrong(what, "nothing", quantities)
    return check_vector(
        what,
        [word if isinstance(word, float) else _number(what, word, quantities) for word in words],
        quantities,
    )


def check_outcome(task: Task, y: Any) -> Vector:
    """An outcome as finite numbers, one per coordinate; a bare number will do for one."""
    return check_vector("the outcome", y, task.outcomes)


def check_design(task: Task, xi: Any) -> Vector:
    """A design as finite numbers within the task's design space."""
    return require_in_space(task, check_vector("the design used", xi, task.designs.quantities))


def require_in_space(task: Task, xi: Vector) -> Vector:
    """A design of finite numbers, refused outside of the design space."""
    each = zip(xi, task.designs.quantities, *task.designs.limits, strict=True)
    for value, quantity, low, high in each:
        if not low - _slack(low, high) <= value <= high + _slack(low, high):
            raise InvalidValueError(
                f"the design used, {quantity}",
                got=f"{value:g}",
                expected=f"{low:g} to {high:g}",
                fix="enter the design that was used; the model says nothing about others.",
            )
    return xi


def check_vector(what: str, values: Any, quantities: Sequence[Quantity]) -> Vector:
    """Finite numbers, one per quantity; where a quantity has few values, one of these, which may be
    given by its name.
    """
    values = _named(values, quantities)
    if isinstance(values, str | bytes) or not isinstance(values, Iterable | numbers.Real):
        raise _wrong(what, repr(values)[:40], quantities)
    # A single number may be Python's, NumPy's, or an array without axes.
    single = isinstance(values, numbers.Real) or _axes(what, values, quantities) == 0
    rows: Any = [values] if single else values
    found = [_real(what, value, quantities) for value in rows]
    if len(found) != len(quantities):
        raise _wrong(what, f"{len(found)} numbers", quantities)
    for value in found:
        if not math.isfinite(value):
            raise _wrong(what, f"{value}, which is not finite", quantities)
        if abs(value) > LARGEST:
            raise _wrong(what, f"{value:g}, which is too large to compute with", quantities)
    return tuple(
        _listed(what, value, quantity) for value, quantity in zip(found, quantities, strict=True)
    )


# ---- circumstances


def parse_limits(task: Task, text: str) -> Limits | None:
    """`low:high` for every design coordinate, with blanks between; either may be left out. None for
    `off`, and if no limit is tighter than the task's.
    """
    quantities = task.designs.quantities
    words = _words(text) if len(text) <= LONGEST_ENTRY else []
    if words == ["off"]:
        return None
    if len(words) != len(quantities) or any(word.count(":") != 1 for word in words):
        raise _no_limits(f"'{text[:40]}'", quantities)
    sides = [
        [_number("the limits", side, quantities) if side else None for side in word.split(":")]
        for word in words
    ]
    return check_limits(task, [low for low, _ in sides], [high for _, high in sides])


def check_limits(task: Task, low: Any, high: Any = None) -> Limits | None:
    """Limits within those of the task, one pair per design coordinate, None where there is none;
    None if none is tighter than the task's. `Limits` are returned as they are.
    """
    if isinstance(low, Limits):
        return low
    require(
        not task.designs.listed or (low is None and high is None),
        "the limits",
        got="designs that come from a list",
        expected="ranges alone",
        fix="enter the design that was used in place of the one proposed.",
    )
    quantities, outer = task.designs.quantities, list(zip(*task.designs.limits, strict=True))
    given = zip(_side(low, quantities), _side(high, quantities), strict=True)
    inner = []
    for quantity, (a, b), (lowest, highest) in zip(quantities, given, outer, strict=True):
        least, most = lowest if a is None else a, highest if b is None else b
        slack = _slack(lowest, highest)
        if not lowest - slack <= least <= most <= highest + slack:
            within = f" within {lowest:g} to {highest:g}" if math.isfinite(lowest) else ""
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


def check_horizon(steps: Any, policy: Policy | None = None) -> int:
    """A number of steps for an experiment, and one that the policy can be given designs for."""
    whole = isinstance(steps, int) and not isinstance(steps, bool)
    require(
        whole and 1 <= steps <= LONGEST_HORIZON,
        "the number of steps",
        got=repr(steps)[:40],
        expected=f"a whole number from 1 to {LONGEST_HORIZON}",
        fix="for example 10.",
    )
    if policy is not None:  # abstractly: nothing is computed
        eqx.filter_eval_shape(lambda p, key: p.extended(steps, key=key), policy, jr.key(0))
    return int(steps)


def check_seconds(seconds: Any) -> float:
    """A time to refine."""
    (value,) = check_vector("the time to refine", seconds, (Quantity("seconds"),))
    require(
        0 < value <= LONGEST_REFINING,
        "the time to refine",
        got=f"{value:g} seconds",
        expected=f"more than 0 and at most {LONGEST_REFINING:.0f}",
        fix="30 is usual.",
    )
    return value


# ---- experiments, texts


def check_request(
    task: Task,
    policy: Policy,
    name: str | None,
    seed: int | None,
    steps: Any = None,
    limits: Limits | tuple[Any, Any] | None = None,
) -> ExperimentRequest:
    """What is asked of an experiment, before any file is made. `limits` are (low, high)."""
    if name is not None:
        check_text("the name of an experiment", name, longest=LONGEST_NAME)
    require(
        seed is None or 0 <= seed < SEEDS,
        "the seed of an experiment",
        got=seed,
        expected=f"0 to {SEEDS - 1}",
        fix="for example 0.",
    )
    horizon = None if steps is None else check_horizon(steps, policy)
    pair = (limits,) if limits is None or isinstance(limits, Limits) else limits
    allowed = check_limits(task, *pair)
    require_feasible(task, ExperimentState(horizon or task.horizon), allowed)
    return ExperimentRequest(name, seed, horizon, allowed, limits is not None)


def check_note(text: str) -> str:
    """A remark, which may have several lines."""
    return check_text("a note", text, longest=LONGEST_NOTE, lines=True)


def check_text(what: str, text: str, *, longest: int, lines: bool = False) -> str:
    """Text that can be stored and shown anywhere: neither empty nor endless, without control
    characters.
    """
    allowed = "\n\t" if lines else ""
    bad = next((c for c in text if not (c.isprintable() or c in allowed)), None)
    got = f"the character {bad!a}"
    if not text.strip() or len(text) > longest:
        got = f"{len(text)} characters" if text.strip() else "nothing"
    require(
        bool(text.strip()) and len(text) <= longest and bad is None,
        what,
        got=got,
        expected=f"1 to {longest} printable characters",
        fix="write plain text.",
    )
    return text


def _entries(text: str, quantities: Sequence[Quantity]) -> list[str | float]:
    """Typed text in parts: the value of a name where a quantity has names, else a word."""
    found: list[str | float] = []
    rest = text.replace("\N{MINUS SIGN}", "-").strip()
    while rest:
        quantity = quantities[len(found)] if len(found) < len(quantities) else None
        labels = sorted(quantity.labels, key=len, reverse=True) if quantity is not None else []
        fits = [
            each
            for each in labels
            if rest.casefold().startswith(each.casefold())
            and (len(rest) == len(each) or rest[len(each)].isspace())
        ]
        if quantity is not None and fits:
            found.append(quantity.values[quantity.labels.index(fits[0])])
            rest = rest[len(fits[0]) :].strip()
        else:
            word, *others = rest.split(maxsplit=1)
            found.append(word)
            rest = others[0] if others else ""
    return found


def _named(values: Any, quantities: Sequence[Quantity]) -> Any:
    """Values with names replaced by what they stand for."""
    if isinstance(values, str) and len(quantities) == 1:
        return _named([values], quantities)[0]
    if not isinstance(values, list | tuple) or len(values) != len(quantities):
        return values
    return [
        quantity.values[quantity.labels.index(value)]
        if isinstance(value, str) and value in quantity.labels
        else value
        for value, quantity in zip(values, quantities, strict=True)
    ]


def _listed(what: str, value: float, quantity: Quantity) -> float:
    """A value of a quantity that has few of them; any number of another one."""
    if not quantity.values:
        return value
    nearest = min(quantity.values, key=lambda each: abs(each - value))
    # A policy's design was rounded to single precision.
    if abs(nearest - value) <= SLACK * max(abs(each) for each in quantity.values):
        return nearest
    many = len(quantity.values) > 8
    named = [
        f"{value:g} ({label})"
        for value, label in zip(quantity.values, quantity.labels, strict=False)
    ] or [f"{value:g}" for value in quantity.values]
    raise InvalidValueError(
        f"{what}, {quantity}",
        got=f"{value:g}",
        expected=f"a value from {named[0]} to {named[-1]}"
        if many
        else f"one of {', '.join(named)}",
        fix="enter one of its values"
        + (", by its name or number." if quantity.labels else ", a whole number for a count."),
    )


def _words(text: str) -> list[str]:
    return text.replace("\N{MINUS SIGN}", "-").split()


def _slack(low: float, high: float) -> float:
    return SLACK * max(abs(low), abs(high)) if math.isfinite(low) else 0.0


def _side(given: Any, quantities: Sequence[Quantity]) -> list[float | None]:
    """Lower or upper limits: finite numbers or None, one per coordinate; None alone for all."""
    if given is None:
        return [None] * len(quantities)
    several = isinstance(given, Sequence | np.ndarray) and not isinstance(given, numbers.Real)
    rows = list(given) if several else [given]
    if len(rows) != len(quantities):
        raise _no_limits(f"{len(rows)} numbers", quantities)
    return [
        None if value is None else check_vector(f"the limits of {quantity}", value, (quantity,))[0]
        for value, quantity in zip(rows, quantities, strict=True)
    ]


def _axes(what: str, values: Any, quantities: Sequence[Quantity]) -> int:
    try:
        if (axes := np.ndim(values)) <= 1:
            return axes
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
    if not many and quantities[0].labels:
        return InvalidValueError(
            what,
            got=got,
            expected=f"{quantities[0].name}: {' or '.join(quantities[0].labels)}",
            fix="enter one of them, by its name or number.",
        )
    count = f"{len(quantities)} finite numbers" if many else "one finite number"
    example = " ".join(["1.5", "-0.2", "3e-4"][: len(quantities)])
    how = "with blanks between" if many else "with a decimal point"
    return InvalidValueError(
        what,
        got=got,
        expected=f"{count}: {_names(quantities)}",
        fix=f"for example {example}, {how}.",
    )


def _no_limits(got: str, quantities: Sequence[Quantity]) -> InvalidValueError:
    example = " ".join(["0:1.5", "-1:1", ":3"][: len(quantities)])
    return InvalidValueError(
        "the limits",
        got=got,
        expected=f"low:high for {_names(quantities)}",
        fix=f"for example {example}, or off for none.",
    )


def _names(quantities: Sequence[Quantity]) -> str:
    return ", ".join(map(str, quantities[:4])) + (", …" if len(quantities) > 4 else "")
