"""When to stop: a rule with a price, or a threshold. It advises in a sentence; only the user acts
on it.

With U_k the upper bound, plus two standard errors, of what the next k steps under this policy tell,
given the data so far (`ahead.py`), and C_k what they cost,

    price:       stop if P · U_k ≤ C_k for every k up to the steps left
    threshold:   stop if U_1 and U of all the rest lie below it

A single step that does not pay may be followed by some that do, so all k are asked. The advice is
about this policy: another one, or a refined one, may learn more from the same steps."""

import dataclasses
import math

import numpy as np

from scorebed.errors import InvalidValueError, require
from scorebed.session.ahead import InformationAhead
from scorebed.tasks.base import Task
from scorebed.tasks.cost import DesignCost

ERRORS = 2.0  # standard errors that are added to the upper bound


@dataclasses.dataclass(frozen=True)
class StoppingRule:
    """What information is worth.

    Attributes:
        price_per_nat: what a nat is worth, in the unit of the task's cost; for tasks with a cost.
        stop_below: nats below which neither the next step nor all the rest are worth the effort.
    """

    price_per_nat: float | None = None
    stop_below: float | None = None

    def __post_init__(self) -> None:
        for name, value in (("price_per_nat", self.price_per_nat), ("stop_below", self.stop_below)):
            require(
                value is None or bool(math.isfinite(value) and value > 0),
                f"the stopping rule's {name}",
                got=value,
                expected="a positive number",
                fix="leave it out for none.",
            )
        require(
            (self.price_per_nat, self.stop_below) != (None, None),
            "a stopping rule",
            got="neither a price nor a threshold",
            expected="one of them",
            fix="give price_per_nat or stop_below.",
        )

    @classmethod
    def of(cls, price_per_nat: float | None, stop_below: float | None) -> "StoppingRule | None":
        """A rule if there is a price or a threshold."""
        given = (price_per_nat, stop_below)
        return None if given == (None, None) else cls(*given)

    def require_cost(self, task: Task) -> None:
        """Refuse a price where designs cost nothing."""
        if self.price_per_nat is not None and task.cost is None:
            raise InvalidValueError(
                "the price of a nat",
                got="a task whose designs cost nothing",
                expected="one with a cost to compare it with",
                fix="give the task a cost (sb.priced), or use stop_below, a number of nats.",
            )


@dataclasses.dataclass(frozen=True)
class StoppingAdvice:
    """Whether to stop, and why.

    Attributes:
        stop: what the rule says.
        sentence: the same in words, with the figures that decided.
        steps: the number of steps ahead that decided.
        tells: what they tell at most, in nats: the upper bound plus two errors.
    """

    stop: bool
    sentence: str
    steps: int
    tells: float


def advise(rule: StoppingRule, ahead: InformationAhead, cost: DesignCost | None) -> StoppingAdvice:
    """What a rule says about the steps ahead; where it has price and threshold, either may stop."""
    tells = ahead.upper + ERRORS * ahead.se
    tells = np.where(np.isnan(tells), np.inf, tells)
    found = []
    if rule.price_per_nat is not None and cost is not None:
        found.append(_by_price(rule.price_per_nat, tells, ahead.cost, cost))
    if rule.stop_below is not None:
        found.append(_by_threshold(rule.stop_below, tells))
    return next((each for each in found if each.stop), found[0])


def _by_price(
    price: float, tells: np.ndarray, costs: np.ndarray, cost: DesignCost
) -> StoppingAdvice:
    gains = price * tells - costs
    best = int(np.argmax(gains))
    stop = bool(gains[best] <= 0)
    k, unit = best + 1, cost.quantity.unit
    worth = f"{price * tells[best]:.3g} {unit}".rstrip()
    paid = f"{costs[best]:.3g} {unit}".rstrip()
    figures = f"worth {worth}; {'they cost' if k > 1 else 'it costs'} {paid}"
    if stop:
        others = (
            f", and no other number of the {len(tells)} left pays more" if gains.size > 1 else ""
        )
        words = (
            f"By its price, it is time to stop: {_next(k)} {_at_most(k, tells[best])}, {figures}"
        )
        return StoppingAdvice(True, f"{words}{others}.", k, float(tells[best]))
    words = f"By its price, going on may pay: {_next(k)} may tell {_up_to(tells[best])}, {figures}."
    return StoppingAdvice(False, words, k, float(tells[best]))


def _by_threshold(threshold: float, tells: np.ndarray) -> StoppingAdvice:
    left = len(tells)
    worst = 0 if tells[0] >= threshold else left - 1
    stop = bool(tells[0] < threshold and tells[-1] < threshold)
    if stop:
        rest = f", all {left} left {tells[-1]:.2g}" if left > 1 else ""
        words = (
            f"It is time to stop: the next step tells at most {tells[0]:.2g} nats{rest}; "
            f"the threshold is {threshold:g}."
        )
        return StoppingAdvice(True, words, left, float(tells[-1]))
    words = (
        f"Going on may pay: {_next(worst + 1)} may tell {_up_to(tells[worst])}; the threshold is "
        f"{threshold:g}."
    )
    return StoppingAdvice(False, words, worst + 1, float(tells[worst]))


def _next(k: int) -> str:
    return "the next step" if k == 1 else f"the next {k} steps"


def _at_most(k: int, nats: float) -> str:
    return f"tell{'s' if k == 1 else ''} at most {nats:.2g} nats"


def _up_to(nats: float) -> str:
    return f"up to {nats:.2g} nats" if math.isfinite(nats) else "more than the particles can say"
