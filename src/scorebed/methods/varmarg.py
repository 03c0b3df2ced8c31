"""VarMarg: a flow learns the marginal likelihood, then policies raise the upper bound by it."""

from typing import Annotated, Any, ClassVar

import jax.random as jr

from scorebed.densities.flow_marginal import FlowSizes, MarginalDensity, marginal_flow
from scorebed.keys import named
from scorebed.methods._densities import FlowTraining, UpfrontDensity, density_optimiser
from scorebed.methods.base import Job
from scorebed.methods.sections import PolicyTraining
from scorebed.methods.settings import INLINE
from scorebed.training.stage import SingleStage
from scorebed.training.variational import marginal_loss


class VarMargMethod(UpfrontDensity):
    """q(y | ξ) by a masked autoregressive flow."""

    upfront_stem: ClassVar[str] = "marginal"

    policy_training: PolicyTraining
    network: Annotated[FlowTraining, INLINE]

    def upfront(self, job: Job, index: int) -> SingleStage:
        key = named(job.key, self.upfront_stem, index)
        return SingleStage(
            name=f"{self.upfront_stem}-{index}",
            steps=self.network.steps,
            make=lambda: self._flow(job, key),
            loss_for=lambda static: marginal_loss(static, job.task, batch=self.network.batch),
            optimiser=density_optimiser(self.network, self.network.steps),
            decay=self.network.ema,
            step_nle=self.network.batch * job.task.horizon,
            key=named(key, "train"),
        )

    def upfront_like(self, job: Job) -> MarginalDensity:
        """A flow cannot be made from shapes alone: an untrained one."""
        return self._flow(job, jr.key(0))

    def _flow(self, job: Job, key: Any) -> MarginalDensity:
        size = self.network
        sizes = FlowSizes(size.layers, size.width, size.depth, size.bins)
        return marginal_flow(job.task, job.sampler, sizes, key=key)
