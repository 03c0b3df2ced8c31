"""Declaring a task in a few lines: plain class attributes, with names and units in one string.

    class Decay(IID, Gaussian):
        horizon = 5
        prior = parameters({"rate [1/h]": dist.LogNormal(-1.0, 0.5)})
        designs = ranges({"time [h]": (0.0, 24.0)})
        outcomes = measured("concentration [mg/l]")
        additive_noise = True

An abstract attribute of a task may be a field of its instances, as in the built-in tasks, or an
attribute of its class, as here. The task then holds no arrays, so nothing in it is trained or
saved."""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpyro.distributions as dist

from scorebed.errors import InvalidValueError, require
from scorebed.tasks.choices import Choices
from scorebed.tasks.constraints import ordered as ordered
from scorebed.tasks.constraints import steps_at_most as steps_at_most
from scorebed.tasks.cost import DesignCost
from scorebed.tasks.priors import Independent, Marginal
from scorebed.tasks.spaces import Box, Listed, Quantity, Real

DISCRETE_DESIGNS = (
    'list its values, as in [5, 10, 20] or ["A", "B"], and do not round inside the model'
)


def quantity(text: Any) -> Quantity:
    """The quantity "rate" with the unit "1/h" from "rate [1/h]"; the unit may be left out."""
    found = (
        re.fullmatch(r"\s*([^\[\]]*[^\[\]\s])\s*(?:\[([^\[\]]*)\])?\s*", text)
        if isinstance(text, str)
        else None
    )
    if found is None:
        raise InvalidValueError(
            "the name of a quantity",
            got=repr(text),
            expected="a name, followed by its unit in brackets if it has one",
            fix='write it like "time [h]".',
        )
    return Quantity(found[1], (found[2] or "").strip())


def measured(*names: str) -> tuple[Quantity, ...]:
    """The outcomes of a step, in order.

    Arguments:
        names: their names, with units in brackets.

    Returns:
        One `Quantity` per name.

    Raises:
        InvalidValueError: if there is no name, one is malformed, or two are equal.

    Example:
        >>> sb.measured("angle [rad]", "velocity [rad/s]")[0].unit
        'rad'
    """
    require(
        len(names) > 0,
        "the outcomes of a task",
        got="none",
        expected="at least one",
        fix="name what is measured.",
    )
    return _distinct("outcomes", tuple(quantity(name) for name in names))


def categories(name: str, values: Sequence[str]) -> tuple[Quantity, ...]:
    """An outcome that is one of several answers. Outcomes of a step are added up: `categories(…) +
    counts(…)`.

    Arguments:
        name: the name of the outcome.
        values: the names of the answers, at least two; in the model they are 0, 1, …

    Returns:
        One `Quantity`, for the attribute `outcomes` of a task.

    Raises:
        InvalidValueError: if a name is malformed, or answers are fewer than two or not distinct.

    Example:
        >>> sb.categories("answer", ("now", "later"))[0].values
        (0.0, 1.0)
    """
    require(
        not isinstance(values, str) and all(isinstance(value, str) for value in values),
        f"the answers of '{name}'",
        got=_short(values),
        expected="a tuple of names",
        fix='write ("no", "yes").',
    )
    named = quantity(name)
    numbers = tuple(float(i) for i in range(len(values)))
    return (Listed(named.name, named.unit, numbers, tuple(values)),)


def counts(name: str, *, at_most: int) -> tuple[Quantity, ...]:
    """An outcome that is a whole number from 0 to `at_most`.

    Arguments:
        name: the name of the outcome, with its unit in brackets.
        at_most: the largest count; where a model has none, the count from which on all are entered
            as this one.

    Returns:
        One `Quantity`, for the attribute `outcomes` of a task.

    Raises:
        InvalidValueError: if the name is malformed, or `at_most` is not a whole number from 1.

    Example:
        >>> sb.counts("photons", at_most=50)[0].values[-1]
        50.0
    """
    require(
        isinstance(at_most, int) and not isinstance(at_most, bool) and at_most >= 1,
        f"the largest count of '{name}'",
        got=_short(at_most),
        expected="a whole number from 1",
        fix="give the largest count to tell apart.",
    )
    named = quantity(name)
    return (Listed(named.name, named.unit, tuple(float(i) for i in range(at_most + 1))),)


def parameters(priors: Mapping[Any, Any]) -> Independent:
    """A prior of independent parameters.

    Arguments:
        priors: distributions of NumPyro by name, with units in brackets. The names of a tuple share
            a distribution, and are drawn independently.

    Returns:
        The prior.

    Raises:
        InvalidValueError: if a name is malformed or used twice, or a distribution is discrete or
            has no quantile function.

    Example:
        >>> import numpyro.distributions as dist
        >>> prior = sb.parameters({"rate [1/h]": dist.LogNormal(0.0, 0.5)})
        >>> prior.sample(key=jr.key(0)).shape
        (1,)
    """
    require(
        isinstance(priors, Mapping) and len(priors) > 0,
        "the parameters of a task",
        got=_short(priors),
        expected="a dict of names and distributions",
        fix='write {"rate [1/h]": dist.LogNormal(0.0, 0.5)}.',
    )
    marginals = []
    for names, distribution in priors.items():
        quantities = tuple(
            quantity(name) for name in ((names,) if isinstance(names, str) else names)
        )
        require(
            isinstance(distribution, dist.Distribution),
            f"the prior of {', '.join(q.name for q in quantities)}",
            got=_short(distribution),
            expected="a distribution of numpyro.distributions",
            fix="write dist.Normal(0.0, 1.0), or another with a quantile function.",
        )
        require(
            not getattr(distribution.support, "is_discrete", False),
            f"the prior of {', '.join(q.name for q in quantities)}",
            got=f"the discrete {type(distribution).__name__}",
            expected="a continuous distribution",
            fix="scores are gradients: give the parameter a continuous range.",
        )
        marginals.append(Marginal(quantities, distribution))
    prior = Independent(tuple(marginals))
    _distinct("parameters", prior.quantities)
    return prior


