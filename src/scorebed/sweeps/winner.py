"""The winner of a study, judged on draws that chose nothing.

The highest of many noisy estimates is too high: the winner was chosen by its luck too. A second
estimate of the same policy, of the same size but on draws of its own, is free of that; the
difference of the two is how much of the winner's lead was luck.
"""

import dataclasses
import math
from pathlib import Path
from typing import Any

import jax.random as jr
from optuna.trial import FrozenTrial, TrialState

from scorebed.bounds import tight_bounds
from scorebed.errors import InvalidValueError
from scorebed.keys import named
from scorebed.runs import seal, strict_json
from scorebed.runs.durable import explained, replace_file
from scorebed.runs.evaluation import reported_bound
from scorebed.runs.load import Run, load
from scorebed.runs.record import BoundsRecord
from scorebed.runs.stage import Progress
from scorebed.runs.user_parts import BUILT_IN, UserParts
from scorebed.sweeps.status import best_trial
from scorebed.sweeps.study import RESULT, SweepStudy

TIGHT_OUTER = 256


@dataclasses.dataclass(frozen=True, kw_only=True)
class Winner:
    """The best trial of a study, with the estimate that chose it and one that did not."""

    trial: int
    run: str
    """Its run folder."""
    settings: dict[str, Any]
    candidates: int
    """Finished trials that it was chosen among."""
    selection: float
    """The lower bound that it was chosen by, in nats, less the cost of its designs."""
    selection_se: float
    independent: float
    """The same on draws that chose nothing."""
    independent_se: float
    upper: float
    upper_se: float
    tight: dict[str, Any] | None
    """Tight bounds on further draws, where the task has them."""
    nle: int
    seconds: float

    @property
    def luck(self) -> float:
        """How much higher the estimate is that chose it."""
        return self.selection - self.independent

    @property
    def luck_se(self) -> float:
        """The standard error of that."""
        return math.hypot(self.selection_se, self.independent_se)

    def values(self) -> dict[str, Any]:
        """For JSON."""
        return {**dataclasses.asdict(self), "luck": self.luck, "luck_se": self.luck_se}


def judge_winner(
    study: SweepStudy, *, parts: UserParts = BUILT_IN, progress: Progress | None = None
) -> Winner:
    """The best trial so far and its independent bounds, which are computed once and kept."""
    trials = study.among(study.load(brief=True).get_trials(deepcopy=False))
    best = best_trial(trials)
    if best is None:
        raise InvalidValueError(
            f"the study {study.folder}",
            got="no finished trial",
            expected="at least one",
            fix=f"run some: scorebed sweep work {study.folder}",
        )
    found = best.user_attrs[RESULT]
    path = study.trials_folder / found["run"]
    kept = _judged(study, best, path, parts, progress or Progress())
    return Winner(
        trial=best.number,
        run=str(path),
        settings=found["settings"],
        candidates=sum(trial.state == TrialState.COMPLETE for trial in trials),
        selection=found["value"],
        selection_se=found["lower_se"],
        nle=found["nle"],
        seconds=found["seconds"],
        **kept,
    )


def _judged(
    study: SweepStudy, trial: FrozenTrial, path: Path, parts: UserParts, progress: Progress
) -> dict[str, Any]:
    file = study.folder / f"winner-{trial.number:05d}.json"
    if not file.exists():
        run = load(path, **parts._asdict())
        bounds = _bounds(run, study, trial.number, progress)
        text = strict_json.dumps(seal.sealed(bounds), indent=2)
        replace_file(file, (text + "\n").encode())
    with explained("reading", file):
        data = file.read_bytes()
    try:
        values: Any = seal.unsealed(strict_json.loads(data))
    except ValueError as error:
        raise InvalidValueError(
            str(file),
            got=f"'{error}'",
            expected="what 'scorebed sweep best' wrote",
            fix="delete it: it is computed again.",
        ) from None
    return {
        key: math.nan if value is None and key != "tight" else value
        for key, value in values.items()
    }


def _bounds(run: Run, study: SweepStudy, number: int, progress: Progress) -> dict[str, Any]:
    """Bounds of the size that the trials were judged by, with a key that no trial has used."""
    key = named(jr.key(study.seed), "winner", number)
    sizes = run.config.evaluation
    progress.begin("winner", 0, 0)
    found = reported_bound(run.config, run.task)(
        run.task,
        run.policy,
        outer=sizes.outer,
        inner=sizes.inner,
        on_group=lambda done, total: progress.update(done, "", total),
        key=named(key, "bounds"),
    )
    progress.end(str(found))
    bounds = BoundsRecord.of(found)
    cost = run.record.bounds.cost_nats or 0.0
    values = {
        "independent": bounds.lower - cost,
        "independent_se": bounds.lower_se,
        "upper": bounds.upper,
        "upper_se": bounds.upper_se,
        "tight": None,
    }
    if run.task.tight_bound is None:
        return values
    progress.begin("winner, tightly", 0, 0)
    tight = tight_bounds(
        run.task,
        run.policy,
        outer=min(TIGHT_OUTER, sizes.outer),
        on_group=lambda done, total: progress.update(done, "", total),
        key=named(key, "tight"),
    )
    progress.end(str(tight))
    names = ("lower", "lower_se", "upper", "upper_se", "outer")
    return {**values, "tight": {name: getattr(tight, name) for name in names}}
