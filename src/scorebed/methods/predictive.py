"""Outcomes that are finitely many: learn the predictive distribution once, then train any policy
with it. The discrete twin of `score`.

stage 1   q ≈ p(y_t | ξ_t, h_{t−1}) by cross-entropy on a sampler's designs
stage 2   ∇_φ I = E Σ_t {Σ_y ∇p_t(y) r_t(y) + ∇log p_t(y_t) Σ_{s>t} r_s},   r = log p − log q
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import optax
from jaxtyping import PyTree

from scorebed._jit import jit_once
from scorebed.densities.predictive import Predictive, require_discrete
from scorebed.keys import named
from scorebed.methods._densities import UpfrontDensity, density_optimiser
from scorebed.methods.base import Job
from scorebed.methods.fields import Count, Decay, Flag, NonNegative, Positive
from scorebed.methods.gradient import GradientMethod, adam
from scorebed.methods.sections import PolicyTraining, require_falling
from scorebed.methods.settings import INLINE
from scorebed.policies.base import Policy
from scorebed.tasks.base import Task
from scorebed.training.fit import Gradient
from scorebed.training.policy import gradient_by
from scorebed.training.predictive import (
    PredictiveAndPolicy,
    cross_entropy,
    joint_gradient,
    joint_optimiser,
    policy_nle,
    predictive_maker,
)
from scorebed.training.stage import SingleStage


@dataclasses.dataclass(frozen=True, kw_only=True)
class PredictiveTraining:
    """A predictive distribution, and its training."""

    particles: Count = 32
    """Parameters by whose likelihoods the next outcome is predicted, where states follow from the
    data.
    """
    width: Count = 128
    """Width of the network's hidden layers."""
    steps: Count
    """Number of training steps."""
    batch: Count
    """Number of simulated experiments per training step."""
    learning_rate: Positive = 1e-3
    """Peak learning rate of Adam."""
    floor_rate: NonNegative = 1e-5
    """Learning rate at the end of the cosine decay."""
    warmup_share: Decay = 0.01
    """Share of the steps over which the learning rate rises to its peak."""
    clip: Positive = 10.0
    """Largest norm of a gradient; longer ones are shortened to it."""
    ema: Decay = 0.99
    """Decay of the moving average of the parameters that is kept; 0 keeps the last ones."""
    follow: Flag = True
    """Whether a copy for every policy goes on learning, half of it on that policy's experiments."""

    def __post_init__(self) -> None:
        require_falling("floor_rate", self)


class PredictiveMethod(UpfrontDensity):
    """q(y_t | ξ_t, h_{t−1}) on a sampler's designs."""

    serves_discrete: ClassVar[bool] = True
    needs_discrete: ClassVar[bool] = True
    serves_names: ClassVar[bool] = True
    upfront_stem: ClassVar[str] = "predictive"

    policy_training: PolicyTraining
    network: Annotated[PredictiveTraining, INLINE]

    @property
    def learns_from_sampler(self) -> bool:
        return True

    def supports(self, task: Task) -> None:
        GradientMethod.supports(self, task)
        require_discrete(task, "the method predictive")  # and not too many

    def batch(self, job: Job, learned: Predictive, name: str, count: int) -> Any:
        policies = GradientMethod.batch(self, job, learned, name, count)
        if not self.network.follow:
            return policies
        arrays, rest = eqx.partition(learned, eqx.is_array)
        copies = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (count, *leaf.shape)), arrays)
        return PredictiveAndPolicy(eqx.combine(copies, rest), policies)

    def optimiser(self) -> optax.GradientTransformation:
        of_policy = adam(self.policy_training)
        if not self.network.follow:
            return of_policy
        return joint_optimiser(
            density_optimiser(self.network, self.policy_training.steps), of_policy
        )

    def gradient(self, job: Job, learned: Predictive) -> Callable[[PyTree], Gradient]:
        training = self.policy_training
        how: dict[str, Any] = {"batch": training.batch, "trajectory_clip": training.trajectory_clip}
        if self.network.follow:
            return joint_gradient(job.task, job.sampler, **how)
        return gradient_by(job.task, learned, **how, key=job.key)

    def policy_of(self, trained: Any) -> Policy:
        policy: Policy = trained.policy if self.network.follow else trained
        return policy

    def kept_beside(self, trained: Any) -> Mapping[str, Any]:
        return {"joint-predictive": trained.predictive} if self.network.follow else {}

    def step_nle(self, job: Job) -> int:
        batch, each = self.policy_training.batch, self.upfront_like(job).nle
        policy = policy_nle(job.task, each, batch=batch) + batch * job.design_nle
        if not self.network.follow:
            return policy
        return policy + batch * self._learning_nle(job) + batch // 2 * job.design_nle

    def _learning_nle(self, job: Job) -> int:
        """Of the cross-entropy of one experiment."""
        return job.task.horizon * job.task.outcome_count + int(self.upfront_like(job).nle)

    def upfront(self, job: Job, index: int) -> SingleStage:
        task, sampler, sizes = job.task, job.sampler, self.network
        key = named(job.key, self.upfront_stem, index)
        return SingleStage(
            name=f"{self.upfront_stem}-{index}",
            steps=sizes.steps,
            make=lambda: jit_once(self._maker(job))(key),
            loss_for=lambda static: cross_entropy(static, task, sampler, batch=sizes.batch),
            optimiser=density_optimiser(sizes, sizes.steps),
            decay=sizes.ema,
            step_nle=sizes.batch * self._learning_nle(job),
            key=named(key, "train"),
        )

    def upfront_like(self, job: Job) -> Any:
        return eqx.filter_eval_shape(self._maker(job), jr.key(0))

    def _maker(self, job: Job) -> Callable[..., Predictive]:
        sizes = {"particles": self.network.particles, "width": self.network.width}
        return predictive_maker(job.task, job.sampler, **sizes)
