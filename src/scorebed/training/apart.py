"""Members of a batch that were trained apart from each other, put together again.

What members share is small: the last progress, by which a training ends, follows from the estimates
of all of them, step by step. Everything else of a member is its own.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from scorebed.training.watched import Moment, Watched


class Apart(NamedTuple):
    """Some members, what they came to (`Watched.rows`; as it is, if they are all) and their
    history.
    """

    members: Sequence[int]
    watched: Watched
    history: Sequence[Moment]


def size(watched: Watched) -> int:
    """How many members there are."""
    return int(np.size(watched.state.step))


def take_apart(watched: Watched, members: Sequence[int]) -> Watched:
    """What is kept of a group of members."""
    return watched if len(members) == size(watched) else watched.rows(members)


def put_in(watched: Watched, members: Sequence[int], part: Watched) -> Watched:
    """A batch with what was kept of a group."""
    return part if len(members) == size(watched) else watched.with_rows(members, part)


def put_together(start: Watched, groups: Sequence[Apart]) -> tuple[Watched, list[Moment]]:
    """The batch after groups of it were trained from `start` to the same step, and its history, as
    if it had been trained as one.
    """
    if len(groups) == 1 and len(groups[0].members) == size(start):
        return groups[0].watched, list(groups[0].history)
    count, found, judged, history = size(start), start, start, []
    for group in groups:
        found = put_in(found, group.members, group.watched)
    by_step: dict[int, list[tuple[Sequence[int], Moment]]] = {}
    for group in groups:
        for moment in group.history:
            by_step.setdefault(moment.step, []).append((group.members, moment))
    for step, parts in sorted(by_step.items()):
        lower = _spread(count, [(members, each.lower) for members, each in parts if each.lower])
        terms = {
            name: _spread(count, [(members, each.terms[name]) for members, each in parts])
            for name in parts[0][1].terms
        }
        history.append(Moment(step, terms, lower))
        if lower:
            judged = judged.judged(lower, jnp.asarray(step, start.progress.dtype))
    return (
        Watched(found.state, found.best, judged.lower, judged.progress, judged.mark),
        history,
    )


def _spread(count: int, parts: Sequence[tuple[Sequence[int], Sequence[float]]]) -> list[float]:
    """Values of all members, each from its own group; nothing if nobody has any."""
    if not parts:
        return []
    found = [math.nan] * count
    for members, values in parts:
        for number in members:
            found[number] = values[number]
    return found


def plain(moment: Moment) -> dict[str, Any]:
    """A moment as JSON."""
    return moment._asdict()


def from_plain(values: Mapping[str, Any]) -> Moment:
    """It back again; JSON has null for what is not a number."""
    terms = {name: _numbers(each) for name, each in values["terms"].items()}
    return Moment(int(values["step"]), terms, _numbers(values["lower"]))


def _numbers(values: Any) -> Any:
    if isinstance(values, list):
        return [_numbers(each) for each in values]
    return math.nan if values is None else values
