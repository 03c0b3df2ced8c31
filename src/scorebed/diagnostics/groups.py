"""Trajectories in groups that share no draws, and unbiased squared norms with their standard
errors.

Squared norms are means of ⟨X_g, X_h⟩ over pairs g ≠ h of groups: the noise of the trajectories and
of the ground truth falls out of them, and an estimate of zero is sometimes negative. Their standard
errors are jackknifed over groups."""

from typing import NamedTuple

import jax
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from scorebed.errors import require
from scorebed.keys import named
from scorebed.policies.base import Policy
from scorebed.rollout import Noise, draw_noise
from scorebed.tasks.base import Task

GROUPS = 32


class Estimate(NamedTuple):
    """A number and its standard error."""

    value: float
    se: float


def grouping(outer: int) -> tuple[int, int]:
    """The number of groups and the size of each; together at least `outer`."""
    require(
        outer >= 8,
        "the trajectories of a diagnosis",
        got=outer,
        expected="at least eight",
        fix="512 is usual.",
    )
    groups = min(GROUPS, outer // 2)
    return groups, -(-outer // groups)


def draws(
    task: Task, policy: Policy, size: int, *, key: PRNGKeyArray
) -> tuple[Float[Array, "N k"], Noise]:
    """θ from the prior and noise, of `size` trajectories."""
    thetas = jax.vmap(lambda k: task.prior.sample(key=k))(jr.split(named(key, "theta"), size))
    return thetas, jax.vmap(lambda k: draw_noise(task, policy, key=k))(
        jr.split(named(key, "noise"), size)
    )


def stack(groups: list[Array]) -> Float[np.ndarray, "G P"]:
    """One row per group, in double precision."""
    return np.stack([np.asarray(group, np.float64) for group in groups])


def squared_norm(means: Float[np.ndarray, "G P"]) -> Estimate:
    """The mean of ⟨X_g, X_h⟩ over g ≠ h: unbiased for ‖E X‖². Its standard error is √2 too large
    where that is zero.
    """
    gram = means @ means.T
    np.fill_diagonal(gram, 0.0)
    n, total = len(gram), gram.sum()
    without = (total - 2 * gram.sum(1)) / ((n - 1) * (n - 2))
    return Estimate(float(total / (n * (n - 1))), _jackknife(without))


def ratio(numerators: Float[np.ndarray, " G"], denominators: Float[np.ndarray, " G"]) -> Estimate:
    """The ratio of two means."""
    above, below = numerators.sum(), denominators.sum()
    with np.errstate(divide="ignore", invalid="ignore"):
        without = (above - numerators) / (below - denominators)
        return Estimate(float(above / below), _jackknife(without))


def _jackknife(without: Float[np.ndarray, " G"]) -> float:
    """Standard error from the estimates that leave out one group each."""
    n = len(without)
    return float(np.sqrt((n - 1) / n * np.square(without - without.mean()).sum()))
