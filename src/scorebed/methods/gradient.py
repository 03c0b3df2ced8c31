"""Methods that train a batch of policies by a gradient, and what they share: optimiser, estimates
of the bound, costs of steps, sizes within a budget.
"""

import abc
import dataclasses
from collections.abc import Callable
from typing import Any, TypeVar

import equinox as eqx
import optax
from jaxtyping import PyTree, Scalar

from scorebed.bounds import BOUNDS
from scorebed.bounds.gain import Gain
from scorebed.errors import require
from scorebed.keys import named
from scorebed.methods.base import Job, Method, require_affordable
from scorebed.methods.sections import PolicyTraining
from scorebed.policies.base import Policy
from scorebed.rollout import Noise
from scorebed.tasks.base import Task
from scorebed.training.fit import Gradient
from scorebed.training.policy import (
    faster_noise,
    gradient_by,
    policy_optimiser,
)
from scorebed.training.stage import BatchStage, FixedCost, StepCosts
from scorebed.training.successive_halving import most, rungs, stretched, taken

MONITOR_OUTER = 128
SCHEDULES: dict[str, Callable[[PolicyTraining], optax.Schedule | float]] = {
    "constant": lambda t: t.learning_rate,
    "cosine": lambda t: optax.cosine_decay_schedule(
        t.learning_rate, t.steps, t.final_rate / t.learning_rate
    ),
    "exponential": lambda t: optax.exponential_decay(t.learning_rate, t.decay_every, t.decay_rate),
    "staircase": lambda t: optax.exponential_decay(
        t.learning_rate, t.decay_every, t.decay_rate, staircase=True
    ),
}
# Static designs are parameters of order one: they take larger steps than a network.
STATIC_STEPS, STATIC_BATCH, STATIC_RATE = 300, 256, 0.03

SomeGradientMethod = TypeVar("SomeGradientMethod", bound="GradientMethod")


class GradientMethod(Method):
    """A method by a gradient. It says what the gradient is, and what a step costs."""

    policy_training: eqx.AbstractVar[PolicyTraining]

    @property
    def policy_settings(self) -> PolicyTraining:
        return self.policy_training

    def supports(self, task: Task) -> None:
        Method.supports(self, task)
        require(
            self.policy_training.halvings == 0 or task.has_density,
            "policy_training.halvings",
            got=f"{self.policy_training.halvings}, but {type(task).__name__} has no density to "
            "judge by",
            expected="0",
            fix="leave it out.",
        )

    @abc.abstractmethod
    def gradient(self, job: Job, learned: Any) -> Callable[[PyTree], Gradient]:
        """The gradient of minus the EIG, given what of a policy is not trained."""

    @abc.abstractmethod
    def step_nle(self, job: Job) -> int:
        """Likelihood evaluations of one step of one policy."""

    def costs(self, job: Job, name: str) -> StepCosts:
        """What the steps of the stage `name` cost."""
        del name
        return FixedCost(self.step_nle(job))

    def batch(self, job: Job, learned: Any, name: str, count: int) -> Any:
        """The untrained policies of a stage, with whatever is trained with them."""
        del learned
        return job.make_batch(job.make_policy, job.task, count, key=named(job.key, name, "init"))

    def optimiser(self) -> optax.GradientTransformation:
        """Of the batch."""
        return adam(self.policy_training)

    def train(self, job: Job, learned: Any, name: str, count: int) -> BatchStage | None:
        if not job.trainable:
            return None
        training = self.policy_training
        estimate = monitor(job, training)
        return BatchStage(
            name=name,
            steps=training.steps,
            count=count,
            make=lambda: self.batch(job, learned, name, count),
            gradient_for=lambda rest: self.gradient(job, learned)(rest),
            optimiser=self.optimiser(),
            decay=training.ema,
            policies_of=self.policy_of,
            estimate=estimate,
            estimate_nle=0 if estimate is None else estimate.nle(job.design_nle),
            every=training.monitor_every,
            keep_best=training.keep == "best",
            patience=training.patience,
            halvings=training.halvings,
            costs=self.costs(job, name),
            key=named(job.key, name, "train"),
        )

    def untrained(self, job: Job) -> Policy:
        """A policy without parameters stands for itself."""
        return job.make_policy(job.task, key=named(job.key, "untrained"))

    def untrained_nle(self, job: Job) -> int:
        return job.search_nle

    def static_reference(self) -> tuple[Method, str] | None:
        return with_training(self, static_training(self.policy_training)), "the same method"

    def within(self: SomeGradientMethod, budget: int, job: Job) -> SomeGradientMethod:
        """As many steps as a budget pays for."""
        training = self.policy_training
        if not job.trainable:
            require_affordable(budget, self.nle(job))
            return self
        if training.halvings:
            steps = self._longest_halved(budget, job)
        else:
            each = self.nle(job) // training.steps
            require_affordable(budget, each)
            steps = budget // each
        return longer(self, capped(job, steps, training.steps))

    def with_steps(
        self: SomeGradientMethod, job: Job, upfront: int | None, policies: int
    ) -> SomeGradientMethod:
        del upfront
        training = self.policy_training
        count = max(count for _, count in job.groups(self.parts(job)))
        how = {"halvings": training.halvings, "every": training.monitor_every}
        return longer(self, stretched(policies, count, **how))

    def timed(self: SomeGradientMethod, steps: int, every: int) -> SomeGradientMethod:
        few: dict[str, Any] = {
            "steps": steps,
            "monitor_every": every,
            "patience": 0,
            "halvings": 0,
            "keep": "last",
        }
        return with_training(self, dataclasses.replace(self.policy_training, **few))

    def _longest_halved(self, budget: int, job: Job) -> int:
        """The most steps that fit, where rungs make their cost uneven."""
        counts = [count for _, count in job.groups(self.parts(job)) if count]
        each = self.step_nle(job)
        require_affordable(budget, longer(self, 1).nle(job))
        return most(
            lambda steps: each * sum(taken(ladder(self, steps, n), steps) for n in counts),
            budget,
            at_least=1,
            below=budget // (each * len(counts)) + 2,
        )


