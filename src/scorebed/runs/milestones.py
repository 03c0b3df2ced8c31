"""What a run had learned upfront part of the way: a score after a half, a quarter, … of its steps.

Stage 1 keeps a checkpoint at each of those marks. Its moving average is what the stage would have
handed on had it stopped there; the learning rate was still that of the longer training, so that it
is a checkpoint, not the result of a smaller budget.
"""

from pathlib import Path
from typing import Any, NamedTuple

from scorebed.errors import InvalidValueError
from scorebed.runs.checkpoint import Checkpoints, first_at_or_after, halvings
from scorebed.runs.execution import job_for
from scorebed.runs.load import OpenRun
from scorebed.training.stage import Stage


class Milestone(NamedTuple):
    """What one run had learned upfront, number `number` from 0, at one step."""

    run: Path
    number: int
    step: int

    def __str__(self) -> str:
        return f"{self.run.name}, number {self.number}, step {self.step}"


def milestone_steps(run: OpenRun, number: int = 0) -> list[int]:
    """The steps at which what is learned upfront was kept: those of `halvings`, and the last."""
    stage = _stage(run, number)
    return sorted(
        first_at_or_after((*halvings(stage.steps), stage.steps), _kept(run, stage).steps())
    )


def milestone_after(run: OpenRun, part: int, number: int = 0) -> tuple[int, int]:
    """The first step that was kept at or after 1/`part` of all steps, and the number of all."""
    stage = _stage(run, number)
    (found,) = first_at_or_after((-(-stage.steps // part),), _kept(run, stage).steps()) or (0,)
    if found == 0:
        raise InvalidValueError(
            f"the checkpoints of {run.folder.path}",
            got=f"none after 1/{part} of {stage.steps} steps",
            expected="those of a finished training",
            fix="finish it, or train it again in a new folder.",
        )
    return found, stage.steps


def milestone_learned(run: OpenRun, step: int, number: int = 0) -> Any:
    """What the stage would have handed on at one of those steps."""
    stage = _stage(run, number)
    kept = _kept(run, stage)
    if step not in kept.steps():
        raise InvalidValueError(
            f"a milestone of {run.folder.path}",
            got=f"step {step}",
            expected=f"one of {', '.join(map(str, kept.steps())) or 'none'}",
            fix="choose one of them.",
        )
    return stage.result(kept.load(step, stage.start()).tree)


def _stage(run: OpenRun, number: int) -> Stage:
    job, method = job_for(run.config, run.task), run.config.trained_by
    stage = method.upfront(job, number) if number < job.upfronts(method.parts(job)) else None
    if stage is None:
        raise InvalidValueError(
            f"the run {run.folder.path}",
            got=f"one of method {run.config.method} that learned no number {number} upfront",
            expected="a run that has trained it",
            fix="name one whose method learns something before any policy.",
        )
    return stage


def _kept(run: OpenRun, stage: Stage) -> Checkpoints:
    return Checkpoints(run.folder.checkpoint_folder(stage.name))
