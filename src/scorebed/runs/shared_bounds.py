"""Bounds of a run's policy on fresh draws, and by many workers: groups of trajectories.

A piece is one group, by its number. What a group gives depends on the seed and its number alone,
and the bounds are made of all groups in their order: the same to the last bit whatever the number
of workers, where these are machines of one kind, and up to rounding elsewhere.
"""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax.random as jr
import numpy as np
from jaxtyping import PRNGKeyArray

from scorebed.bounds import make_bound
from scorebed.bounds.base import Bound, Bounds, OnGroup
from scorebed.bounds.contrastive import Contrastive
from scorebed.bounds.grouped import Grouped, GroupValues
from scorebed.bounds.posterior import PosteriorBound
from scorebed.cluster.pool import Pool
from scorebed.errors import InvalidValueError, require
from scorebed.keys import named
from scorebed.runs.evaluation import reported_bound
from scorebed.runs.execution import RECORD
from scorebed.runs.load import Run, load
from scorebed.runs.user_parts import (
    BOUND,
    PartNames,
    is_from_file,
    read_part,
    read_parts,
    whole_path,
)


class AskedBound(NamedTuple):
    """A bound as it is asked for: names and numbers, which another process may be told."""

    bound: str
    levels: int | None = None
    outer: int | None = None
    inner: int | None = None
    seed: int = 0

    @property
    def key(self) -> PRNGKeyArray:
        """The root of its draws; those of training are never used again."""
        return named(jr.key(self.seed), "evaluate")

    @property
    def sizes(self) -> dict[str, int | None]:
        """Trajectories and draws, where they are given."""
        return {"outer": self.outer, "inner": self.inner}

    def find(self) -> Bound:
        """The bound that is named, built in or from a file."""
        if is_from_file(self.bound):
            read_part(BOUND, self.bound)
        return make_bound(self.bound)

    def for_run(self, run: Run) -> Bound:
        """The bound for the task of a run; without a density there is one only, with the sizes that
        the run is configured for.
        """
        asked = self.find()
        if run.task.has_density:
            return self._with_levels(asked.for_task(run.task))
        require(
            asked.name in (Contrastive.name, PosteriorBound.name),
            f"--bound {self.bound}",
            got="a model without a density",
            expected="its only bound",
            fix="leave --bound out.",
        )
        return self._with_levels(reported_bound(run.config, run.task))

    def _with_levels(self, bound: Bound) -> Bound:
        """The bound with as many levels, if any are asked for."""
        if self.levels is None:
            return bound
        require(
            "levels" in {field.name for field in dataclasses.fields(bound)},
            "--levels",
            got=f"--bound {bound.name}",
            expected="--bound smc, which has levels",
            fix="leave --levels out.",
        )
        changed: dict[str, Any] = {"levels": self.levels}
        return dataclasses.replace(bound, **changed)


def shared_bounds(
    run: Run, asked: AskedBound, pool: Pool, parts: PartNames, *, on_group: OnGroup
) -> Bounds:
    """The bounds of the policy of a run, by the workers of a pool that all have its folder."""
    grouped = _grouped(run, asked)
    told = asked._replace(bound=whole_path(asked.bound))
    pieces = {
        f"group {number}": (str(run.path.resolve()), list(parts.anywhere()), list(told), number)
        for number in range(grouped.groups)
    }
    done: list[str] = []

    def on_done(name: str) -> None:
        done.append(name)
        on_group(len(done), grouped.groups)

    found = pool.run_all(bound_piece, pieces, on_done=on_done)
    return grouped.bounds(run.policy, [_unpacked(found[name]) for name in pieces])


def bound_piece(
    run: str, parts: Sequence[str | None], asked: Sequence[Any], number: int
) -> dict[str, Any]:
    """One group of trajectories, on a worker: its numbers."""
    told = AskedBound(*asked)
    written = (Path(run) / RECORD).stat().st_mtime_ns
    loaded, grouped = _loaded(run, PartNames(*parts), told, written)
    return _packed(grouped.values(loaded.policy, number, key=told.key))


@functools.lru_cache(maxsize=2)
def _loaded(run: str, parts: PartNames, asked: AskedBound, written: int) -> tuple[Run, Grouped]:
    """A run and its bound, read once for all groups that come to this process; `written` tells a
    run from another that had the same folder.
    """
    del written
    loaded = load(run, **read_parts(parts)._asdict())
    return loaded, _grouped(loaded, asked)


def _grouped(run: Run, asked: AskedBound) -> Grouped:
    bound = asked.for_run(run)
    found = bound.grouped(run.task, **asked.sizes)
    if found is None:
        raise InvalidValueError(
            "--dask or --workers",
            got=f"the bound {bound.name}, whose trajectories depend on each other",
            expected="one that can be cut into groups",
            fix="leave the option out, or choose another --bound.",
        )
    return found


def _packed(values: GroupValues) -> dict[str, Any]:
    return {name: [str(each.dtype), each.tolist()] for name, each in values.items()}


def _unpacked(values: Mapping[str, Any]) -> GroupValues:
    return {name: np.asarray(each, kind) for name, (kind, each) in values.items()}