def ranges(limits: Mapping[str, Any]) -> Box | Choices:
    """A design space with limits.

    Arguments:
        limits: by name, with units in brackets: the range (low, high), a list of the numbers
            that there are, [5, 10, 20], or a list of names, ["oral", "vein"]. Names are 0, 1, …
            to the model.

    Returns:
        The design space, one coordinate per name.

    Raises:
        InvalidValueError: if a name is malformed or used twice, limits are not two finite numbers
            in rising order, or a list has fewer than two values or one of them twice.

    Example:
        >>> sb.ranges({"time [h]": (0.0, 24.0), "dose [mg]": (0.0, 50.0)}).dim
        2
    """
    require(
        isinstance(limits, Mapping) and len(limits) > 0,
        "the designs of a task",
        got=_short(limits),
        expected="a dict of names and ranges",
        fix='write {"time [h]": (0.0, 24.0)}.',
    )
    lists = {name: _values(name, pair) for name, pair in limits.items() if _is_list(pair)}
    for name, pair in limits.items():
        require(
            name in lists
            or (
                isinstance(pair, tuple)
                and len(pair) == 2
                and all(map(_finite, pair))
                and pair[0] < pair[1]
            ),
            f"the design '{name}'",
            got=_short(pair),
            expected="two finite numbers (low, high) with low < high",
            fix="for a design without limits use unbounded(…, scale=…).",
        )
    quantities = _distinct("designs", tuple(lists.get(name) or quantity(name) for name in limits))
    ends = [
        (q.values[0], q.values[-1]) if q.values else limits[name]
        for name, q in zip(limits, quantities, strict=True)
    ]
    sides = [tuple(float(end[side]) for end in ends) for side in (0, 1)]
    return Choices(quantities, *sides) if lists else Box(quantities, *sides)


def unbounded(*names: str, scale: float | int) -> Real:
    """A design space without limits.

    Arguments:
        names: the names of its coordinates, with units in brackets.
        scale: the typical size of all of them.

    Returns:
        The design space.

    Raises:
        InvalidValueError: if there is no name, one is malformed, two are equal, or the scale is not
            positive.

    Example:
        >>> sb.unbounded("x [m]", "y [m]", scale=10.0).bounded
        False
    """
    require(
        len(names) > 0,
        "the designs of a task",
        got="none",
        expected="at least one",
        fix="name what the experimenter chooses.",
    )
    return Real(_distinct("designs", tuple(quantity(name) for name in names)), float(scale))


def priced(name: str, function: Any, *, nats: float | int) -> DesignCost:
    """The cost of a design, which training subtracts from the information.

    Arguments:
        name: what is spent, with its unit in brackets.
        function: the cost of one design, `function(xi)`.
        nats: what one unit is worth, in nats.

    Returns:
        The cost, for the attribute `cost` of a task.

    Raises:
        InvalidValueError: if the name is malformed, or the price is not a positive number.

    Example:
        >>> cost = sb.priced("drug given [mg]", lambda xi: xi[0], nats=0.01)
        >>> float(cost.total(jnp.ones((3, 1))))
        3.0
    """
    return DesignCost(quantity(name), function, float(nats))


def _is_list(values: Any) -> bool:
    return isinstance(values, list | set | frozenset | range) or (
        isinstance(values, tuple) and (len(values) > 2 or any(isinstance(v, str) for v in values))
    )


def _values(name: str, values: Any) -> Quantity:
    """A design that comes from a list."""
    named, given = quantity(name), list(values)
    if given and all(isinstance(value, str) for value in given):
        numbers = tuple(float(i) for i in range(len(given)))
        return Listed(named.name, named.unit, numbers, tuple(given))
    require(
        all(map(_finite, given)),
        f"the design '{name}'",
        got=_short(values),
        expected="numbers alone, or names alone",
        fix="list one kind of them.",
    )
    return Listed(named.name, named.unit, tuple(sorted(float(value) for value in given)))


def _distinct(what: str, quantities: tuple[Quantity, ...]) -> tuple[Quantity, ...]:
    names = [q.name for q in quantities]
    twice = sorted({name for name in names if names.count(name) > 1})
    require(
        not twice,
        f"the {what} of a task",
        got=f"'{', '.join(twice)}' more than once",
        expected="different names",
        fix="rename all but one.",
    )
    return quantities


def _finite(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
