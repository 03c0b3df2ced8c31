"""Successive halving of trials, as a pruner of Optuna's.

The rungs are those of `training.successive_halving`, of as many restarts as the study has trials. A
trial reports its best bound at the end of each rung, by the rung's number, and goes on if it is in
the better half of those that have come as far. Trials come one after another: the first ones of a
rung meet no others, and go on.
"""

import math

from optuna.pruners import BasePruner
from optuna.study import Study as OptunaStudy
from optuna.trial import FrozenTrial

from scorebed.training.successive_halving import rungs

ENOUGH = 4  # trials at a rung before any is stopped there


class HalvingPruner(BasePruner):
    """Stops a trial that is in the worse half at its last rung."""

    def prune(self, study: OptunaStudy, trial: FrozenTrial) -> bool:
        rung = trial.last_step
        if rung is None:
            return False
        value = trial.intermediate_values[rung]
        others = [
            each.intermediate_values[rung]
            for each in study.get_trials(deepcopy=False)
            if rung in each.intermediate_values and each.number != trial.number
        ]
        if len(others) + 1 < ENOUGH:
            return False
        better = sum(not other <= value for other in others)  # a bound that is NaN is no worse
        return math.isnan(value) or better >= -(-(len(others) + 1) // 2)


def rung_ends(steps: int, trials: int, *, halvings: int, every: int) -> list[int]:
    """The steps after which a trial is looked at."""
    ladder = rungs(steps, trials, halvings=halvings, every=every)
    return [rung.end for rung in ladder[:-1]]
