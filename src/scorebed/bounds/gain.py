"""What policies are watched and chosen by: a lower bound of their EIG, less what their designs cost."""

import dataclasses
from collections.abc import Callable

from jaxtyping import PRNGKeyArray

from scorebed.bounds.contrastive import Bounds
from scorebed.bounds.design_cost import expected_cost
from scorebed.policies.base import Policy
from scorebed.tasks.base import Task


@dataclasses.dataclass(frozen=True)
class Gain:
    """`gain(policy)` in nats. All policies are judged on the same draws: their differences are far
    surer than the gains themselves.
    """

    bound: Callable[..., Bounds]
    task: Task
    outer: int
    inner: int
    key: PRNGKeyArray

    def __call__(self, policy: Policy) -> float:
        how = {"outer": self.outer, "inner": self.inner, "key": self.key}
        found = self.bound(self.task, policy, **how)
        cost = expected_cost(self.task, policy, outer=self.outer, key=self.key)
        return found.lower - cost.nats
