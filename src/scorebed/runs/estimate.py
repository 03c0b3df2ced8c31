"""How long something is going to take, before it begins: what would take more than a day is refused
unless the user wants it all the same.

By arithmetic first: no machine evaluates likelihoods faster than `FASTEST`. What may be long after
that is timed on a small share of it."""

import time
from collections.abc import Callable

import jax
import jax.random as jr

from scorebed._platform import usable_cores
from scorebed.bounds.base import Bound
from scorebed.errors import require
from scorebed.policies.base import Policy
from scorebed.tasks.base import Task

DAY = 86_400.0
FASTEST = {"cpu": 1e9, "other": 1e12}  # likelihood evaluations in a second: of a core, of a device
WORTH_TIMING = 1e11  # likelihood evaluations, from which a timing costs little beside them
SAMPLE_OUTER, SAMPLE_INNER = 64, 4096  # of the timing


def fewest_seconds(nle: int) -> float:
    """Seconds that so many likelihood evaluations take at the least."""
    if jax.default_backend() == "cpu":
        return nle / (FASTEST["cpu"] * usable_cores())
    return nle / (FASTEST["other"] * jax.device_count())


def require_day(what: str, seconds: float, *, fix: str) -> None:
    """Refuse what takes more than a day."""
    require(
        seconds <= DAY,
        what,
        got=f"sizes that take {in_words(seconds)}",
        expected="at most a day",
        fix=f"{fix}; --long begins all the same.",
    )


def bound_seconds(bound: Bound, task: Task, policy: Policy, outer: int, inner: int) -> float:
    """Seconds that a bound takes at the least, or about that, if it may be long."""

    def cost(outer: int, inner: int) -> int:
        return bound.nle_with(policy.design_nle, task, outer, inner) or 0

    nle = cost(outer, inner)
    least = fewest_seconds(nle)
    if nle < WORTH_TIMING or least > DAY:
        return least
    sizes = min(outer, SAMPLE_OUTER), min(inner, SAMPLE_INNER)

    def sample() -> object:
        return bound(task, policy, outer=sizes[0], inner=sizes[1], key=jr.key(0))

    return _seconds(sample) * nle / cost(*sizes)


def in_words(seconds: float) -> str:
    """A time in words."""
    days = seconds / DAY
    if days > 1000 * 365:
        return "longer than a thousand years"
    return f"about {days / 365:,.0f} years" if days > 730 else f"about {days:,.1f} days"


def _seconds(call: Callable[[], object]) -> float:
    call()  # compiles
    begun = time.monotonic()
    call()
    return time.monotonic() - begun
