"""VarPost: a transformer learns the posterior, then policies raise the lower bound by it."""

from typing import Annotated, Any, ClassVar

import equinox as eqx
import jax.random as jr

from scorebed.keys import named
from scorebed.methods._densities import (
    PosteriorTraining,
    UpfrontDensity,
    density_optimiser,
    fresh_posterior,
    posterior_maker,
)
from scorebed.methods.base import Job
from scorebed.methods.sections import PolicyTraining
from scorebed.methods.settings import INLINE
from scorebed.training.stage import SingleStage
from scorebed.training.variational import posterior_loss


class VarPostMethod(UpfrontDensity):
    """q(z | y, ξ), a mixture of Gaussians, on a sampler's designs."""

    needs_density: ClassVar[bool] = False
    serves_nuisance: ClassVar[bool] = True
    upfront_stem: ClassVar[str] = "posterior"

    policy_training: PolicyTraining
    network: Annotated[PosteriorTraining, INLINE]

    def upfront(self, job: Job, index: int) -> SingleStage:
        task, sampler, key = job.task, job.sampler, named(job.key, self.upfront_stem, index)
        return SingleStage(
            name=f"{self.upfront_stem}-{index}",
            steps=self.network.steps,
            make=lambda: fresh_posterior(self.network, task, sampler, key=key),
            loss_for=lambda static: posterior_loss(static, task, sampler, batch=self.network.batch),
            optimiser=density_optimiser(self.network, self.network.steps),
            decay=self.network.ema,
            step_nle=self.network.batch * task.horizon,
            key=named(key, "train"),
        )

    def upfront_like(self, job: Job) -> Any:
        return eqx.filter_eval_shape(
            posterior_maker(self.network, job.task, job.sampler), jr.key(0)
        )
