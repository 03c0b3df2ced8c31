"""What was learned upfront part of the way: it is what the stage was at that step, and policies can
be trained with it.
"""

import dataclasses

import equinox as eqx
import jax
import numpy as np
import pytest
from tiny_runs import tiny

from scorebed.errors import InvalidValueError
from scorebed.runs.begin import Request, at_milestone, plan
from scorebed.runs.checkpoint import first_at_or_after, halvings
from scorebed.runs.execution import Execution, job_for
from scorebed.runs.load import load, open_run
from scorebed.runs.milestones import Milestone, milestone_learned, milestone_steps
from scorebed.runs.stage import Progress
from scorebed.runs.user_parts import BUILT_IN
from scorebed.tasks import make_task

SHORT = [*tiny(), "policy_training.steps=2", "evaluation.references=false", "score.seeds=2"]
STEPS = 60  # of stage 1 of a tiny run, in blocks of 3


def arrays(module):
    return [np.asarray(leaf) for leaf in jax.tree.leaves(eqx.filter(module, eqx.is_array))]


def same(a, b) -> bool:
    return all(np.array_equal(x, y) for x, y in zip(arrays(a), arrays(b), strict=True))


def request(**changes) -> Request:
    plain = Request(
        task_name="linear-gaussian",
        task=make_task("linear-gaussian"),
        preset="quick",
        method="score",
        overrides=[*tiny(), "evaluation.references=false"],
    )
    return dataclasses.replace(plain, **changes)


def carried_out(new, path):
    with new.create(path) as folder:
        return Execution(folder, new.config, new.task, progress=Progress()).run()


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    path = tmp_path_factory.mktemp("milestones") / "whole"
    carried_out(plan(request(overrides=SHORT)), path)
    return open_run(path, BUILT_IN)


def test_halvings_are_fractions_rounded_up_and_each_once():
    assert halvings(160) == (10, 20, 40, 80)
    assert halvings(60) == (4, 8, 15, 30)
    assert halvings(3) == (1, 2)
    assert halvings(0) == ()


def test_the_first_at_or_after_a_mark():
    assert first_at_or_after((4, 8, 99), (3, 6, 9, 12)) == {6, 9}
    assert first_at_or_after((4,), ()) == set()


def test_stage_one_keeps_its_halvings_and_its_end(run):
    """By the clock this training would have kept its last checkpoint alone."""
    assert milestone_steps(run) == milestone_steps(run, 1) == [6, 9, 15, 30, STEPS]


def test_a_milestone_is_what_the_stage_was_at_that_step(run):
    stage, seen = run.config.trained_by.upfront(job_for(run.config, run.task), 1), {}
    stage.go_on(stage.start(), on_block=lambda block: seen.update({block.step: block.watched}))
    for step in milestone_steps(run, 1):
        assert same(milestone_learned(run, step, 1), stage.result(seen[step]))
    assert not same(milestone_learned(run, 15, 1), milestone_learned(run, 30, 1))
    assert not same(milestone_learned(run, 30, 0), milestone_learned(run, 30, 1))


def test_the_last_milestone_is_the_score_of_the_run(run):
    loaded = load(run.folder.path)
    (chosen,) = [n for n in (0, 1) if loaded.record.chosen["trained_with"] == f"score-{n}"]
    assert same(milestone_learned(run, STEPS, chosen), loaded.score)


def test_a_policy_is_trained_with_a_milestone(run, tmp_path):
    new = at_milestone(plan(request(overrides=SHORT)), Milestone(run.folder.path, 1, 30))
    record = carried_out(new, tmp_path / "later")
    found = load(tmp_path / "later")
    assert same(found.score, milestone_learned(run, 30, 1))
    assert found.config.score_run.endswith("number 1, step 30")
    assert found.config.trained_by.score.seeds == 1
    assert "score-0" not in record.nle_stages  # the other run has paid for it


def test_a_step_that_was_not_kept_is_refused_with_those_that_were(run):
    with pytest.raises(InvalidValueError, match=r"step 31, expected one of .*30, .*60"):
        milestone_learned(run, 31)


def test_a_run_that_learns_nothing_upfront_has_none(tmp_path):
    new = plan(request(method="random", overrides=[]))
    with new.create(tmp_path / "none"):
        pass
    with pytest.raises(InvalidValueError, match="learned no number 0"):
        milestone_steps(open_run(tmp_path / "none", BUILT_IN))
