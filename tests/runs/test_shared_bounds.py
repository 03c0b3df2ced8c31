"""Bounds by many workers: groups of trajectories in any order give those of one process, to the
last bit.
"""

import dataclasses
from pathlib import Path

import pytest

from pools import Here
from scorebed.cluster.pool import PiecesFailedError
from scorebed.errors import InvalidValueError
from scorebed.runs.load import load
from scorebed.runs.shared_bounds import AskedBound, shared_bounds
from scorebed.runs.user_parts import PartNames

RUN = Path(__file__).parents[1] / "fixtures" / "runs-v1" / "score"


@pytest.fixture(scope="module")
def run():
    return load(RUN)


@pytest.mark.parametrize(
    "asked",
    [
        AskedBound("contrastive", outer=35, inner=16, seed=3),
        AskedBound("importance-laplace", outer=35, inner=8),
    ],
    ids=lambda asked: asked.bound,
)
def test_any_number_of_workers_gives_the_same_bounds(run, asked):
    alone = asked.for_run(run)(run.task, run.policy, **asked.sizes, key=asked.key)
    groups = []
    pool = Here()
    shared = shared_bounds(
        run, asked, pool, PartNames(), on_group=lambda done, total: groups.append((done, total))
    )
    assert dataclasses.asdict(shared) == dataclasses.asdict(alone)
    assert groups[-1] == (len(pool.done), len(pool.done))
    assert len(pool.done) > 2
    with pytest.raises(PiecesFailedError, match="group 1: poison"):
        shared_bounds(run, asked, Here(poison="group 1"), PartNames(), on_group=lambda *_: None)


def test_a_bound_that_is_one_training_cannot_be_shared_out(run):
    with pytest.raises(InvalidValueError, match="the bound posterior"):
        shared_bounds(run, AskedBound("posterior"), Here(), PartNames(), on_group=lambda *_: None)
