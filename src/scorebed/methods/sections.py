"""Sections of a configuration that several methods share. Nothing here knows of arrays."""

import dataclasses
from collections.abc import Mapping
from typing import Annotated, Any

from scorebed.methods.fields import (
    LARGEST,
    Count,
    Decay,
    NonNegative,
    Positive,
    Rate,
    WeightOrAuto,
    choice,
    whole,
)
from scorebed.methods.settings import PairError, Setting, settings_of

# The settings of `PolicyTraining` that only some schedules use. `gradient.SCHEDULES` makes them.
OF_SCHEDULES: dict[str, tuple[str, ...]] = {
    "constant": (),
    "cosine": ("final_rate",),
    "exponential": ("decay_rate", "decay_every"),
    "staircase": ("decay_rate", "decay_every"),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class PolicyTraining:
    """Stage 2: the training of a policy."""

    steps: Count
    """Number of training steps of one policy."""
    batch: Count
    """Number of simulated experiments per training step."""
    learning_rate: Positive
    """First learning rate of Adam."""
    schedule: Annotated[str, choice(*OF_SCHEDULES)]
    """How the learning rate changes over the steps; a staircase is an exponential decay in jumps.
    """
    decay_rate: Rate = 0.98
    """Factor on the learning rate after every `decay_every` steps; exponential or staircase."""
    decay_every: Count = 1000
    """Steps over which the learning rate falls by `decay_rate`; exponential or staircase."""
    final_rate: NonNegative = 0.0
    """Learning rate at the last step; for the cosine schedule."""
    beta1: Decay = 0.9
    """Adam's decay of the gradient's mean."""
    beta2: Decay = 0.999
    """Adam's decay of the gradient's square."""
    clip: Positive = 1.0
    """Largest norm of a gradient; longer ones are shortened to it."""
    trajectory_clip: NonNegative = 0.0
    """Largest gradient of one trajectory, in medians over its batch; 0 for the unbiased mean."""
    noise_rate: Positive = 1.0
    """Factor on the learning rate of a policy's own noise; for the recurrent policy."""
    ema: Decay = 0.0
    """Decay of the moving average of the parameters that is kept; 0 keeps the last ones."""
    keep: Annotated[str, choice("best", "last")] = "best"
    """The policy that is kept: the best by the estimates while training, or the last one."""
    monitor_every: Count
    """Steps between two estimates of the bound while training."""
    monitor: Annotated[str, choice("contrastive", "importance")] = "contrastive"
    """Kind of those estimates, and of those that choose among restarts: by draws of the prior, or
    by Gaussians at posterior modes.
    """
    monitor_inner: Count
    """Draws of those estimates for every trajectory."""
    halvings: Annotated[int, whole(0, 30)] = 0
    """Times that the worse half of the restarts is stopped on the way; 0 for never."""
    patience: Annotated[int, whole(0, LARGEST)] = 0
    """Steps without a better estimate after which training ends; 0 for all steps."""

    def __post_init__(self) -> None:
        require_falling("final_rate", self)

    @classmethod
    def settings(cls, schedule: object) -> dict[str, Setting]:
        """The keys of the section with a schedule; all of them without one that is known."""
        unused = unused_by(schedule)
        return {key: value for key, value in settings_of(cls).items() if key not in unused}

    def values(self) -> dict[str, Any]:
        """The settings that its schedule uses: those of a configuration."""
        return {key: getattr(self, key) for key in self.settings(self.schedule)}


def unused_by(schedule: object) -> set[str]:
    """The settings of `PolicyTraining` that a schedule leaves unused."""
    if not isinstance(schedule, str) or schedule not in OF_SCHEDULES:
        return set()
    return {key for keys in OF_SCHEDULES.values() for key in keys} - set(OF_SCHEDULES[schedule])


def users_of(key: str) -> list[str]:
    """The schedules that use a setting."""
    return [schedule for schedule, keys in OF_SCHEDULES.items() if key in keys]


def chosen_schedule(values: Mapping[str, Any]) -> Any:
    """The schedule that the values of a configuration name, unchecked; None if they name none."""
    section = values.get("policy_training")
    return section.get("schedule") if isinstance(section, Mapping) else None


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScoreTraining:
    """Stage 1: the training of a score, where its kind is trained."""

    steps: Count
    """Number of training steps of one score network."""
    batch: Count
    """Number of simulated experiments per training step."""
    learning_rate: Positive
    """Peak learning rate of Adam."""
    floor_rate: NonNegative = 1e-5
    """Learning rate at the end of the cosine decay."""
    warmup_share: Decay = 0.001
    """Share of the steps over which the learning rate rises to its peak."""
    clip: Positive
    """Largest norm of a gradient; longer ones are shortened to it."""
    loss: Annotated[str, choice("auto", "marginal", "sliced")] = "auto"
    """Marginal score matching, which regresses on conditional scores, or sliced score matching,
    which needs no likelihood; 'auto': sliced where the task has no density.
    """
    lambda_y: WeightOrAuto = "auto"
    """Weight of the y-residuals relative to the ξ-residuals, both as means over steps and
    coordinates; 'auto': the ratio of their sizes.
    """
    weights: Annotated[str, choice("none", "score", "learned")] = "none"
    """Weights of the residuals by (y, ξ): none, one over the squared size of the score, or learned
    from the residuals.
    """
    bias_penalty: NonNegative = 0.0
    """Weight of the penalty on the score's mean given the designs; 0 for none."""
    ema: Decay = 0.0
    """Decay of the moving average of the parameters that is kept; 0 keeps the last ones."""

    def __post_init__(self) -> None:
        require_falling("floor_rate", self)


def require_falling(last: str, section: Any) -> None:
    """Refuse a learning rate that would end above where it starts."""
    rate, first = getattr(section, last), section.learning_rate
    if rate > first:
        raise PairError(last, "learning_rate", got=rate, limit=first, expected="at most")
