"""A score that trains together with the weights of its loss.

Some steps can be predicted well and some hardly at all: next to a source the conditional scores of
location finding scatter by orders of magnitude. `ResidualScale` learns how large the squared
residuals are at (y, ξ); dividing by that leaves the minimiser where it is and lets every step
count. It is thrown away after training."""

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from scorebed.nets.linear import Linear
from scorebed.scores.base import Score, ScoreValue
from scorebed.scores.particles import USE_TRANSFORMER, StepEncoder
from scorebed.scores.standardise import Standardiser
from scorebed.tasks.base import Task, require_data_states

LARGEST = 15.0  # of |ℓ|: a factor of three million either way


class ResidualScale(eqx.Module):
    """ℓ(y, ξ): the logs of the mean squared residuals of the y-part and of the ξ-part, step by
    step.
    """

    task: Task
    encoder: StepEncoder
    head: Linear

    def __init__(
        self, task: Task, standardise: Standardiser, *, width: int = 64, key: PRNGKeyArray
    ):
        key_encoder, key_head = jr.split(key)
        self.task = require_data_states(task, "learned weights", fix=USE_TRANSFORMER)
        self.encoder = StepEncoder(
            task, standardise, width, features=32, sigma=0.3, key=key_encoder
        )
        self.head = Linear(width, 2, key=key_head)

    def __call__(self, ys: Float[Array, "T dy"], xis: Float[Array, "T dx"]) -> Float[Array, "T 2"]:
        return LARGEST * jnp.tanh(self.head(self.encoder(self.task, ys, xis)) / LARGEST)


class SelfWeighingScore(Score):
    """A score and the scale of its residuals, trained together; its value is the score's."""

    rescales_residuals: ClassVar[bool] = True

    score: Score
    weigher: ResidualScale

    def __call__(self, ys: Float[Array, "T dy"], xis: Float[Array, "T dx"]) -> ScoreValue:
        return self.score(ys, xis)

    def conditional_at(self, theta: Float[Array, " k"]) -> Score | None:
        return self.score.conditional_at(theta)

    def log_residual_scale(
        self, ys: Float[Array, "T dy"], xis: Float[Array, "T dx"]
    ) -> Float[Array, "T 2"]:
        return self.weigher(ys, xis)

    @property
    def kept(self) -> Score:
        return self.score

    @property
    def nle(self) -> int:
        return self.score.nle
