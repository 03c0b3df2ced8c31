"""The error of a score itself, trajectory by trajectory.

    relative error = E‖s − μ‖² / E‖μ‖²

Two independent truths μ¹, μ² per trajectory: ⟨s − μ¹, s − μ²⟩ estimates ‖s − μ‖² with none of their
noise in it, and ⟨μ¹, μ²⟩ estimates ‖μ‖². A single estimate may be negative, where the truth is
noisier than the score is wrong."""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from scorebed.diagnostics.conditioning import condition_numbers, design_jacobian
from scorebed.diagnostics.direction import Tails, tails
from scorebed.diagnostics.gradient_error import OnGroup, silent
from scorebed.diagnostics.groups import Estimate, Runs, grouping, ratio, runs, true_scores
from scorebed.keys import named
from scorebed.policies.base import Policy
from scorebed.scores.base import Score, ScoreValue
from scorebed.scores.reference import Truth
from scorebed.tasks.base import Task


class ScoreError(NamedTuple):
    """E‖s − μ‖² / E‖μ‖² of the two parts of a score, 0 if exact and 1 if no better than nothing;
    how heavy their tails are; and what finding it has cost.
    """

    y: Estimate
    xi: Estimate
    tails_y: Tails
    tails_xi: Tails
    nle: int


class PerTrajectory(NamedTuple):
    """Of N trajectories: the condition number of ∂y/∂ξ, the mean squared error of a coordinate of
    s_y and of s_ξ, the mean square of a coordinate of μ_y and μ_ξ; and what finding it has cost.
    """

    condition: Float[np.ndarray, " N"]
    score_mse_y: Float[np.ndarray, " N"]
    score_mse_xi: Float[np.ndarray, " N"]
    mean_square_y: Float[np.ndarray, " N"]
    mean_square_xi: Float[np.ndarray, " N"]
    nle: int

    def error(self) -> ScoreError:
        """The relative errors over all trajectories, with standard errors over groups of them."""
        count = grouping(len(self.condition))[0]

        def relative(squares: np.ndarray, sizes: np.ndarray) -> Estimate:
            parts = [np.array_split(each, count) for each in (squares, sizes)]
            return ratio(*(np.array([part.sum() for part in each]) for each in parts))

        y, xi = (
            (self.score_mse_y, self.mean_square_y),
            (self.score_mse_xi, self.mean_square_xi),
        )
        return ScoreError(relative(*y), relative(*xi), tails(*y), tails(*xi), self.nle)


def per_trajectory(
    task: Task,
    score: Score,
    truth: Truth,
    policy: Policy,
    *,
    outer: int = 512,
    size: int | None = None,
    on_group: OnGroup = silent,
    stop: Callable[[], bool] = lambda: False,
    key: PRNGKeyArray,
) -> PerTrajectory:
    """Errors of a score against the conditioning of ∂y/∂ξ, on a policy's trajectories
    (`RandomDesigns(sampler)` for a sampler's).

    The paper's figure of both: where κ(∂y/∂ξ) = σ_max / σ_min is large, outcomes are sensitive to
    designs and scores are hard to learn. `size` trajectories at a time; after each group `stop` may
    end it. Two calls of the truth and one of the score for each trajectory."""
    count, usual = grouping(outer)
    each = size or usual
    count = count if size is None else -(-outer // size)
    rows, numbers, passes = [], [], 0
    for g in range(count):
        made = runs(task, policy, each, named(key, g))
        both = [
            true_scores(truth, made.ys, made.xis, named(key, g, name))
            for name in ("first", "second")
        ]
        found = _squares(task, score, made, *(truth.value for truth in both))
        rows.append(np.asarray(found.squares, np.float64))
        numbers.append(condition_numbers(found.jacobians))
        passes += sum(int(truth.passes) for truth in both)
        ended = stop()
        on_group(count if ended else g + 1, count)
        if ended:
            break
    nle = len(rows) * each * (score.nle + policy.design_nle) + passes * truth(key).pass_nle
    mse_y, mse_xi, size_y, size_xi = np.concatenate(rows).T
    return PerTrajectory(np.concatenate(numbers), mse_y, mse_xi, size_y, size_xi, nle)


def score_error(
    task: Task,
    score: Score,
    truth: Truth,
    policy: Policy,
    *,
    outer: int = 512,
    on_group: OnGroup = silent,
    key: PRNGKeyArray,
) -> ScoreError:
    """The relative squared error of both parts of a score on a policy's trajectories
    (`RandomDesigns(sampler)` for a sampler's), E‖s − μ‖² / E‖μ‖².

    Coordinates are summed as they are, so those with the smallest unit of outcome weigh most."""
    return per_trajectory(
        task, score, truth, policy, outer=outer, on_group=on_group, key=key
    ).error()


class _Squares(NamedTuple):
    """Columns of `squares`: errors of y and ξ, sizes of y and ξ."""

    squares: Float[Array, "N 4"]
    jacobians: Float[Array, "N rows columns"]


@eqx.filter_jit
def _squares(
    task: Task, score: Score, made: Runs, first: ScoreValue, second: ScoreValue
) -> _Squares:
    parts = list(zip(jax.vmap(score)(made.ys, made.xis), first, second, strict=True))
    squares = [((s - a) * (s - b)).mean((1, 2)) for s, a, b in parts]
    squares += [(a * b).mean((1, 2)) for _, a, b in parts]
    jacobians = jax.vmap(lambda *each: design_jacobian(task, *each))(
        made.thetas, made.xis, made.noises
    )
    return _Squares(jnp.stack(squares, axis=1), jacobians)
