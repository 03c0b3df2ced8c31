"""JointVarPost: a posterior and its policy raise one lower bound together, on the policy's own
experiments; nothing is shared between policies.
"""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar

import equinox as eqx
import jax.random as jr
import optax
from jaxtyping import PyTree

from scorebed._jit import jit_once
from scorebed.keys import named
from scorebed.methods._densities import PosteriorSizes, density_optimiser, posterior_maker
from scorebed.methods.base import Job
from scorebed.methods.gradient import GradientMethod, adam
from scorebed.methods.sections import PolicyTraining
from scorebed.methods.settings import INLINE
from scorebed.policies.base import Policy
from scorebed.training.fit import Gradient, gradient_of
from scorebed.training.policy import fresh_policies
from scorebed.training.variational import (
    PosteriorAndPolicy,
    joint_posterior_loss,
    joint_posterior_optimiser,
)


class JointVarPostMethod(GradientMethod):
    """One batch and one backward pass serve posterior and policy."""

    needs_density: ClassVar[bool] = False
    serves_nuisance: ClassVar[bool] = True

    policy_training: PolicyTraining
    network: Annotated[PosteriorSizes, INLINE]

    def batch(self, job: Job, learned: Any, name: str, count: int) -> PosteriorAndPolicy:
        del learned
        key = named(job.key, name, "init")
        make = eqx.filter_vmap(posterior_maker(self.network, job.task, job.sampler))
        posteriors = jit_once(make)(jr.split(named(key, "posterior"), count))
        policies = fresh_policies(job.make_policy, job.task, count, key=key)
        return PosteriorAndPolicy(posteriors, policies)

    def optimiser(self) -> optax.GradientTransformation:
        posterior = density_optimiser(self.network, self.policy_training.steps)
        return joint_posterior_optimiser(posterior, adam(self.policy_training))

    def gradient(self, job: Job, learned: Any) -> Callable[[PyTree], Gradient]:
        del learned
        batch = self.policy_training.batch
        return lambda rest: gradient_of(joint_posterior_loss(rest, job.task, batch=batch))

    def step_nle(self, job: Job) -> int:
        """No likelihood is evaluated; every simulated outcome is charged."""
        return self.policy_training.batch * (job.task.horizon + job.design_nle)

    def policy_of(self, trained: Any) -> Policy:
        policy: Policy = trained.policy
        return policy

    def kept_beside(self, trained: PosteriorAndPolicy) -> Mapping[str, Any]:
        return {"joint-posterior": trained.posterior}
