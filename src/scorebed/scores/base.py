"""What a score is: (y_{1:T}, ξ_{1:T}) ↦ ∇_{y, ξ} log p(y_{1:T} | ξ_{1:T}), the one intractable part
of the EIG gradient.

It belongs to one task, prior and horizon, and to no policy. A `ScoreKind` holds the settings of an
architecture and makes untrained scores of it.
"""

import abc
import dataclasses
from collections.abc import Sequence
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from scorebed.errors import require
from scorebed.samplers.base import DesignSampler
from scorebed.scores.standardise import Standardiser, standardiser
from scorebed.tasks.base import Task


class ScoreValue(NamedTuple):
    """The two parts of a score, as a `Score` gives them for one experiment.

    Attributes:
        y: the Stein part, ∇_y log p(y | ξ), [T, dy].
        xi: the Fisher part, ∇_ξ log p(y | ξ), [T, dx].

    Example:
        >>> value = score(jnp.zeros((3, 1)), jnp.ones((3, 1)))
        >>> isinstance(value, sb.ScoreValue), value.y.shape
        (True, (3, 1))
    """

    y: Float[Array, "T dy"]
    xi: Float[Array, "T dx"]


class Evaluated(NamedTuple):
    """A score on N histories, and the passes that it took, each of `Score.pass_nle`."""

    value: ScoreValue
    passes: Int[Array, ""]


class Score(eqx.Module):
    """An approximation of the marginal score: (ys, xis) ↦ `ScoreValue` for one experiment.

    It belongs to one task and horizon. `train_score` makes a trained one; inherit from it, and from
    `ScoreKind`, for a score of your own.

    Attributes:
        nle: likelihood evaluations of one call; 0 for a network.
        pass_nle: those of one of the passes that `evaluate` counts.
        rescales_residuals: whether `log_residual_scale` weighs the residuals of its training.
        kept: what remains once training is over.

    Methods:
        __call__: the score of one experiment.
        evaluate: the scores of N experiments, and the passes they took.
        conditional_at: the score of p(y | ξ, ψ), where that was learned too; else None.
        parts: every score that is trained on an experiment.
        log_residual_scale: logs of the mean squared residuals, where they are learned; else None.

    Example:
        >>> class Shrink(sb.Score):
        ...     def __call__(self, ys, xis):
        ...         return sb.ScoreValue(-ys, jnp.zeros_like(xis))
        ...
        ...     @property
        ...     def nle(self):
        ...         return 0
        >>> Shrink()(jnp.ones((3, 1)), jnp.ones((3, 1))).y[0]
        Array([-1.], dtype=float32)
    """

    # Whether `log_residual_scale` weighs the residuals of its training.
    rescales_residuals: ClassVar[bool] = False

    @abc.abstractmethod
    def __call__(self, ys: Float[Array, "T dy"], xis: Float[Array, "T dx"]) -> ScoreValue:
        """s(y, ξ) for one experiment."""

    @property
    @abc.abstractmethod
    def nle(self) -> int:
        """Likelihood evaluations of one call, the T steps included; 0 for a network."""

    @property
    def pass_nle(self) -> int:
        """Likelihood evaluations of one of the passes that `evaluate` counts."""
        return self.nle

    def evaluate(self, ys: Float[Array, "N T dy"], xis: Float[Array, "N T dx"]) -> Evaluated:
        """The score of N histories, and its cost, which may depend on them."""
        return Evaluated(jax.vmap(self)(ys, xis), jnp.asarray(len(ys)))

    def conditional_at(self, theta: Float[Array, " k"]) -> "Score | None":
        """The score of p(y | ξ, ψ) at the ψ of one θ, where it was learned in place of the first
        term of the EIG gradient; else None.
        """
        del theta
        return None

    def parts(self, theta: Float[Array, " k"]) -> "tuple[Score, ...]":
        """Every score that is regressed on an experiment with parameters θ: one, or two."""
        conditional = self.conditional_at(theta)
        return (self,) if conditional is None else (self, conditional)

    def log_residual_scale(
        self, ys: Float[Array, "T dy"], xis: Float[Array, "T dx"]
    ) -> Float[Array, "T 2"] | None:
        """Logs of the mean squared residuals of the y-part and the ξ-part, where these are learned
        (`rescales_residuals`); else None.
        """
        del ys, xis
        return None

    @property
    def kept(self) -> "Score":
        """What remains once training is over."""
        return self


class ScoreKind(eqx.Module):
    """An architecture of scores; its fields are its settings. Inherit from it for a kind of your
    own; `SCORES` holds the built-in ones.

    Attributes:
        trained: whether its scores have to be trained.

    Methods:
        make: an untrained score for a task.
        standardiser: statistics of its inputs under a sampler's designs; by default of all steps.
        nle: likelihood evaluations of one value of such a score.
        supports: refuse a task that it cannot serve; by default none.
        smaller: the same kind at about half the cost; by default None.

    Example:
        >>> class ShrinkKind(sb.ScoreKind):
        ...     def make(self, task, standardise, *, key):
        ...         return Shrink()
        ...
        ...     def nle(self, task):
        ...         return 0
        >>> isinstance(ShrinkKind().make(task, None, key=jr.key(0)), sb.Score)
        True
    """

    # Whether its scores have to be trained; those without parameters are ready as they are made.
    trained: ClassVar[bool] = True

    @abc.abstractmethod
    def make(self, task: Task, standardise: Standardiser, *, key: PRNGKeyArray) -> Score:
        """An untrained score for a task."""

    def standardiser(
        self, task: Task, sampler: DesignSampler, *, key: PRNGKeyArray
    ) -> Standardiser:
        """The statistics by which its inputs become of order one. No NLE."""
        return standardiser(task, sampler, key=key)

    @abc.abstractmethod
    def nle(self, task: Task) -> int:
        """Likelihood evaluations of one value of the score, without those of its regression target;
        of both scores where `make_score` makes a pair.
        """

    def supports(self, task: Task) -> None:
        """Refuse a task that it cannot serve, by an `InvalidValueError` that says why."""
        del task

    def smaller(self) -> "ScoreKind | None":
        """The same kind at about half the likelihood evaluations; None at its smallest, or where
        it takes none.
        """
        return None


def require_sizes(kind: ScoreKind, *, zero: Sequence[str] = ()) -> None:
    """Refuse a kind whose sizes are not whole numbers from 1, or positive numbers, by the key of
    its setting; those named in `zero` may be 0.
    """
    for field in dataclasses.fields(kind):
        value = getattr(kind, field.name)
        least = 0 if field.name in zero or isinstance(value, bool) else 1
        sizes = value if isinstance(value, tuple) else (value,)
        real = isinstance(value, float)
        require(
            all(size > 0 if real else size >= least for size in sizes),
            f"score.{field.name}",
            got=value,
            expected="a positive number" if real else f"a whole number from {least}",
            fix=f"change it by --set score.{field.name}=VALUE.",
        )


def require_even(cloud: int) -> None:
    """Refuse an odd cloud: its points come in opposite pairs."""
    require(
        cloud % 2 == 0,
        "score.cloud",
        got=cloud,
        expected="an even number",
        fix="change it by --set score.cloud=VALUE.",
    )


def require_divisor(heads: int, width: int) -> None:
    """Refuse attention heads that do not divide the width."""
    require(
        width % heads == 0,
        "score.heads",
        got=heads,
        expected=f"a divisor of score.width, {width}",
        fix="change one of the two by --set score.heads=VALUE.",
    )
