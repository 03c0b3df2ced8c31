"""A worker: takes trials up until there are none left, or it is told to stop.

Workers hold nothing that others need. What a worker has begun, and left, another takes up from its
last checkpoint, once its lease has expired.
"""

import contextlib
import time
import warnings
from collections.abc import Callable, Collection
from typing import Any, TypeVar

import optuna
from optuna.study import Study as OptunaStudy
from optuna.trial import FrozenTrial, Trial, TrialState

from scorebed.errors import DiskFullError
from scorebed.runs.stage import Progress
from scorebed.runs.user_parts import BUILT_IN, UserParts
from scorebed.sweeps import leases
from scorebed.sweeps.away import LONGEST_PAUSE, is_away, is_database_away, patiently
from scorebed.sweeps.creation import TrialPlanner
from scorebed.sweeps.halving import HalvingPruner
from scorebed.sweeps.heartbeats import Heartbeats
from scorebed.sweeps.journal import held, lock_beside
from scorebed.sweeps.leases import Lease, LeaseFile, LeaseLostError
from scorebed.sweeps.searches import find_search
from scorebed.sweeps.study import RESULT, SweepStudy, worker_name
from scorebed.sweeps.threads import fix_threads
from scorebed.sweeps.trial import (
    LosingTrialError,
    carry_out,
    lines_of_metrics,
    remove_others,
)

TRIES = 3
LOOK_AGAIN = 2.0  # seconds between two looks at trials that other workers have in hand
ERROR = "error"

Answer = TypeVar("Answer")


