"""Static designs, fixed before the experiment, by the gradient of PCE."""

from typing import ClassVar

from jaxtyping import PyTree

from scorebed.methods._contrastive import ContrastiveMethod
from scorebed.methods.base import Method
from scorebed.methods.fields import Count
from scorebed.methods.sections import PolicyTraining
from scorebed.tasks.base import Task
from scorebed.training.contrastive import pce_loss
from scorebed.training.fit import Loss


class StaticMethod(ContrastiveMethod):
    """PCE for designs that do not look at the data; its policy is `static`."""

    has_own_policy: ClassVar[bool] = True
    designs_in_words: ClassVar[str] = "designs fixed before the experiment, trained by PCE"
    serves_nuisance: ClassVar[bool] = True

    policy_training: PolicyTraining
    inner: Count = 15
    """Contrastive parameters of every trajectory, M."""

    def loss(self, rest: PyTree, task: Task, *, batch: int, inner: int) -> Loss:
        return pce_loss(rest, task, batch=batch, inner=inner)

    def static_reference(self) -> tuple[Method, str] | None:
        return None
