"""The joint form of ScoreBED: after stage 1 the score goes on learning with every policy, half of
it from the policy's own experiments.
"""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import optax
from jaxtyping import PyTree

from scorebed.errors import require
from scorebed.estimators.score import check_additive_noise
from scorebed.keys import named
from scorebed.methods.base import Job, Method
from scorebed.methods.fields import Positive
from scorebed.methods.gradient import GradientMethod, adam, static_training
from scorebed.methods.score import (
    ByScore,
    ScoreMethod,
    ScoreSection,
    matching_of,
    pilot_nle,
    residual_weights,
)
from scorebed.methods.sections import PolicyTraining, ScoreTraining
from scorebed.policies.base import Policy
from scorebed.scores.base import Score
from scorebed.tasks.base import Task
from scorebed.training.fit import Gradient
from scorebed.training.joint import Pair, joint_gradient, joint_optimiser, pairs
from scorebed.training.score import score_optimiser


class JointScoreMethod(ByScore):
    """Every policy trains with a copy of the score, which belongs to it from then on."""

    needs_density: ClassVar[bool] = True

    score: ScoreSection
    policy_training: PolicyTraining
    score_rate: Positive = 3e-4
    """Peak learning rate of a score that goes on learning with its policy."""

    @property
    def score_file(self) -> str:
        return "joint-score-0.safetensors"

    def supports(self, task: Task) -> None:
        ByScore.supports(self, task)
        require(
            self.score.training is not None,
            "score.kind",
            got=self.score.name,
            expected="a score that learns with the policy of method jointscore",
            fix="use --set score.kind=particles.",
        )
        require(
            matching_of(self._score_training, task).has_target,
            "score.loss",
            got=self._score_training.loss,
            expected="one that may learn from the designs of a policy, for method jointscore",
            fix="leave it out, or use --method score.",
        )

    def upfront_nle(self, job: Job) -> int:
        """A score that was taken over is free, but its residuals are weighed again."""
        pilot = pilot_nle(self._score_training, job.task)
        return pilot if job.taken_over else ByScore.upfront_nle(self, job)

    def batch(self, job: Job, learned: Score, name: str, count: int) -> Pair:
        return pairs(learned, GradientMethod.batch(self, job, learned, name, count))

    def optimiser(self) -> optax.GradientTransformation:
        slow = score_optimiser(
            steps=self.policy_training.steps,
            learning_rate=self.score_rate,
            clip=self._score_training.clip,
            floor_rate=0.0,
        )
        return joint_optimiser(slow, adam(self.policy_training))

    def gradient(self, job: Job, learned: Score) -> Callable[[PyTree], Gradient]:
        del learned
        check_additive_noise(job.task, key=named(job.key, "check"))
        training = self.policy_training
        weights = residual_weights(
            self._score_training, job, key=named(job.key, self.upfront_stem, 0, "weights")
        )
        return lambda rest: joint_gradient(
            rest,
            job.task,
            job.sampler,
            weights,
            batch=Pair(self._score_training.batch, training.batch),
            trajectory_clip=training.trajectory_clip,
        )

    def step_nle(self, job: Job) -> int:
        """The trajectories of the policy, and those that its score learns from."""
        each = job.task.horizon + self.score.kind.nle(job.task)
        own, learned_from = self.policy_training.batch, self._score_training.batch
        return (own + learned_from) * each + (own + learned_from // 2) * job.design_nle

    def policy_of(self, trained: Any) -> Policy:
        policy: Policy = trained.policy
        return policy

    def kept_beside(self, trained: Pair) -> Mapping[str, Any]:
        return {"joint-score": trained.score}

    def static_reference(self) -> tuple[Method, str] | None:
        plain = ScoreMethod(score=self.score, policy_training=static_training(self.policy_training))
        return plain, "the score that the policies started with"

    @property
    def _score_training(self) -> ScoreTraining:
        assert self.score.training is not None, "supports() refuses kinds that do not learn"
        return self.score.training
