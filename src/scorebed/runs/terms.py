"""What a run may spend: a number of likelihood evaluations, or minutes of training."""

from typing import NamedTuple

from scorebed.runs.budget import within
from scorebed.runs.config import RunConfig
from scorebed.runs.pace import within_minutes
from scorebed.runs.user_task import UserTask
from scorebed.tasks.base import Task


class Terms(NamedTuple):
    """One of the two."""

    budget: int | None = None
    minutes: float | None = None

    def apply(self, config: RunConfig, task: Task, own: UserTask | None = None) -> RunConfig:
        """The same run with sizes that use what it is given; `own` is the same task, if it comes
        from a file.
        """
        if self.budget is not None:
            return within(config, task, self.budget)
        return config if self.minutes is None else within_minutes(config, self.minutes, own)

    def __str__(self) -> str:
        return (
            f"{self.minutes:g} minutes"
            if self.budget is None
            else f"{self.budget:,} likelihood evaluations"
        )
