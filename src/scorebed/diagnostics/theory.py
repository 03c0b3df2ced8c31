"""The paper's theory about a score, measured: the bound on the error of its gradient by its own
(`error_bound`), and what its loss consists of (`decomposition`).

Neither decides a verdict: the bound holds for any direction of the error and is far above what the
gradient really misses, and the loss says how well the score is learned, not what that is good for.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from jaxtyping import PRNGKeyArray

from scorebed.diagnostics.decomposition import LossParts, MSMDecomposition, loss_decomposition
from scorebed.diagnostics.error_bound import ErrorBound, error_bound
from scorebed.keys import named
from scorebed.policies.base import Policy
from scorebed.scores.base import Score
from scorebed.scores.reference import Truth
from scorebed.tasks.base import Task


class Theory(NamedTuple):
    """The bound at a policy, and the loss by whose designs are used; `nle` by stage."""

    bound: ErrorBound
    losses: Mapping[str, MSMDecomposition]
    nle: Mapping[str, int]

    def values(self) -> dict[str, Any]:
        """In plain values."""
        return {
            "error_bound": self.bound.values(),
            "loss": {
                name: {"y": _values(each.y), "xi": _values(each.xi)}
                for name, each in self.losses.items()
            },
        }


def measured_theory(
    task: Task,
    score: Score,
    truth: Truth,
    policy: Policy,
    designs: Mapping[str, Policy],
    *,
    outer: int,
    on_group: Callable[[str, int, int], None],
    key: PRNGKeyArray,
) -> Theory:
    """The bound at `policy` and the loss on each kind of `designs`, from `outer` trajectories each:
    one call of the truth for each of the first, two for each of the others.
    """

    def watched(stage: str) -> Callable[[int, int], None]:
        return lambda done, total: on_group(stage, done, total)

    stage = "error-bound"
    bound = error_bound(
        task, score, truth, policy, outer=outer, on_group=watched(stage), key=named(key, stage)
    )
    spent, losses = {stage: bound.nle}, {}
    for name, each in designs.items():
        stage = f"loss-{name}"
        losses[name] = loss_decomposition(
            task, score, truth, each, outer=outer, on_group=watched(stage), key=named(key, stage)
        )
        spent[stage] = losses[name].nle
    return Theory(bound, losses, spent)


def _values(parts: LossParts) -> dict[str, float]:
    found = {}
    for name, estimate in parts._asdict().items():
        found[name], found[f"{name}_se"] = estimate.value, estimate.se
    return found
