"""Constraints between the designs of an experiment: sampling times in order, settings that change
by a limited amount per step.

    class SamplingTimes(IID, Gaussian):
        designs = ranges({"time [h]": (0.1, 24.0)})
        constraint = ordered(gap=0.5)

Given the previous design, a coordinate of ξ_t may lie anywhere in a range [a_t, b_t]. Policies and
samplers still choose freely in the whole design space; a map that increases in their choice v puts
it into that range:

    ξ_t = a_t + (b_t − a_t) · share(v)
    share(v) = F(v), or 1 − (1 − F(v))^{1/n} for coordinates in rising order

F is the position of v within the design space, from 0 to 1, and n the number of steps left,
counting this one: the share is then the quantile function of the smallest of n uniform numbers, so
that independent uniform choices become sorted uniform numbers. The model is untouched: its steps
stay independent, its designs are physical ones, and its score is as easy to learn as before."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from scorebed.errors import InvalidValueError, UnknownNameError, require
from scorebed.tasks.spaces import Space

# The largest position in a range: beyond it the slope of the share is infinite, and that of tanh
# zero.
LAST = 1 - 1e-6


@dataclasses.dataclass(frozen=True)
class Limit:
    """The constraint on one coordinate: in rising order, at least `gap` apart, and at most `change`
    from the previous design.

    `start` is the design before the first step, if there is one.
    """

    rising: bool = False
    gap: float = 0.0
    change: float = math.inf
    start: float | None = None

    def joined(self, other: "Limit") -> "Limit":
        """Both limits together."""
        starts = [limit.start for limit in (self, other) if limit.start is not None]
        return Limit(
            self.rising or other.rising,
            max(self.gap, other.gap),
            min(self.change, other.change),
            starts[-1] if starts else None,
        )


@dataclasses.dataclass(frozen=True)
class Constraint:
    """Limits by the names of design coordinates; an empty name is the only coordinate. Join two
    constraints with `&`.
    """

    limits: tuple[tuple[str, Limit], ...]

    def __and__(self, other: "Constraint") -> "Constraint":
        return Constraint(self.limits + other.limits)

    def on(self, space: Space) -> tuple[Limit, ...]:
        """One limit per coordinate of a space."""
        names = [q.name for q in space.quantities]
        found = [Limit() for _ in names]
        for text, limit in self.limits:
            name = text.partition("[")[0].strip()
            if not name:
                require(
                    len(names) == 1,
                    "a constraint",
                    got="no name",
                    expected=f"one of {', '.join(names)}",
                    fix=f'name the design, like "{space.quantities[0]}".',
                )
            elif name not in names:
                raise UnknownNameError("design of a constraint", name, names)
            i = names.index(name) if name else 0
            found[i] = found[i].joined(limit)
        return tuple(found)


def ordered(*names: str, gap: float | int = 0.0) -> Constraint:
    """Designs that rise from step to step, such as sampling times.

    Arguments:
        names: the design coordinates meant; none if there is only one coordinate.
        gap: the smallest difference between successive designs.

    Returns:
        A constraint, for the attribute `constraint` of a task; `&` joins two of them.

    Raises:
        InvalidValueError: if the gap is negative or not a number.

    Example:
        >>> class Ordered(Decay):
        ...     constraint = sb.ordered("time [h]", gap=0.5)
        >>> Ordered().feasible.words()
        'time in rising order, at least 0.5 h apart'
    """
    require(
        _number(gap) and gap >= 0,
        "the gap between ordered designs",
        got=repr(gap),
        expected="a number from 0",
        fix="give the smallest difference between successive designs, or leave it out.",
    )
    return Constraint(tuple((name, Limit(rising=True, gap=float(gap))) for name in names or ("",)))


def steps_at_most(
    change: Mapping[str, Any] | float | int, *, start: Mapping[str, Any] | None = None
) -> Constraint:
    """Designs that change by a limited amount: |ξ_t − ξ_{t−1}| ≤ change, coordinate by coordinate.

    Arguments:
        change: the largest change by name, or a number if there is only one coordinate.
        start: ξ_0 by name, where the first step is limited too.

    Returns:
        A constraint, for the attribute `constraint` of a task; `&` joins two of them.

    Raises:
        InvalidValueError: if a change is not a positive number, or a start has no change.

    Example:
        >>> class Slow(Decay):
        ...     constraint = sb.steps_at_most({"time [h]": 6.0}, start={"time [h]": 0.0})
        >>> Slow().feasible.words()
        'time changing by at most 6 h'
    """
    changes = change if isinstance(change, Mapping) else {"": change}
    for name, value in changes.items():
        require(
            _number(value) and value > 0,
            f"the largest change of '{name}'",
            got=repr(value),
            expected="a positive number",
            fix='write steps_at_most({"temperature [K]": 5.0}).',
        )
    starts = dict(start or {})
    for name, value in starts.items():
        require(
            name in changes and _number(value),
            f"the start of '{name}'",
            got=repr(value),
            expected="a number, for a design whose change is limited",
            fix="name it as in the limits.",
        )
    return Constraint(
        tuple(
            (
                name,
                Limit(change=float(value), start=float(starts[name]) if name in starts else None),
            )
            for name, value in changes.items()
        )
    )


class Inverse(NamedTuple):
    """The free choice v behind a design, and log |dξ/dv| of every coordinate."""

    free: Float[Array, " dx"]
    log_slope: Float[Array, " dx"]


@dataclasses.dataclass(frozen=True)
class FeasibleRange:
    """Where the designs of an experiment may lie, step by step. Made by `feasible_range`."""

    space: Space
    horizon: int
    limits: tuple[Limit, ...]

    def __post_init__(self) -> None:
        for limit, quantity, low, high in zip(
            self.limits, self.space.quantities, *self.space.limits, strict=True
        ):
            name = f"the constraint on '{quantity.name}'"
            if limit.rising:
                first = low if limit.start is None else limit.start + limit.gap
                require(
                    self.space.bounded,
                    name,
                    got="an unbounded design",
                    expected="one with a range",
                    fix="give it limits with ranges({…}).",
                )
                require(
                    first + (self.horizon - 1) * limit.gap < high,
                    name,
                    got=f"{self.horizon} designs at least {limit.gap:g} apart",
                    expected=f"designs that all fit below {high:g}",
                    fix="make the gap or the horizon smaller, or the range larger.",
                )
            require(
                limit.change > limit.gap,
                name,
                got=f"changes of at least {limit.gap:g} and at most {limit.change:g}",
                expected="the first below the second",
                fix="allow larger changes, or a smaller gap.",
            )
            require(
                limit.start is None or low <= limit.start <= high,
                name,
                got=f"a start at {limit.start}",
                expected=f"one from {low:g} to {high:g}",
                fix="start within the range of the design.",
            )

    def start(self) -> Float[Array, " dx"]:
        """The design before the first step. Where there is none it is the lower limit, which
        nothing uses.
        """
        low, _ = self.space.limits
        return jnp.asarray(
            [
                limit.start if limit.start is not None else (a if math.isfinite(a) else 0.0)
                for limit, a in zip(self.limits, low, strict=True)
            ]
        )

    def interval(
        self, previous: Float[Array, " dx"], step: Int[Array, ""]
    ) -> tuple[Float[Array, " dx"], Float[Array, " dx"]]:
        """[a_t, b_t] of step number `step`, counted from 0, after the design `previous`.

        An experimenter may have used a design other than the proposed one; where that leaves
        nothing, the range is a single point."""
        low, high = (jnp.asarray(end, previous.dtype) for end in self.space.limits)
        gap, change = (
            jnp.asarray([getattr(x, n) for x in self.limits], previous.dtype)
            for n in ("gap", "change")
        )
        rising, anchored = jnp.asarray([x.rising for x in self.limits]), self._anchored(step)
        later = (self.horizon - 1 - step).astype(previous.dtype)
        a = jnp.where(rising & anchored, previous + gap, low)
        b = jnp.where(rising, high - later * gap, high)
        a = jnp.where(anchored, jnp.maximum(a, previous - change), a)
        b = jnp.where(anchored, jnp.minimum(b, previous + change), b)
        a = jnp.minimum(a, high)
        return a, jnp.maximum(a, b)

    def place(
        self, free: Float[Array, " dx"], previous: Float[Array, " dx"], step: Int[Array, ""]
    ) -> Float[Array, " dx"]:
        """ξ_t from a free choice in the design space."""
        a, b = self.interval(previous, step)
        share = -jnp.expm1(
            self._power(step, free.dtype) * jnp.log1p(-jnp.minimum(self._position(free), LAST))
        )
        bounded = jnp.isfinite(a) & jnp.isfinite(b)
        a, b = jnp.where(bounded, a, 0), jnp.where(bounded, b, 0)
        return jnp.where(bounded, a + (b - a) * share, free)

    def lift(
        self, xi: Float[Array, " dx"], previous: Float[Array, " dx"], step: Int[Array, ""]
    ) -> Inverse:
        """The inverse of `place`, and the slope of that map."""
        a, b = self.interval(previous, step)
        bounded = jnp.isfinite(a) & jnp.isfinite(b)
        width = jnp.where(
            bounded, jnp.maximum(b - jnp.where(bounded, a, 0), jnp.finfo(xi.dtype).tiny), 1
        )
        share = jnp.clip(jnp.where(bounded, (xi - jnp.where(bounded, a, 0)) / width, 0), 0, LAST)
        power = self._power(step, xi.dtype)
        position = jnp.minimum(-jnp.expm1(jnp.log1p(-share) / power), LAST)
        log_share = jnp.log(power) + (power - 1) * jnp.log1p(-position)
        free, log_position = self._from_position(position)
        return Inverse(
            jnp.where(bounded, free, xi),
            jnp.where(bounded, jnp.log(width) + log_share + log_position, 0),
        )

    def obey(self, frees: Float[Array, "T dx"]) -> Float[Array, "T dx"]:
        """The designs of a sequence of free choices, placed one after another."""

        def step(previous: Array, data: tuple[Array, Array]) -> tuple[Array, Array]:
            free, t = data
            xi = self.place(free, previous, t)
            return xi, xi

        return jax.lax.scan(
            step, self.start().astype(frees.dtype), (frees, jnp.arange(len(frees)))
        )[1]

    def before(self, xis: Float[Array, "T dx"]) -> Float[Array, "T dx"]:
        """The previous design of each in a sequence."""
        return jnp.concatenate([self.start()[None].astype(xis.dtype), xis[:-1]])

    def holds(self, xis: Float[Array, "T dx"], *, slack: float = 1e-5) -> Bool[Array, ""]:
        """Whether a sequence of designs obeys the constraint, up to `slack` of its range or
        scale.
        """
        a, b = jax.vmap(self.interval)(self.before(xis), jnp.arange(len(xis)))
        tolerance = slack * jnp.abs(
            self.space.constrain(jnp.ones(self.space.dim))
            - self.space.constrain(-jnp.ones(self.space.dim))
        )
        tolerance = tolerance.astype(xis.dtype)
        return jnp.all((a - tolerance <= xis) & (xis <= b + tolerance))

    def words(self) -> str:
        """The constraint in words."""
        parts = []
        for limit, q in zip(self.limits, self.space.quantities, strict=True):
            unit = f" {q.unit}" if q.unit else ""
            apart = f", at least {limit.gap:g}{unit} apart" if limit.gap else ""
            parts += [f"{q.name} in rising order{apart}"] if limit.rising else []
            parts += (
                [f"{q.name} changing by at most {limit.change:g}{unit}"]
                if limit.change < math.inf
                else []
            )
        return "; ".join(parts)

    def _anchored(self, step: Int[Array, ""]) -> Bool[Array, " dx"]:
        """Which coordinates have a previous design."""
        return (step > 0) | jnp.asarray([limit.start is not None for limit in self.limits])

    def _power(self, step: Int[Array, ""], dtype: Any) -> Float[Array, " dx"]:
        """1/n for coordinates in order, since the rest of the range has to hold n designs; 1 for
        the others.
        """
        sorts = jnp.asarray([limit.rising and limit.change == math.inf for limit in self.limits])
        return jnp.where(sorts, 1 / jnp.maximum(self.horizon - step, 1).astype(dtype), 1)

    def _position(self, free: Float[Array, " dx"]) -> Float[Array, " dx"]:
        """Where in the design space a choice lies, from 0 to 1; in an unbounded space, after the
        tanh of a box.
        """
        normal = self.space.normalise(free)
        return jnp.clip((1 + (normal if self.space.bounded else jnp.tanh(normal))) / 2, 0, 1)

    def _from_position(
        self, position: Float[Array, " dx"]
    ) -> tuple[Float[Array, " dx"], Float[Array, " dx"]]:
        """The inverse of `_position`, and the logarithm of its slope, d position / d free."""
        if self.space.bounded:
            low, high = (jnp.asarray(end, position.dtype) for end in self.space.limits)
            return low + (high - low) * position, -jnp.log(high - low)
        u = jnp.arctanh(jnp.clip(2 * position - 1, -LAST, LAST))
        free = self.space.constrain(u)
        return free, jnp.log((1 - jnp.tanh(u) ** 2) / 2) - self.space.log_jacobian(u)


def feasible_range(space: Space, horizon: int, constraint: object) -> FeasibleRange | None:
    """A task's constraint, applied to its designs and horizon; None if there is none."""
    if constraint is None:
        return None
    if not isinstance(constraint, Constraint):
        raise InvalidValueError(
            "the constraint of a task",
            got=f"a {type(constraint).__name__}",
            expected="ordered(…), steps_at_most(…), or both joined by &",
            fix="write constraint = ordered(), or leave it out.",
        )
    if space.listed:
        raise InvalidValueError(
            "the constraint of a task",
            got="designs that come from a list",
            expected="ranges alone",
            fix="give ranges in place of the lists, or leave the constraint out.",
        )
    return FeasibleRange(space, horizon, constraint.on(space))


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
