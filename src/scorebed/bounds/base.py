"""What a bound of the expected information gain is: a lower and an upper one, and an object that
finds them.
"""

import abc
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar, TypeAlias

import equinox as eqx
from jaxtyping import PRNGKeyArray

from scorebed.bounds.groups import GroupSums
from scorebed.errors import NoDensityError, require
from scorebed.policies.base import Policy
from scorebed.tasks.base import Task

if TYPE_CHECKING:
    from scorebed.bounds.grouped import Grouped

SATURATED = 0.05  # share of saturated trajectories above which the lower bound is loose

# (groups done, groups in all)
OnGroup: TypeAlias = Callable[[int, int], None]


def silent(done: int, total: int) -> None:
    """No report of progress."""
    del done, total


class Bounds(eqx.Module):
    """A lower and an upper bound in nats, with standard errors over groups that share no
    contrastive draws. Printed, it is a sentence that also says when the lower bound is saturated.

    Without a density (`bounds/posterior.py`) there are no inner draws, no ceiling and no upper
    bound, which is then NaN.

    Attributes:
        lower: the lower bound.
        lower_se: its standard error.
        upper: the upper bound.
        upper_se: its standard error.
        outer: number of trajectories, N.
        inner: draws or particles per trajectory, M.
        ceiling: the largest value that the lower bound can take: log(M+1) if the draws are from
            the prior, and more by what a better proposal has learned (`bounds/importance.py`).
        saturated: share of the trajectories at which the lower bound says little but its ceiling.
        nle: likelihood evaluations spent.
        groups: sums over groups of trajectories that share no draws, for paired differences; None
            of a bound that keeps none.

    Example:
        >>> task = sb.make_task("linear-gaussian")
        >>> policy = sb.make_policy("static", task, key=jr.key(0))
        >>> found = sb.eig_bounds(task, policy, outer=32, inner=100, key=jr.key(1))
        >>> isinstance(found, sb.Bounds), found.nle
        (True, 9696)
    """

    lower: float
    lower_se: float
    upper: float
    upper_se: float
    outer: int
    inner: int
    ceiling: float
    saturated: float
    nle: int
    groups: GroupSums | None = None

    def __str__(self) -> str:
        lower = f"{self.lower:.3f} ± {self.lower_se:.3f} ≤ EIG"
        if math.isnan(self.upper) and self.inner == 0:
            return f"{lower} nats; there is no upper bound without a density"
        text = f"{lower} ≤ {self.upper:.3f} ± {self.upper_se:.3f} nats"
        if self.saturated <= SATURATED:
            return text
        of_prior = self.ceiling == math.log(self.inner + 1)
        limit = f"log(M+1) = {self.ceiling:.2f}" if of_prior else f"{self.ceiling:.2f}"
        return (
            f"{text}; {self.saturated:.0%} of the trajectories are saturated: the lower bound "
            f"cannot exceed {limit}; use more inner samples"
            + (" or tight_bounds" if of_prior else "")
        )


class Bound(eqx.Module):
    """A way to bound the EIG of a policy. Its fields are its settings, among them the numbers of
    trajectories and of draws that it takes where a call gives none. Inherit from it for a bound of
    your own, or take one from `make_bound`.

    Attributes:
        name: its name in `BOUNDS`.
        monitor: the version of it that is cheap enough to follow a training by.

    Methods:
        __call__: the bounds of a task and a policy.
        supports: refuse a task that it is not for; by default none.
        nle: the likelihood evaluations of a call, if they are known beforehand, without those of
            the policy's own designs.
        experiments: how many experiments of the policy a call simulates; by default `outer`.
        nle_with: the likelihood evaluations of a call in all, for a policy whose designs take some.
        for_task: the bound that is used for a task; by default this one.
        grouped: the same bounds as groups that several processes may share; by default None.

    Example:
        >>> class Fewer(sb.Bound):
        ...     name = "fewer"
        ...
        ...     def __call__(self, task, policy, *, outer=32, inner=100, on_group=None, key):
        ...         return sb.eig_bounds(task, policy, outer=outer, inner=inner, key=key)
        >>> Fewer()(task, policy, key=jr.key(1)).inner
        100
    """

    name: ClassVar[str]

    @abc.abstractmethod
    def __call__(
        self,
        task: Task,
        policy: Policy,
        *,
        outer: int | None = None,
        inner: int | None = None,
        on_group: OnGroup = silent,
        key: PRNGKeyArray,
    ) -> Bounds:
        """Bounds from `outer` trajectories with `inner` draws each, on the draws of `key`."""

    def supports(self, task: Task) -> None:
        """Refuse a task that it is not for, by an `InvalidValueError` that says why."""
        del task

    def nle(self, task: Task, outer: int, inner: int) -> int | None:
        """Likelihood evaluations of a call; None where only the call itself knows. A policy's own,
        for its designs, are not among them.
        """
        del task, outer, inner
        return None

    def experiments(self, outer: int) -> int:
        """Experiments of the policy that a call simulates."""
        return outer

    def nle_with(self, design_nle: int, task: Task, outer: int, inner: int) -> int | None:
        """`nle`, and those of a policy that spends `design_nle` on the designs of one experiment
        (`Policy.design_nle`).
        """
        cost = self.nle(task, outer, inner)
        return None if cost is None else cost + self.experiments(outer) * design_nle

    def for_task(self, task: Task) -> "Bound":
        """The bound that is used for a task: this one, unless it stands for a choice."""
        del task
        return self

    def grouped(
        self, task: Task, *, outer: int | None = None, inner: int | None = None
    ) -> "Grouped | None":
        """The same bounds as groups that several processes may share; None where they cannot be
        cut.
        """
        del task, outer, inner
        return None

    @property
    def monitor(self) -> "Bound":
        """The version of it that is cheap enough to follow a training by."""
        return self


def size(given: int | None, usual: int) -> int:
    """A size of a call, or the bound's where none is given."""
    return usual if given is None else given


def require_density(task: Task, what: str) -> None:
    """Refuse a model without a density."""
    if not task.has_density:
        raise NoDensityError(
            f"{what} of {type(task).__name__}, got a model without a density, expected one with "
            "`log_prob`. Fix: use the posterior bound, which needs none, or write `log_prob`."
        )


def require_sizes(outer: int, inner: int, *, least_inner: int, usual: tuple[int, int]) -> None:
    """Refuse a bound without a standard error, or without a marginal."""
    require(
        outer >= 2 and inner >= least_inner,
        "the size of a bound",
        got=f"outer={outer}, inner={inner}",
        expected=f"outer samples from 2 and inner ones from {least_inner}",
        fix=f"{usual[0]} and {usual[1]} are usual.",
    )
