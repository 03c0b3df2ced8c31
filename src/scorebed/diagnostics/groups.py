"""Trajectories in groups that share no draws, and unbiased squared norms with their standard
errors.

Squared norms are means of ⟨X_g, X_h⟩ over pairs g ≠ h of groups: the noise of the trajectories and
of the ground truth falls out of them, and an estimate of zero is sometimes negative. Their standard
errors are jackknifed over groups."""

import math
from typing import NamedTuple

import equinox as eqx
import jax
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from scorebed.errors import require
from scorebed.keys import named
from scorebed.policies.base import Policy
from scorebed.rollout import Noise, draw_noise, rollout
from scorebed.scores.base import Evaluated
from scorebed.scores.reference import Truth
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


class Runs(NamedTuple):
    """Trajectories of a policy with what made them."""

    thetas: Float[Array, "N k"]
    noises: Noise
    ys: Float[Array, "N T dy"]
    xis: Float[Array, "N T dx"]


@eqx.filter_jit
def runs(task: Task, policy: Policy, size: int, key: PRNGKeyArray) -> Runs:
    """`size` trajectories. No NLE but those of the policy's designs."""
    thetas, noises = draws(task, policy, size, key=key)
    made = jax.vmap(lambda theta, noise: rollout(task, policy, theta, noise))(thetas, noises)
    return Runs(thetas, noises, made.ys, made.xis)


@eqx.filter_jit
def true_scores(
    truth: Truth, ys: Float[Array, "N T dy"], xis: Float[Array, "N T dx"], key: PRNGKeyArray
) -> Evaluated:
    """The ground truth of a group. It is a program of its own, because it takes long to compile and
    then serves every policy; together with a rollout it takes many times as long.
    """
    return truth(key).evaluate(ys, xis)


def stack(groups: list[Array]) -> Float[np.ndarray, "G P"]:
    """One row per group, in double precision."""
    return np.stack([np.asarray(group, np.float64) for group in groups])


def squared_norm(means: Float[np.ndarray, "G P"]) -> Estimate:
    """The mean of ⟨X_g, X_h⟩ over g ≠ h: unbiased for ‖E X‖². Its standard error is √2 too large
    where that is zero.
    """
    value, without = _pairs(means @ means.T)
    return Estimate(value, _jackknife(without))


def ratio(numerators: Float[np.ndarray, " G"], denominators: Float[np.ndarray, " G"]) -> Estimate:
    """The ratio of two means."""
    above, below = numerators.sum(), denominators.sum()
    with np.errstate(divide="ignore", invalid="ignore"):
        without = (above - numerators) / (below - denominators)
        return Estimate(float(above / below), _jackknife(without))


class Agreement(NamedTuple):
    """Of one mean vector with another: the cosine between them, the length of the first in units of
    the second's, and the squared norm of the second, each with its standard error.
    """

    cosine: Estimate
    length: Estimate
    squared_norm: Estimate


class Products(NamedTuple):
    """⟨A, B⟩, ‖A‖² and ‖B‖² of two mean vectors, without the noise of their groups; and the same
    without each of the groups.
    """

    all: Float[np.ndarray, " 3"]
    without: Float[np.ndarray, "G 3"]


def products(a: Float[np.ndarray, "G P"], b: Float[np.ndarray, "G P"]) -> Products:
    """Means over pairs g ≠ h of ⟨A_g, B_h⟩, ⟨A_g, A_h⟩ and ⟨B_g, B_h⟩. Group g has the same draws
    in both, so ⟨A_g, B_g⟩ would count their common noise as agreement.
    """
    found = [_pairs(x @ y.T) for x, y in ((a, b), (a, a), (b, b))]
    return Products(
        np.array([value for value, _ in found]), np.stack([left for _, left in found], axis=1)
    )


def agreement(*parts: Products) -> Agreement:
    """Of two vectors that are stacked from independent `parts`, such as the gradients at several
    policies: a part counts by its size.

    Cosine and length are NaN where either norm cannot be told from zero by its own estimate. A
    cosine beyond ±1, which an unbiased estimate of its parts can give, is taken as ±1."""
    total = np.sum([part.all for part in parts], axis=0)
    cosine, length, squared_norm = _agree(total)
    errors = np.zeros(3)
    for part in parts:
        left = np.array([_agree(total - part.all + row) for row in part.without])
        errors += np.array([_jackknife(column) ** 2 for column in left.T])
    se = np.sqrt(errors)
    return Agreement(
        Estimate(float(np.clip(cosine, -1, 1)), float(se[0])),
        Estimate(length, float(se[1])),
        Estimate(squared_norm, float(se[2])),
    )


def _agree(values: Float[np.ndarray, " 3"]) -> tuple[float, float, float]:
    product, a, b = map(float, values)
    if not (a > 0 and b > 0):
        return math.nan, math.nan, b
    return product / math.sqrt(a * b), math.sqrt(a / b), b


def _pairs(gram: Float[np.ndarray, "G G"]) -> tuple[float, Float[np.ndarray, " G"]]:
    """The mean over pairs of different groups, and the same without each group."""
    gram = gram - np.diag(np.diag(gram))
    n, total = len(gram), gram.sum()
    without = (total - gram.sum(0) - gram.sum(1)) / ((n - 1) * (n - 2))
    return float(total / (n * (n - 1))), without


def _jackknife(without: Float[np.ndarray, " G"]) -> float:
    """Standard error from the estimates that leave out one group each."""
    n = len(without)
    return float(np.sqrt((n - 1) / n * np.square(without - without.mean()).sum()))
