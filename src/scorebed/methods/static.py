"""Static designs, fixed before the experiment, by the gradient of PCE."""

from typing import Any, ClassVar

from jaxtyping import PyTree

from scorebed.keys import named
from scorebed.methods._contrastive import ContrastiveMethod
from scorebed.methods.base import Job, Method
from scorebed.methods.fields import Count
from scorebed.methods.sections import PolicyTraining
from scorebed.tasks.base import Task
from scorebed.training.contrastive import pce_loss
from scorebed.training.fit import Loss
from scorebed.training.policy import static_starts


class StaticMethod(ContrastiveMethod):
    """PCE for designs that do not look at the data; its policy is `static`."""

    serves_discrete: ClassVar[bool] = True
    serves_names: ClassVar[bool] = True
    has_own_policy: ClassVar[bool] = True
    designs_in_words: ClassVar[str] = "designs fixed before the experiment, trained by PCE"
    serves_nuisance: ClassVar[bool] = True

    policy_training: PolicyTraining
    inner: Count = 15
    """Contrastive parameters of every trajectory, M."""

    def loss(self, rest: PyTree, task: Task, *, batch: int, inner: int) -> Loss:
        return pce_loss(rest, task, batch=batch, inner=inner)

    def batch(self, job: Job, learned: Any, name: str, count: int) -> Any:
        del learned
        return static_starts(job.make_policy, job.task, count, key=named(job.key, name, "init"))

    def static_reference(self) -> tuple[Method, str] | None:
        return None
