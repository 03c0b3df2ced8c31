"""How far a study is. Fast with many trials: neither JAX nor a run folder is read."""

import datetime
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from optuna.study import Study as OptunaStudy
from optuna.trial import FrozenTrial, TrialState

from scorebed.sweeps import leases
from scorebed.sweeps.study import RESULT, SweepStudy

RECENT = 20  # finished trials that the rate is over


class OpenTrial(NamedTuple):
    """A trial that is not finished: who has it in hand, and how often it was tried."""

    number: int
    owner: str
    attempts: int
    failures: int
    settings: dict[str, Any]


class SweepStatus(NamedTuple):
    """How far a study is."""

    study: str
    task: str
    trials: int
    finished: int
    pruned: int
    failed: int
    running: tuple[OpenTrial, ...]
    best: dict[str, Any] | None
    """Number, bound, settings and run of the best trial by its own estimate."""
    per_hour: float | None
    """Trials finished per hour, of late."""
    seconds_left: float | None
    errors: dict[int, str]
    """Why trials were given up, by number."""

    @property
    def over(self) -> bool:
        """Whether no trial is left to do."""
        return self.finished + self.pruned + self.failed >= self.trials

    def values(self) -> dict[str, Any]:
        """For JSON."""
        return {**self._asdict(), "running": [each._asdict() for each in self.running]}


def study_status(study: SweepStudy, loaded: OptunaStudy | None = None) -> SweepStatus:
    """How far a study is, from its storage and its leases. A study that was `loaded` before reads
    only what is new.
    """
    trials = study.among((loaded or study.load(brief=True)).get_trials(deepcopy=False))
    count = Counter(trial.state for trial in trials)
    rate = _per_second(trials)
    over = sum(trial.state.is_finished() for trial in trials)
    left = max(0, study.trials - over)
    best = best_trial(trials)
    return SweepStatus(
        study=str(study.folder),
        task=study.task,
        trials=study.trials,
        finished=count[TrialState.COMPLETE],
        pruned=count[TrialState.PRUNED],
        failed=count[TrialState.FAIL],
        running=tuple(_open(study, t) for t in trials if t.state == TrialState.RUNNING),
        best=None if best is None else {"trial": best.number, **best.user_attrs[RESULT]},
        per_hour=None if rate is None else 3600 * rate,
        seconds_left=left / rate if rate else (0.0 if not left else None),
        errors={
            trial.number: str(trial.user_attrs.get(RESULT, {}).get("error", "unknown"))
            for trial in trials
            if trial.state == TrialState.FAIL
        },
    )


def best_trial(trials: Sequence[FrozenTrial]) -> FrozenTrial | None:
    """The finished trial with the highest bound; None if there is none."""
    done = [trial for trial in trials if trial.state == TrialState.COMPLETE and trial.values]
    return max(done, key=lambda trial: trial.values[0], default=None)


def _open(study: SweepStudy, trial: FrozenTrial) -> OpenTrial:
    epoch, content = leases.latest(study.leases_folder, trial.number)
    held = content is not None and content.expires > time.time()
    owner = content.owner if held and content is not None else "nobody"
    failures = content.failures + len(content.deaths) if content else 0
    return OpenTrial(trial.number, owner, epoch, failures, dict(trial.params))


def _per_second(trials: Sequence[FrozenTrial]) -> float | None:
    """Trials per second over those that were finished last; None before there are two."""
    ends = sorted(t.datetime_complete for t in trials if t.datetime_complete is not None)[-RECENT:]
    if len(ends) < 2:
        return None
    span = (ends[-1] - ends[0]) / datetime.timedelta(seconds=1)
    return (len(ends) - 1) / span if span > 0 else None
