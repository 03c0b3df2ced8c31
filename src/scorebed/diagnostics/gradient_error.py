"""The bias and variance of a policy gradient, and its mean squared error at any batch size.

Per-trajectory policy gradients are linear in the score, so the bias B of the gradient is the
*error* of the score pulled back through the rollout (paper, "Bias-Variance Decompositions"):

    B = −E[(∂y/∂φ)ᵀ(s_y − μ_y) + (∂ξ/∂φ)ᵀ(s_ξ − μ_ξ)],     MSE_N = ‖B‖² + V_s / N

Trajectories come in groups (`groups.py`) that share no draws, neither θ and noise nor those of a
Monte Carlo ground truth; within a group the latter are shared, which costs less. What remains is
the bias of the ground truth itself, O(1/ESS) or O(1/particles): `ground_truth.py` tells when it
cannot be trusted."""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

import equinox as eqx
import numpy as np
from jaxtyping import Float, PRNGKeyArray

from scorebed.diagnostics.gradient_groups import (
    PLAIN,
    Estimator,
    GradientGroup,
    gradient_group,
    group_nle,
)
from scorebed.diagnostics.groups import Estimate, grouping, squared_norm, stack
from scorebed.keys import named
from scorebed.policies.base import Policy
from scorebed.scores.base import Score
from scorebed.scores.reference import Truth
from scorebed.tasks.base import Task

OnGroup: TypeAlias = Callable[[int, int], None]


def silent(done: int, total: int) -> None:
    """No progress is shown."""
    del done, total


class GradientError(eqx.Module):
    """‖B‖² and V_s of one gradient estimator, and ‖∇I‖² of the truth on the same trajectories."""

    squared_bias: Estimate
    squared_norm: Estimate
    variance: float
    outer: int

    def mse(self, n: int) -> float:
        """‖B‖² + V_s / N, with an estimate of ‖B‖² below zero taken as zero."""
        return max(self.squared_bias.value, 0.0) + self.variance / n

    @property
    def crossover(self) -> float:
        """The batch size N = V_s / ‖B‖² past which bias outweighs noise; infinite if no bias was
        found.
        """
        return self.variance / self.squared_bias.value if self.squared_bias.value > 0 else math.inf


class GradientErrors(NamedTuple):
    """Of the score, and of PCE by its number of contrastive parameters; `nle` is what finding them
    has cost.
    """

    score: GradientError
    pce: dict[int, GradientError]
    nle: int


def gradient_error(
    task: Task,
    guide: Score | Estimator,
    truth: Truth,
    policy: Policy,
    *,
    outer: int = 512,
    pce: Sequence[int] = (),
    on_group: OnGroup = silent,
    key: PRNGKeyArray,
) -> GradientErrors:
    """Bias and variance of the policy gradient of `guide`, and of PCE with each of these numbers of
    contrastive parameters, M.

    `guide` is a score, or any estimator `estimate(task, policy, theta, noise, *, key)` of one
    trajectory, whose own likelihoods are not counted. Each estimator is the one that trains such a
    policy: static designs leave out the ξ-part. A trajectory takes one call of the truth and of the
    score, its likelihood, and M + 1 likelihoods for each of `pce`."""
    count, size = grouping(outer)
    groups, passes, rivals = [], 0, tuple(pce)
    for g in range(count):
        found = gradient_group(task, guide, truth, policy, size, PLAIN, rivals, named(key, g))
        groups.append(found)
        passes += int(found.passes)
        on_group(g + 1, count)
    of_score, of_pce = errors_of(groups, rivals)
    nle = count * group_nle(task, guide, policy, size, rivals) + passes * truth(key).pass_nle
    return GradientErrors(of_score, of_pce, nle)


def errors_of(
    groups: Sequence[GradientGroup], pce: Sequence[int]
) -> tuple[GradientError, dict[int, GradientError]]:
    """Of the score, and of PCE with each M, from groups of one size."""
    size = len(groups[0].squared_errors)
    truths, errors = (stack([getattr(g, name) for g in groups]) for name in ("truth", "error"))
    norm = squared_norm(truths)
    rivals = {m: stack([group.pce[i] for group in groups]) for i, m in enumerate(pce)}
    return (
        _gradient_error(truths + errors, errors, norm, size),
        {m: _gradient_error(each, each - truths, norm, size) for m, each in rivals.items()},
    )


def _gradient_error(
    means: Float[np.ndarray, "G P"], errors: Float[np.ndarray, "G P"], norm: Estimate, size: int
) -> GradientError:
    """V is the trace of the covariance of one sample: `size` times that of a group's mean."""
    variance = size * float(means.var(0, ddof=1).sum())
    return GradientError(squared_norm(errors), norm, variance, len(means) * size)
