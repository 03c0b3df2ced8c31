"""Signs of life of trials in a database: Optuna's heartbeats.

Optuna marks a trial whose heartbeats have stopped as failed, and runs another in its place. Here
the trial goes on: heartbeats, which go by the server's clock, say only that its worker is silent,
and a lease says who takes it up (`leases.py`). A journal file has no heartbeats.
"""

import math
from collections.abc import Collection

from optuna.storages._heartbeat import BaseHeartbeat
from optuna.study import Study as OptunaStudy


class Heartbeats:
    """The heartbeats of a study's trials, if its storage has them."""

    def __init__(self, trials: OptunaStudy):
        storage = trials._storage
        beating = (
            isinstance(storage, BaseHeartbeat) and storage.get_heartbeat_interval() is not None
        )
        self._storage = storage if beating else None
        self._study_id = trials._study_id

    def beat(self, trial_id: int) -> None:
        """Give a sign of life of a trial that this worker has in hand."""
        if self._storage is not None:
            self._storage.record_heartbeat(trial_id)

    def silent(self) -> Collection[int] | None:
        """The ids of trials whose heartbeats have stopped; None if there are none to go by."""
        if self._storage is None:
            return None
        return set(self._storage._get_stale_trial_ids(self._study_id))


def heartbeat_options(lease_seconds: float) -> dict[str, int]:
    """What Optuna is told about heartbeats that are to last as long as leases, in whole seconds."""
    return {
        "heartbeat_interval": max(1, int(lease_seconds / 3)),
        "grace_period": max(1, math.ceil(lease_seconds)),
    }
