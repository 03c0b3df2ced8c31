"""PCE: policies by the gradient of the contrastive lower bound (Foster et al., 2020)."""

from typing import ClassVar

from jaxtyping import PyTree

from scorebed.methods._contrastive import ContrastiveMethod
from scorebed.methods.fields import Count
from scorebed.methods.sections import PolicyTraining
from scorebed.tasks.base import Task
from scorebed.training.contrastive import pce_loss
from scorebed.training.fit import Loss


class PCEMethod(ContrastiveMethod):
    """Raise sPCE with M = `inner` contrastive parameters."""

    serves_discrete: ClassVar[bool] = True
    serves_names: ClassVar[bool] = True
    serves_nuisance: ClassVar[bool] = True

    policy_training: PolicyTraining
    inner: Count = 15
    """Contrastive parameters of every trajectory, M."""

    def loss(self, rest: PyTree, task: Task, *, batch: int, inner: int) -> Loss:
        return pce_loss(rest, task, batch=batch, inner=inner)
