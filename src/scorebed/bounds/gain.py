"""What policies are watched and chosen by: a lower bound of their EIG, less what their designs
cost.
"""

import dataclasses
from typing import Any

from jaxtyping import PRNGKeyArray

from scorebed.bounds.base import Bound
from scorebed.bounds.design_cost import net_gain
from scorebed.policies.base import Policy
from scorebed.tasks.base import Task


@dataclasses.dataclass(frozen=True)
class Gain:
    """`gain(policy)` in nats. All policies are judged on the same draws: their differences are far
    surer than the gains themselves.
    """

    bound: Bound
    task: Task
    outer: int
    inner: int
    key: PRNGKeyArray

    def nle(self, design_nle: int) -> int:
        """Likelihood evaluations of one call, with a policy that spends `design_nle` on the designs
        of an experiment. The bound has to know its own beforehand: all that training is watched by
        do.
        """
        cost = self.bound.nle_with(design_nle, self.task, self.outer, self.inner)
        assert cost is not None, f"{self.bound.name} is not a bound to watch or choose by"
        return cost

    def __call__(self, policy: Policy) -> float:
        how: dict[str, Any] = {"outer": self.outer, "inner": self.inner, "key": self.key}
        return net_gain(self.bound, self.task, policy, **how)
