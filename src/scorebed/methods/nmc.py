"""NMC: policies by the gradient of nested Monte Carlo, an upper bound."""

from typing import ClassVar

from jaxtyping import PyTree

from scorebed.methods._contrastive import ContrastiveMethod
from scorebed.methods.fields import Count
from scorebed.methods.sections import PolicyTraining
from scorebed.tasks.base import Task
from scorebed.training.contrastive import nmc_loss
from scorebed.training.fit import Loss


class NMCMethod(ContrastiveMethod):
    """Raise sNMC with M = `inner` contrastive parameters; a policy may exploit its slack."""

    serves_discrete: ClassVar[bool] = True
    serves_names: ClassVar[bool] = True
    policy_training: PolicyTraining
    inner: Count = 15
    """Contrastive parameters of every trajectory, M."""

    def loss(self, rest: PyTree, task: Task, *, batch: int, inner: int) -> Loss:
        return nmc_loss(rest, task, batch=batch, inner=inner)
