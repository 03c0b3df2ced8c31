"""Successive halving of restarts: P policies start, and the worse half of those still training is
stopped again and again.

The steps of a stage are cut into rungs. The first is climbed by all P restarts, the next by the
better half of them (rounded up), and so on. A rung's share of the steps goes as 1/√n with its
number n of restarts: between rungs of equal length, of which the first costs by far the most, and
rungs of equal cost, of which the first is too short to tell anything. Rungs end where blocks of
steps do, because only there can a training be looked at.

Nothing here knows of arrays; sizes are exact, so that a ledger can rest on them.
"""

import bisect
import itertools
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple


class Rung(NamedTuple):
    """Steps after number `start`, up to number `end`, that so many restarts take."""

    start: int
    end: int
    restarts: int


def block_size(steps: int, every: int = 0) -> int:
    """Steps per compiled call: few enough for a progress bar that moves, and a divisor of `every`,
    where blocks must end.
    """
    largest = max(1, min(50, steps // 20))
    return next(size for size in range(largest, 0, -1) if every % size == 0)


def rungs(steps: int, count: int, *, halvings: int, every: int) -> tuple[Rung, ...]:
    """The rungs of `count` restarts, looked at after every `every` steps; one rung if none is
    stopped. There are no more halvings than restarts to stop.
    """
    counts = [count]
    while len(counts) <= halvings and counts[-1] > 1:
        counts.append(-(-counts[-1] // 2))
    block = block_size(steps, every)
    parts = list(itertools.accumulate(1 / math.sqrt(n) for n in counts))
    # The first rung has a block at least: before it there is nothing to choose by.
    ends = [max(block, block * round(steps * part / parts[-1] / block)) for part in parts[:-1]]
    marks = [0, *(min(end, steps) for end in ends), steps]
    return tuple(Rung(a, b, n) for (a, b), n in zip(itertools.pairwise(marks), counts, strict=True))


def places(ladder: Sequence[Rung], step: int) -> int:
    """How many restarts may go on from a step."""
    return min(rung.restarts for rung in ladder if rung.start <= step)


def taken(ladder: Sequence[Rung], steps: int) -> int:
    """Steps that all restarts together have taken when the stage is at number `steps`."""
    ends = [*(min(rung.end, steps) for rung in ladder[:-1]), steps]
    return sum(
        rung.restarts * max(0, end - rung.start) for rung, end in zip(ladder, ends, strict=True)
    )


def estimates(ladder: Sequence[Rung], steps: int, *, every: int) -> int:
    """How often a restart that has taken so many steps was looked at: after every `every` of them,
    and at the end of every rung.
    """
    looks = {rung.end for rung in ladder if rung.end <= steps}
    return len(looks | set(range(every, steps + 1, every) if every else ()))


def stretched(steps: int, count: int, *, halvings: int, every: int) -> int:
    """The steps of a stage with halvings that takes as many steps of restarts as one of `steps`
    without, or a few less.
    """

    def cost(steps: int) -> int:
        return taken(rungs(steps, count, halvings=halvings, every=every), steps)

    if not halvings:
        return steps
    return most(cost, count * steps, at_least=steps, below=count * steps + 1)


def most(cost: Callable[[int], int], allowed: int, *, at_least: int, below: int) -> int:
    """The largest whole number whose cost is allowed, or one close to it where rounded rungs make
    costs fall back.
    """
    found = bisect.bisect_right(range(at_least, below), allowed, key=cost)
    return max(at_least, found + at_least - 1)
