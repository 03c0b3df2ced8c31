"""From what a user asks for to a run: its configuration, and its folder. Nothing is written on bad
input.
"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import equinox as eqx
import jax.random as jr

from scorebed.errors import require
from scorebed.inference.history import learn_history
from scorebed.methods.base import Job
from scorebed.methods.reading import method_class, own_table
from scorebed.presets.reader import preset_values
from scorebed.runs.artifacts import check_upfront, save, upfront_files
from scorebed.runs.config import RunConfig, chosen_method, chosen_policies, make_config
from scorebed.runs.durable import replace_file
from scorebed.runs.estimate import fewest_seconds, require_day
from scorebed.runs.execution import job_for
from scorebed.runs.folder import RunFolder
from scorebed.runs.footprint import require_memory
from scorebed.runs.history import after_history, read_history, with_history
from scorebed.runs.load import open_config, open_run
from scorebed.runs.milestones import Milestone, milestone_learned
from scorebed.runs.sections import HistoryConfig
from scorebed.runs.spending import Spending
from scorebed.runs.user_parts import BUILT_IN, UserParts
from scorebed.runs.user_task import UserTask, compare_source
from scorebed.tasks.base import Task
from scorebed.tasks.continued import continued
from scorebed.tasks.nuisance import check_interest

MOST_TRAININGS = 100_000  # of one run


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request:
    """What a user asks for; None for what the preset decides."""

    task_name: str
    task: Task
    preset: str
    method: str
    policy: str | None = None
    policies: int | None = None
    score_kind: str | None = None
    overrides: Sequence[str] = ()
    file: Path | None = None
    """A TOML file laid over the preset."""
    score: Path | None = None
    """A run whose score, or density, is taken over."""
    history: Path | None = None
    """A file of steps that are over."""
    spending: Spending | None = None
    parts: UserParts = BUILT_IN
    """What comes from files of the user's."""
    devices: int = 1
    """Devices among which every batch is shared out."""
    long: bool = False
    """Whether it may take more than a day."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class NewRun:
    """A run to be begun: its configuration, its task (what is left of it after its history), and
    the run whose score it takes over.
    """

    config: RunConfig
    task: Task
    score: Path | None = None
    milestone: Milestone | None = None
    """What another run had learned upfront part of the way."""
    devices: int = 1

    def create(self, path: Path | None) -> RunFolder:
        """Its folder, at `path` or at the next free place in runs/; refused, with nothing written,
        if its batches cannot fit the memory.
        """
        require_memory(self.config, self.task, devices=self.devices)
        make = RunFolder.create_next if path is None else RunFolder.create
        folder = make(path or Path("runs"), self.config)
        if self.score is not None:  # copied, so that the run stands on its own
            for name in upfront_files(self.config.trained_by, job_for(self.config, self.task)):
                replace_file(folder.path / name, (self.score / name).read_bytes())
        if self.milestone is not None:
            (name,) = upfront_files(self.config.trained_by, job_for(self.config, self.task))
            source = open_run(self.milestone.run, BUILT_IN)
            learned = milestone_learned(source, self.milestone.step, self.milestone.number)
            save(folder.path / name, learned, self.task)
        return folder


def plan(request: Request) -> NewRun:
    """The run that a user asks for, checked."""
    method_name = chosen_method(request.overrides, request.file) or request.method
    values = preset_values(
        request.preset,
        request.task_name,
        request.task,
        method=method_name,
        policy=request.policy,
        policies=chosen_policies(request.overrides, request.file) or request.policies,
        score_kind=request.score_kind,
    )
    task = request.task
    if request.history is not None:
        task, values["history"] = _after(task, request.history)
    values["sources"] = _sources(request.parts)
    if request.score is not None:
        values |= _taken_over(request, request.score, method_name)
    config = make_config(values, request.overrides, request.file)
    # A configuration that is used again has the steps that were chosen for its minutes.
    config = dataclasses.replace(config, minutes=0.0)
    job, method = job_for(config, task), config.trained_by
    require(
        not any(each.partition("=")[0].strip() == "minutes" for each in request.overrides),
        "minutes",
        got="a setting",
        expected="the option --minutes, which chooses the numbers of steps",
        fix="use --minutes X.",
    )
    if not request.long:
        _require_day(config, job)
    require(
        request.score is None or not config.fresh_scores,
        "--fresh-scores",
        got="--score as well",
        expected="scores that are trained, or that are taken over",
        fix="leave one of them out.",
    )
    require(
        request.score_kind is None or method.score_kind is not None,
        "--score-kind",
        got=f"the method {method_name}",
        expected="a method that learns a score",
        fix="leave it out.",
    )
    check_interest(task, key=jr.key(0))
    method.supports(task)
    if method.policy_settings is not None:
        method.supports_policy(
            eqx.filter_eval_shape(lambda key: job.make_policy(task, key=key), jr.key(0))
        )
    if request.score is not None:
        check_upfront(request.score, method, job)
    spending = request.spending
    config = config if spending is None else spending.apply(config, task)
    return NewRun(config=config, task=task, score=request.score, devices=request.devices)


def _require_day(config: RunConfig, job: Job) -> None:
    """Refuse sizes that no machine of this kind gets through in a day."""
    evaluation, trainings = config.evaluation, config.policies * config.repeats
    require(
        trainings <= MOST_TRAININGS,
        "policies and repeats",
        got=f"{trainings:,} trainings",
        expected=f"at most {MOST_TRAININGS:,}",
        fix="take fewer of them.",
    )
    nle = config.trained_by.nle(job)
    nle += job.task.horizon * config.repeats * evaluation.outer * (evaluation.inner + 1)
    nle += job.task.horizon * trainings * evaluation.select_outer * (evaluation.select_inner + 1)
    require_day(
        "the run",
        fewest_seconds(nle),
        fix="take fewer --policies or --repeats, or smaller steps, batches or evaluation sizes",
    )


def _taken_over(request: Request, run: Path, method: str) -> dict[str, Any]:
    """The settings of what was learned upfront come with it, to a method that learns the same."""
    source = open_config(RunFolder.open(run), request.parts)
    if isinstance(request.parts.task, UserTask):
        compare_source(source.sources.task, request.parts.task, strict=False)
    stem = method_class(method).upfront_stem
    require(
        stem != "" and source.trained_by.upfront_stem == stem,
        "--score",
        got=f"a run of {source.method} for the method {method}",
        expected="a run whose method shares with this one what it learns upfront",
        fix="leave it out.",
    )
    return {"score_run": str(run), **source.trained_by.upfront_values(own_table(method))}


def at_milestone(run: NewRun, milestone: Milestone) -> NewRun:
    """The same run with what another run of the same settings had learned upfront at a milestone,
    and with that alone where it would learn several.
    """
    config = dataclasses.replace(
        run.config, score_run=str(milestone), trained_by=run.config.trained_by.alone()
    )
    return dataclasses.replace(run, config=config, score=None, milestone=milestone)


def _sources(parts: UserParts) -> dict[str, str]:
    """The sha256 of every file that the user named."""
    digests = {name: getattr(part, "digest", None) for name, part in parts._asdict().items()}
    return {name: digest for name, digest in digests.items() if digest}


def _after(task: Task, path: Path) -> tuple[Task, dict[str, Any]]:
    """What is left of a task after the steps in a file, and the section of the configuration that
    says so.
    """
    past = read_history(path, task)
    # A history that does not fit is refused before anything is computed.
    continued(task, task.prior, *past)
    # The same file gives the same prior, whatever the seed of the run: a score can be taken over.
    section = with_history(past, learn_history(task, *past, key=jr.key(0)))
    return after_history(task, HistoryConfig(**section)), section
