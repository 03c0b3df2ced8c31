"""A new study: its score, its space checked against the configuration, its folder."""

import dataclasses
import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from scorebed.errors import require
from scorebed.methods.reading import method_class, own_table
from scorebed.methods.settings import Setting
from scorebed.presets.files import overlaid
from scorebed.presets.reader import preset_values
from scorebed.runs.artifacts import check_upfront, upfront_files
from scorebed.runs.begin import NewRun, Request, plan
from scorebed.runs.config import known_settings, parse_toml
from scorebed.runs.durable import explained
from scorebed.runs.execution import job_for
from scorebed.runs.folder import CONFIG
from scorebed.runs.load import OpenRun, open_run
from scorebed.runs.user_parts import BUILT_IN, UserParts
from scorebed.sweeps.searches import DEFAULT_SEARCH, check_search, seed_of
from scorebed.sweeps.space import Primitive, SearchSpace, Settings, UsedKeys, read_space
from scorebed.sweeps.study import SweepStudy, digests

DEFAULT_TRIALS = 30
# What the bounds of random and static designs are is the same for all trials, and tight bounds
# choose nothing: left to the winner.
OF_ALL_TRIALS = ("evaluation.references=false", "evaluation.tight_outer=0")
SPACES = "spaces.toml"


def create_study(
    folder: Path,
    score_run: Path,
    *,
    space: Mapping[str, Any] | None = None,
    trials: int | None = None,
    preset: str | None = None,
    method: str | None = None,
    sampler: str = DEFAULT_SEARCH,
    halvings: int = 0,
    seed: int = 0,
    storage: str = "",
    overrides: Sequence[str] = (),
    parts: UserParts = BUILT_IN,
) -> SweepStudy:
    """A study of policies on the score of a run; nothing is written on bad input."""
    source = open_run(score_run, parts)
    config = source.config
    upfront = upfront_files(config.trained_by, job_for(config, source.task))
    require(
        bool(upfront),
        f"the run {score_run}",
        got=f"one of {config.method}, which learns nothing that policies share",
        expected="a run with a trained score, or density",
        fix="train one: scorebed train TASK.",
    )
    require(
        not config.history.designs,
        f"the run {score_run}",
        got="one after steps that are over (--history)",
        expected="one of a whole experiment",
        fix="train a score without --history.",
    )
    check_upfront(score_run, config.trained_by, job_for(config, source.task))
    values = default_space(config.task) if space is None else space
    study = SweepStudy(
        folder=folder,
        name=folder.resolve().name,
        task=config.task,
        preset=preset or config.preset,
        method=method or config.method,
        trials=0,
        seed=seed,
        sampler=sampler,
        halvings=halvings,
        storage=storage,
        overrides=[f"sampler={config.sampler}", *OF_ALL_TRIALS, *overrides],
        files=digests(score_run, [CONFIG, *upfront]),
        space=values,
    )
    planner = TrialPlanner(study, parts, source=source, score=score_run)
    count = check_search(sampler, planner.space, trials)
    for settings in planner.space.examples():
        planner.plan(planner.usable(settings), 0)
    study = dataclasses.replace(study, trials=DEFAULT_TRIALS if count is None else count)
    study.write(score_run)
    return study


def read_space_file(path: Path) -> dict[str, Any]:
    """The values of a space file, unchecked."""
    with explained("reading the space", path):
        data = path.read_bytes()
    return parse_toml(data, where=str(path))


def default_space(task: str) -> dict[str, Any]:
    """The space of a task, if none is given."""
    tables = parse_toml((resources.files(__package__) / SPACES).read_bytes(), where=SPACES)
    default: dict[str, Any] = tables["default"]
    whole = overlaid(default, tables.get(task, {}))
    return {key: value for key, value in whole.items() if value is not False}


class TrialPlanner:
    """From a trial's settings and number to a run."""

    def __init__(
        self,
        study: SweepStudy,
        parts: UserParts = BUILT_IN,
        *,
        source: OpenRun | None = None,
        score: Path | None = None,
    ):
        self.study, self.parts = study, parts
        self.score = score or study.upfront_folder
        found = source or open_run(self.score, parts)
        self.task, self.stem = found.task, found.config.trained_by.upfront_stem
        self._kind = found.config.trained_by.score_kind
        learned = found.config.trained_by.upfront_values(own_table(found.config.method))
        self.space: SearchSpace = read_space(study.space, self._known(), taken_over=learned)

    @property
    def used(self) -> UsedKeys:
        """Which keys a trial uses that has some settings already."""
        cached: Callable[..., Collection[str]] = functools.cache(self._used)
        return lambda settings: cached(
            str(settings.get("method", self.study.method)),
            settings.get("policy"),
            settings.get("policy_training.schedule"),
        )

    def usable(self, settings: Mapping[str, Primitive]) -> Settings:
        """Of some settings those that a trial with them uses."""
        keys = self.used(settings)
        return {key: value for key, value in settings.items() if key in keys}

    def seed(self, number: int) -> int:
        """The seed of a trial."""
        return seed_of(self.study.seed, number)

    def plan(self, settings: Mapping[str, Primitive], number: int) -> NewRun:
        """The run of a trial, as `scorebed train TASK --score RUN --policy … --set …` plans it."""
        method = str(settings.get("method", self.study.method))
        policy = settings.get("policy")
        rest = {k: v for k, v in settings.items() if k not in ("method", "policy")}
        shares = method_class(method).upfront_stem == self.stem
        request = Request(
            task_name=self.study.task,
            task=self.task,
            preset=self.study.preset,
            method=method,
            policy=None if policy is None else str(policy),
            overrides=[
                *self.study.overrides,
                *(f"{key}={_text(value)}" for key, value in rest.items()),
                f"seed={self.seed(number)}",
            ],
            score=self.score if shares else None,
            parts=self.parts,
        )
        return plan(request)

    def _known(self) -> dict[str, Setting]:
        """The settings of all methods that the space names."""
        named = self.study.space.get("method", self.study.method)
        found: dict[str, Setting] = {}
        for method in named if isinstance(named, list) else [named]:
            method_class(str(method))  # refused if there is none
            found |= known_settings(self._values(str(method)))
        return found

    def _used(self, method: str, policy: Primitive | None, schedule: Primitive | None) -> set[str]:
        values = preset_values(
            self.study.preset,
            self.study.task,
            self.task,
            method=method,
            policy=None if policy is None else str(policy),
        )
        training = values.get("policy_training", {})
        if schedule is not None:
            training = {**training, "schedule": schedule}
        return set(known_settings({**self._values(method), "policy_training": training}))

    def _values(self, method: str) -> dict[str, Any]:
        """What decides which keys there are."""
        kind = {self.stem: {"kind": self._kind}} if self._kind is not None else {}
        return {"method": method, **kind}


def _text(value: Primitive) -> str:
    """A value as --set takes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