class Worker:
    """One worker of a study."""

    def __init__(
        self,
        study: SweepStudy,
        *,
        parts: UserParts = BUILT_IN,
        progress: Progress | None = None,
        lease_seconds: float = leases.SECONDS,
        owner: str = "",
    ):
        fix_threads()
        study.check_files()
        self.study, self.progress = study, progress or Progress()
        self.owner, self.lease_seconds = owner or worker_name(), lease_seconds
        self.planner = TrialPlanner(study, parts)
        self.trials = study.load(lease_seconds=lease_seconds)
        self.trials.pruner = HalvingPruner()
        self.hearts = Heartbeats(self.trials)

    def work(self, *, at_most: int | None = None) -> int:
        """Carry trials out until none is left, or this worker has ended `at_most`; how many it has
        ended. While others have the last ones in hand it waits, to take up what they may leave;
        while the storage or the disk of the study is away it waits as well.
        """
        ended = 0
        while at_most is None or ended < at_most:
            try:
                lease = self._take_up() or self._begin()
                if lease is not None:
                    ended += self._carry_out(lease)
                elif self._all_finished():
                    break
                else:
                    time.sleep(min(LOOK_AGAIN, self.lease_seconds / 3))
            except Exception as error:
                if self.study.there and not is_away(error):
                    raise
                self._wait_for_study(error)
        return ended

    def _take_up(self) -> Lease | None:
        """A trial that was begun and that nobody has in hand."""
        silent: Collection[int] | None = None
        for trial in self._get(TrialState.RUNNING):
            epoch, content = leases.latest(self.study.leases_folder, trial.number)
            if not leases.is_free(content):
                continue
            # Both signs of life have to have stopped: a database that was away has no heartbeats.
            if content is not None and content.expires:
                silent = self._ask(self.hearts.silent) if silent is None else silent
                if silent is not None and trial._trial_id not in silent:
                    continue
            lease = self._claim(trial, epoch, content)
            if lease is not None:
                return lease
        return None

    def _claim(self, trial: FrozenTrial, epoch: int, content: LeaseFile | None) -> Lease | None:
        number = trial.number
        failures, reached = 0, 0
        errors: tuple[str, ...] = ()
        deaths: tuple[int, ...] = ()
        if content is not None:
            _, _, failures, reached, errors, deaths = content
            come = lines_of_metrics(self.study.trials_folder, number, epoch)
            # A worker that died without getting further than those before may have died of the
            # trial.
            if content.expires and come <= reached:
                deaths, errors = (*deaths, epoch), (*errors, f"{content.owner} died")
            reached = max(reached, come)
        # Before the lease: the heartbeats of the owner before are no reason to take it again.
        self._ask(lambda: self.hearts.beat(trial._trial_id))
        lease = leases.claim(
            self.study.leases_folder,
            number,
            epoch + 1,
            self.owner,
            failures=failures,
            reached=reached,
            errors=errors,
            deaths=deaths,
            seconds=self.lease_seconds,
        )
        if lease is None:
            return None
        # It may have been finished after it was looked at, and its leases removed.
        if self._get_one(number).state != TrialState.RUNNING:
            lease.end()
            return None
        if failures + lease.deaths >= TRIES:
            self._give_up(lease, errors)
            return None
        return lease

    def _begin(self) -> Lease | None:
        """A new trial, if there are to be more; under a lock, so that there is none too many."""
        if self._all_begun():
            return None
        with held(lock_beside(self.study.folder / "ask")):
            if self._all_begun():
                return None
            self._search(len(self._all()))
            with warnings.catch_warnings():  # of heartbeats without `optimize`: ours are our own
                warnings.simplefilter("ignore", UserWarning)
                number = self.trials.ask().number
        if number >= self.study.trials:  # this worker slept, and its lock was taken from it
            self._ask(lambda: self.trials.tell(number, state=TrialState.FAIL))
            return None
        return self._claim(self._get_one(number), 0, None)

    def _carry_out(self, lease: Lease) -> bool:
        """Carry a trial out under its lease; whether it is finished."""
        self._search(lease.number)
        trial = Trial(self.trials, self._get_one(lease.number)._trial_id)
        try:
            with lease.renewed(lambda: self.hearts.beat(trial._trial_id)):
                try:
                    settings = self._ask(
                        lambda: self.planner.space.suggest(trial, self.planner.used)
                    )
                    found = carry_out(self.planner, trial, settings, lease, progress=self.progress)
                    self._tell(lease, TrialState.COMPLETE, found)
                except LosingTrialError:
                    self._tell(lease, TrialState.PRUNED, {})
        except LeaseLostError as lost:
            self.progress.end(str(lost))
            lease.stand_down()
            return False
        except (KeyboardInterrupt, DiskFullError):
            with contextlib.suppress(Exception):  # it expires by itself
                lease.give_back()
            raise
        except Exception as error:
            # A file that is not there, on a disk that is, is the trial's own fault.
            away = is_database_away(error) or not self.study.there
            if away:
                self._wait_for_study(error)
            if lease.lost:  # its folder may have been removed by whoever finished it
                lease.stand_down()
                return False
            if away:
                lease.give_back()
                return False
            return self._failed(lease, error)
        return True

    def _failed(self, lease: Lease, error: Exception) -> bool:
        """Give a trial back that failed; whether it was for the last time."""
        line = f"{type(error).__name__}: {' '.join(str(error).split())}"[:500]
        self.progress.begin(f"trial {lease.number}", 0, 0)
        self.progress.end(f"failed: {line}")
        if lease.fail(line) < TRIES:
            return False
        self._give_up(lease, (*lease.content.errors, line))
        return True

    def _give_up(self, lease: Lease, errors: tuple[str, ...]) -> None:
        with contextlib.suppress(LeaseLostError):
            self._tell(lease, TrialState.FAIL, {ERROR: errors[-1] if errors else "unknown"})

    def _tell(self, lease: Lease, state: TrialState, found: dict[str, Any]) -> None:
        """Store what a trial came to; then its leases, and the folders of other attempts, can
        go. The same trial told twice has the same result, and the first one stays.
        """

        def tell() -> None:
            lease.check()
            trial = self._get_one(lease.number)
            if trial.state.is_finished():
                return
            with contextlib.suppress(optuna.exceptions.UpdateFinishedTrialError):
                if found:
                    storage = self.trials._storage
                    storage.set_trial_user_attr(trial._trial_id, RESULT, found)
                self.trials.tell(lease.number, found.get("value"), state, skip_if_finished=True)

        self._ask(tell)
        # Of two that told at once, the run of the one whose result was stored stays.
        kept = self._get_one(lease.number).user_attrs.get(RESULT, {}).get("run")
        lease.end()
        remove_others(self.study.trials_folder, lease, kept)

    def _search(self, number: int) -> None:
        make = find_search(self.study.sampler)
        self.trials.sampler = make(self.planner.space, self.study.seed, number)

    def _all(self) -> list[FrozenTrial]:
        return self._ask(lambda: self.trials.get_trials(deepcopy=False))

    def _get(self, *states: TrialState) -> list[FrozenTrial]:
        return [trial for trial in self.study.among(self._all()) if trial.state in states]

    def _get_one(self, number: int) -> FrozenTrial:
        return self._all()[number]

    def _all_begun(self) -> bool:
        return len(self._all()) >= self.study.trials

    def _all_finished(self) -> bool:
        trials = self.study.among(self._all())
        return len(trials) >= self.study.trials and all(t.state.is_finished() for t in trials)

    def _ask(self, call: Callable[[], Answer]) -> Answer:
        return patiently(call, self._say)

    def _wait_for_study(self, error: Exception) -> None:
        """Wait until the study's disk and storage are back."""
        self._say(str(error))
        pause = 1.0
        while True:
            time.sleep(pause)
            if self.study.there:
                break
            pause = min(2 * pause, LONGEST_PAUSE)
        self._all()

    def _say(self, error: str) -> None:
        self.progress.end(f"waiting for the storage: {' '.join(error.split())[:200]}")


def finished(trials: OptunaStudy) -> list[FrozenTrial]:
    """Trials with a result, in order."""
    return trials.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
