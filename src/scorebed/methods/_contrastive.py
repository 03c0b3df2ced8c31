"""What PCE, NMC and static designs share: M contrastive parameters, which a budget pays for."""

import abc
import dataclasses
from collections.abc import Callable
from typing import Any, TypeVar

import equinox as eqx
from jaxtyping import PyTree

from scorebed.methods.base import Job, require_affordable
from scorebed.methods.gradient import GradientMethod
from scorebed.tasks.base import Task
from scorebed.training.contrastive import contrastive_terms
from scorebed.training.fit import Gradient, Loss, gradient_of

SomeContrastive = TypeVar("SomeContrastive", bound="ContrastiveMethod")


class ContrastiveMethod(GradientMethod):
    """A method by an estimate with `inner` contrastive parameters for every trajectory."""

    inner: eqx.AbstractVar[int]

    @abc.abstractmethod
    def loss(self, rest: PyTree, task: Task, *, batch: int, inner: int) -> Loss:
        """Minus the estimate, averaged over a batch."""

    def gradient(self, job: Job, learned: Any) -> Callable[[PyTree], Gradient]:
        del learned
        sizes = {"batch": self.policy_training.batch, "inner": self.inner}
        return lambda rest: gradient_of(self.loss(rest, job.task, **sizes))

    def step_nle(self, job: Job) -> int:
        each = contrastive_terms(job.task, self.inner) * job.task.horizon
        return self.policy_training.batch * (each + job.design_nle)

    def within(self: SomeContrastive, budget: int, job: Job) -> SomeContrastive:
        """As many contrastive parameters as a budget pays for, as in the paper."""
        least = dataclasses.replace(self, inner=1).nle(job)
        each = dataclasses.replace(self, inner=2).nle(job) - least
        require_affordable(budget, least)
        return dataclasses.replace(self, inner=1 + (budget - least) // each)
