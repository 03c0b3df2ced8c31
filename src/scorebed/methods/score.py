"""ScoreBED, the paper's method: learn the marginal score once, then train any policy with it.

stage 1   s ≈ ∇_{y,ξ} log p(y_{1:T} | ξ_{1:T}) by marginal score matching on a sampler's designs
stage 2   ∇_φ I = E[d/dφ log p(y | ξ, θ) − s_y ∂y/∂φ − s_ξ ∂ξ/∂φ]   (Theorem 1)
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import optax
from jaxtyping import PRNGKeyArray, PyTree

from scorebed.errors import UnknownNameError, require
from scorebed.keys import named
from scorebed.methods.base import Job, require_affordable
from scorebed.methods.fields import Count, Name
from scorebed.methods.gradient import GradientMethod
from scorebed.methods.sections import PolicyTraining, ScoreTraining
from scorebed.methods.settings import Setting, check_section, make_section, settings_of
from scorebed.scores import SCORES
from scorebed.scores.base import Score, ScoreKind
from scorebed.scores.residual_scale import ResidualScale, SelfWeighingScore
from scorebed.scores.standardise import standardiser
from scorebed.tasks.base import Task
from scorebed.training.fit import Gradient
from scorebed.training.matching import MarginalMatching, Matching, SlicedMatching
from scorebed.training.policy import gradient_by
from scorebed.training.score import (
    Weights,
    fresh_score,
    mean_weights,
    score_maker,
    score_optimiser,
    score_stage,
    usual_matching,
)
from scorebed.training.stage import Stage

# By the values of score.loss; "auto" is the usual one of the task.
LOSSES: Mapping[str, Matching] = {"marginal": MarginalMatching(), "sliced": SlicedMatching()}

# A score of fewer steps is worse than one of a smaller kind, whose values cost less.
ENOUGH_STEPS = 1000


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScoreSection:
    """The section [score]: a kind with its own settings, and its training if it has any."""

    name: str
    kind: ScoreKind
    training: ScoreTraining | None
    seeds: int = 1

    @staticmethod
    def settings(kind: object) -> dict[str, Setting]:
        """All keys of the section for a kind of score; without one, those that every kind has."""
        names = {
            "kind": Setting(Name, ..., "The kind of score."),
            "seeds": Setting(
                Count,
                1,
                "Number of scores, trained from different seeds; policies are split among them.",
            ),
        }
        if not isinstance(kind, str):
            return names
        if kind not in SCORES:
            raise UnknownNameError("value of score.kind", kind, SCORES)
        training = settings_of(ScoreTraining) if SCORES[kind].trained else {}
        return names | settings_of(SCORES[kind]) | training

    @classmethod
    def read(cls, values: object, known: Sequence[str] = ()) -> "ScoreSection":
        """The section from the values of a configuration."""
        kind = values.get("kind") if isinstance(values, Mapping) else None
        if isinstance(values, Mapping) and not isinstance(kind, str):
            values = {"kind": kind} if "kind" in values else {}  # its other keys depend on it
        checked = check_section(cls.settings(kind), values, "score.", known)
        name = checked["kind"]
        made = SCORES[name]
        own = {key: checked[key] for key in settings_of(made)}
        training = None
        if made.trained:
            settings = {key: checked[key] for key in settings_of(ScoreTraining)}
            training = make_section(ScoreTraining, settings, "score.")
        return cls(name=name, kind=made(**own), training=training, seeds=checked["seeds"])

    def values(self) -> dict[str, Any]:
        """What `read` takes."""
        training = dataclasses.asdict(self.training) if self.training else {}
        own = {name: getattr(self.kind, name) for name in settings_of(type(self.kind))}
        return {"kind": self.name, **own, **training, "seeds": self.seeds}


def chosen_kind(values: Mapping[str, Any]) -> Any:
    """The kind of score that the values of a configuration name, unchecked; None if they name
    none.
    """
    section = values.get("score")
    return section.get("kind") if isinstance(section, Mapping) else None


SomeScoreMethod = TypeVar("SomeScoreMethod", bound="ByScore")


class ByScore(GradientMethod):
    """What ScoreBED and its joint form share: stage 1."""

    needs_density: ClassVar[bool] = False
    serves_nuisance: ClassVar[bool] = True
    upfront_stem: ClassVar[str] = "score"

    score: eqx.AbstractVar[ScoreSection]

    @property
    def score_kind(self) -> str:
        return self.score.name

    @property
    def score_file(self) -> str:
        return f"{self.upfront_stem}-0.safetensors"

    def supports(self, task: Task) -> None:
        GradientMethod.supports(self, task)
        self.score.kind.supports(task)
        require(
            task.has_density or task.constraint is None,
            f"the designs of {type(task).__name__}",
            got="a constraint",
            expected="none: the model has no density",
            fix="leave `constraint` out, write `log_prob`, or use --method varpost.",
        )

    def parts(self, job: Job) -> int:
        del job
        return self.score.seeds

    def upfront(self, job: Job, index: int) -> Stage:
        section, task = self.score, job.task
        key = named(job.key, self.upfront_stem, index)
        name, training = f"{self.upfront_stem}-{index}", section.training
        if training is None:
            return score_stage(
                task,
                job.sampler,
                lambda: fresh_score(section.kind, task, job.sampler, key=key),
                name=name,
                steps=0,
                batch=0,
                optimiser=optax.identity(),
                weights=lambda: Weights(jnp.ones(()), jnp.ones(()), 0.0),
                key=key,
            )

        matching = matching_of(training, task)
        matching.supports(task, job.sampler)

        def make() -> Any:
            score = fresh_score(section.kind, task, job.sampler, key=key)
            if training.weights != "learned" or not matching.has_target:
                return score  # without a target there are no residuals
            standardise = standardiser(task, job.sampler, key=named(key, "standardise"))
            return SelfWeighingScore(
                score, ResidualScale(task, standardise, key=named(key, "weigher"))
            )

        return score_stage(
            task,
            job.sampler,
            make,
            name=name,
            steps=training.steps,
            batch=training.batch,
            optimiser=score_optimiser(
                steps=training.steps,
                learning_rate=training.learning_rate,
                floor_rate=training.floor_rate,
                warmup_share=training.warmup_share,
                clip=training.clip,
            ),
            decay=training.ema,
            penalty=training.bias_penalty,
            weights=lambda: residual_weights(training, job, key=named(key, "weights")),
            matching=matching,
            pilot_nle=pilot_nle(training, task),
            finish=lambda score: score.kept,
            score_nle=section.kind.nle(task),
            key=key,
        )

    def upfront_values(self, table: str) -> dict[str, Any]:
        del table
        return {"score": self.score.values()}

    def upfront_like(self, job: Job) -> Any:
        make = score_maker(self.score.kind, job.task, job.sampler)
        return eqx.filter_eval_shape(make, jr.key(0))

    def with_score_steps(self: SomeScoreMethod, steps: int) -> SomeScoreMethod:
        """The same method with another number of steps of stage 1."""
        training = self.score.training
        if training is None:
            return self
        section = dataclasses.replace(
            self.score, training=dataclasses.replace(training, steps=steps)
        )
        return dataclasses.replace(self, score=section)

    def within(self: SomeScoreMethod, budget: int, job: Job) -> SomeScoreMethod:
        """As many steps of stage 1 as a budget pays for; with fewer than enough of them, a smaller
        kind of score. Steps of stage 2 where there is no stage 1 to pay for.
        """
        if job.taken_over:
            require_affordable(budget, self.nle(job))
            return self
        training = self.score.training
        if training is None:
            return super().within(budget, job)
        step = self.parts(job) * training.batch * (job.task.horizon + self.score.kind.nle(job.task))
        rest = self.nle(job) - training.steps * step
        smaller = self.score.kind.smaller()
        if smaller is not None and budget < rest + min(ENOUGH_STEPS, training.steps) * step:
            section = dataclasses.replace(self.score, kind=smaller)
            return dataclasses.replace(self, score=section).within(budget, job)
        require_affordable(budget, rest + step)
        return self.with_score_steps((budget - rest) // step)

    def with_steps(
        self: SomeScoreMethod, job: Job, upfront: int | None, policies: int
    ) -> SomeScoreMethod:
        found = super().with_steps(job, upfront, policies)
        return found if upfront is None else found.with_score_steps(upfront)

    def timed(self: SomeScoreMethod, steps: int, every: int) -> SomeScoreMethod:
        short = super().timed(steps, every).with_score_steps(steps)
        return dataclasses.replace(short, score=dataclasses.replace(short.score, seeds=1))


class ScoreMethod(ByScore):
    """ScoreBED."""

    score: ScoreSection
    policy_training: PolicyTraining

    @property
    def learns_from_sampler(self) -> bool:
        return self.score.training is not None

    def gradient(self, job: Job, learned: Score) -> Callable[[PyTree], Gradient]:
        training = self.policy_training
        clip = training.trajectory_clip
        return gradient_by(
            job.task, learned, batch=training.batch, trajectory_clip=clip, key=job.key
        )

    def step_nle(self, job: Job) -> int:
        each = job.task.horizon + self.score.kind.nle(job.task)
        return self.policy_training.batch * (each + job.design_nle)


def matching_of(training: ScoreTraining, task: Task) -> Matching:
    """The loss of stage 1."""
    return LOSSES.get(training.loss) or usual_matching(task)


def residual_weights(training: ScoreTraining, job: Job, *, key: PRNGKeyArray) -> Weights:
    """The weights of the residuals of score matching: given, or found by a pilot."""
    relative = 0.0 if training.weights == "none" else 1.0
    if training.lambda_y == "auto":
        matching = matching_of(training, job.task)
        return matching.automatic_weights(job.task, job.sampler, relative=relative, key=key)
    return mean_weights(job.task, training.lambda_y, relative=relative)


def pilot_nle(training: ScoreTraining, task: Task) -> int:
    """Likelihood evaluations of the pilot that weighs the residuals; none if λ_y is given."""
    return matching_of(training, task).pilot_nle(task) if training.lambda_y == "auto" else 0