class EstimatorMethod(GradientMethod):
    """A method by an estimator of one trajectory: the simplest way to write a method of your own.

    Attributes:
        policy_training: how policies are trained; the section `[policy_training]` of a run.

    Methods:
        estimate: a scalar whose gradient in the policy is that of the EIG, for one trajectory.
        trajectory_nle: likelihood evaluations of one such estimate.

    Example:
        >>> from scorebed.methods.sections import PolicyTraining
        >>> from scorebed.rollout import rollout
        >>> class Contrast(sb.EstimatorMethod):
        ...     policy_training: PolicyTraining
        ...     inner: int = 15
        ...
        ...     def estimate(self, task, policy, theta, noise, *, key):
        ...         one = rollout(task, policy, theta, noise)
        ...         keys = jr.split(key, self.inner)
        ...         others = [task.prior.sample(key=k) for k in keys]
        ...         thetas = jnp.stack([theta, *others])
        ...         each = sb.log_likelihoods(task, thetas, one.ys, one.xis)
        ...         return each[0] - jnp.log(jnp.exp(each).mean())
        ...
        ...     def trajectory_nle(self, task):
        ...         return (self.inner + 1) * task.horizon
        >>> training = PolicyTraining(
        ...     steps=4, batch=8, learning_rate=1e-3, schedule="constant",
        ...     monitor_every=2, monitor_inner=9,
        ... )
        >>> Contrast(training).trajectory_nle(sb.make_task("linear-gaussian"))
        48
    """

    @abc.abstractmethod
    def estimate(self, task: Task, policy: Policy, theta: Any, noise: Noise, *, key: Any) -> Scalar:
        """One trajectory with parameters θ."""

    @abc.abstractmethod
    def trajectory_nle(self, task: Task) -> int:
        """Likelihood evaluations of one call."""

    def gradient(self, job: Job, learned: Any) -> Callable[[PyTree], Gradient]:
        del learned
        batch = self.policy_training.batch
        return gradient_by(job.task, self.estimate, batch=batch, key=job.key)

    def step_nle(self, job: Job) -> int:
        return self.policy_training.batch * (self.trajectory_nle(job.task) + job.design_nle)


def adam(training: PolicyTraining) -> optax.GradientTransformation:
    """The optimiser of a policy."""
    plain = policy_optimiser(
        SCHEDULES[training.schedule](training),
        clip=training.clip,
        beta1=training.beta1,
        beta2=training.beta2,
    )
    if training.noise_rate == 1:
        return plain
    return optax.chain(plain, faster_noise(training.noise_rate))


def monitor(job: Job, training: PolicyTraining) -> Gain | None:
    """The estimates along the way. Without a density none is cheap enough."""
    if not job.task.has_density:
        return None
    return Gain(
        BOUNDS[training.monitor].monitor,
        job.task,
        outer=MONITOR_OUTER,
        inner=training.monitor_inner,
        key=named(job.key, "monitor"),
    )


def static_training(training: PolicyTraining) -> PolicyTraining:
    """The training of static designs to compare with."""
    return dataclasses.replace(
        training,
        steps=min(STATIC_STEPS, 2 * training.steps),
        batch=max(training.batch, min(STATIC_BATCH, 4 * training.batch)),
        learning_rate=STATIC_RATE,
        schedule="cosine",
        trajectory_clip=0.0,
        halvings=0,
    )


def with_training(method: SomeGradientMethod, training: PolicyTraining) -> SomeGradientMethod:
    """The same method with other settings of stage 2."""
    return dataclasses.replace(method, policy_training=training)


def longer(method: SomeGradientMethod, steps: int) -> SomeGradientMethod:
    """The same method with another number of steps."""
    return with_training(method, dataclasses.replace(method.policy_training, steps=steps))


def ladder(method: GradientMethod, steps: int, count: int) -> Any:
    """The rungs of `count` restarts, for another number of steps."""
    training = method.policy_training
    return rungs(steps, count, halvings=training.halvings, every=training.monitor_every)


def capped(job: Job, affordable: int, preset: int) -> int:
    """The steps that a budget buys; no more than the preset has, unless it is to be used up."""
    return min(affordable, preset) if job.capped else affordable
