"""The error of a score, and the bias and variance of its policy gradient.

Per-trajectory policy gradients are linear in the score, so the bias B of the gradient is the
*error* of the score pulled back through the rollout (paper, "Bias-Variance Decompositions"):

    B = −E[(∂y/∂φ)ᵀ(s_y − μ_y) + (∂ξ/∂φ)ᵀ(s_ξ − μ_ξ)],     MSE_N = ‖B‖² + V_s / N

Trajectories come in groups (`groups.py`) that share no draws, neither θ and noise nor those of a
Monte Carlo ground truth; within a group the latter are shared, which costs less. What remains is
the bias of the ground truth itself, O(1/ESS) or O(1/particles): `effective_draws` tells when prior
draws are too few, and `SMCTruth` is for such histories."""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree, Scalar

from scorebed.diagnostics.groups import Estimate, draws, grouping, ratio, squared_norm, stack
from scorebed.estimators.log_ratios import lower_log_ratio
from scorebed.inference.importance import importance_moments
from scorebed.keys import named
from scorebed.policies.base import Policy
from scorebed.rollout import Trajectory, log_likelihood, log_likelihoods, rollout, simulate
from scorebed.scores.base import Score, ScoreValue
from scorebed.scores.reference import INNER, Truth
from scorebed.tasks.base import Task

OnGroup: TypeAlias = Callable[[int, int], None]


def _silent(done: int, total: int) -> None:
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


class ScoreError(NamedTuple):
    """E‖s − μ‖² / E‖μ‖² of the two parts of a score; 0 is exact, 1 no better than nothing."""

    y: Estimate
    xi: Estimate
    nle: int  # what finding it has cost


def gradient_error(
    task: Task,
    score: Score,
    truth: Truth,
    policy: Policy,
    *,
    outer: int = 512,
    pce: Sequence[int] = (),
    on_group: OnGroup = _silent,
    key: PRNGKeyArray,
) -> GradientErrors:
    """Bias and variance of the policy gradient of `score`, and of PCE with each of these numbers of
    contrastive parameters.

    Each estimator is the one that trains such a policy: static designs leave out the ξ-part. A
    trajectory takes one call of the truth and of the score, its likelihood, and M + 1 likelihoods
    for each of `pce`."""
    groups, size = grouping(outer)
    of_score, of_truth, of_pce, passes = [], [], [], 0
    for g in range(groups):
        found = _gradient_group(task, score, truth, policy, size, tuple(pce), named(key, g))
        of_score.append(found.score)
        of_truth.append(found.truth)
        of_pce.append(found.pce)
        passes += int(found.passes)
        on_group(g + 1, groups)
    truths, errors = stack(of_truth), stack(of_score)
    norm = squared_norm(truths)
    rivals = {m: stack([group[i] for group in of_pce]) for i, m in enumerate(pce)}
    likelihoods = 1 + sum(m + 1 for m in pce)
    return GradientErrors(
        _gradient_error(truths + errors, errors, norm, size),
        {m: _gradient_error(each, each - truths, norm, size) for m, each in rivals.items()},
        groups * size * (likelihoods * task.horizon + score.nle) + passes * truth(key).pass_nle,
    )


class _GroupGradients(NamedTuple):
    """Means over one group: the error of the score's gradient, the true gradient, and those
    of PCE.
    """

    score: Array
    truth: Array
    pce: list[Array]
    passes: Int[Array, ""]


@eqx.filter_jit
def _gradient_group(
    task: Task,
    score: Score,
    truth: Truth,
    policy: Policy,
    size: int,
    pce: tuple[int, ...],
    key: PRNGKeyArray,
) -> _GroupGradients:
    params, frozen = eqx.partition(policy, eqx.is_inexact_array)
    thetas, noises = draws(task, policy, size, key=key)

    def roll(params: PyTree) -> tuple[Array, Array, Array]:
        runs = jax.vmap(
            lambda theta, noise: rollout(task, eqx.combine(params, frozen), theta, noise)
        )(thetas, noises)
        return runs.ys, runs.xis, _log_p0(task, runs)

    (ys, xis, log_p0), pull_back = jax.vjp(roll, params)
    # Additive noise makes the likelihood term of the score's gradient zero for every sample, up to
    # rounding.
    likelihood = jnp.full_like(log_p0, 0.0 if task.additive_noise else 1 / size)

    def gradient(value: ScoreValue, likelihood: Array) -> Array:
        fisher = 1 / size if policy.adaptive else 0.0
        return _flat(pull_back((-value.y / size, -fisher * value.xi, likelihood))[0])

    mu, passes = truth(named(key, "truth")).evaluate(ys, xis)
    s = jax.vmap(score)(ys, xis)
    error = gradient(ScoreValue(s.y - mu.y, s.xi - mu.xi), jnp.zeros_like(log_p0))

    def contrast(params: PyTree, inner: int) -> Scalar:
        """PCE; no two trajectories share draws."""

        def one(y: Array, xi: Array, log_p0: Array, key: PRNGKeyArray) -> Scalar:
            others = jax.vmap(lambda k: task.prior.sample(key=k))(jr.split(key, inner))
            total = jax.nn.logsumexp(log_likelihoods(task, others, y, xi))
            return lower_log_ratio(log_p0, log_p0, total, inner)

        return jax.vmap(one)(*roll(params), jr.split(named(key, "contrast", inner), size)).mean()

    rivals = [_flat(jax.grad(contrast)(params, m)) for m in pce]
    return _GroupGradients(error, gradient(mu, likelihood), rivals, passes)


def score_error(
    task: Task,
    score: Score,
    truth: Truth,
    policy: Policy,
    *,
    outer: int = 512,
    on_group: OnGroup = _silent,
    key: PRNGKeyArray,
) -> ScoreError:
    """The relative squared error of both parts of a score on a policy's trajectories
    (`RandomDesigns(sampler)` for a sampler's).

    Two independent truths μ¹, μ² per trajectory: ⟨s − μ¹, s − μ²⟩ / ⟨μ¹, μ²⟩ has none of their
    noise. Coordinates are summed as they are, so those with the smallest unit of outcome weigh
    most."""
    groups, size = grouping(outer)
    rows, passes = [], 0
    for g in range(groups):
        found, spent = _score_group(task, score, truth, policy, size, named(key, g))
        rows.append(found)
        passes += int(spent)
        on_group(g + 1, groups)
    error_y, size_y, error_xi, size_xi = stack(rows).T
    nle = groups * size * score.nle + passes * truth(key).pass_nle
    return ScoreError(ratio(error_y, size_y), ratio(error_xi, size_xi), nle)


@eqx.filter_jit
def _score_group(
    task: Task, score: Score, truth: Truth, policy: Policy, size: int, key: PRNGKeyArray
) -> tuple[Float[Array, " 4"], Int[Array, ""]]:
    thetas, noises = draws(task, policy, size, key=key)
    runs = jax.vmap(lambda theta, noise: rollout(task, policy, theta, noise))(thetas, noises)
    s = jax.vmap(score)(runs.ys, runs.xis)
    # A loop of two, which compiles the truth once.
    keys = jnp.stack([named(key, name) for name in ("first", "second")])
    both = jax.lax.map(lambda k: truth(k).evaluate(runs.ys, runs.xis), keys)
    parts = zip(s, both.value, strict=True)
    sums = jnp.stack(
        [x for s, (a, b) in parts for x in (((s - a) * (s - b)).sum() / size, (a * b).sum() / size)]
    )
    return sums, both.passes.sum()


def effective_draws(
    task: Task, policy: Policy, *, inner: int = INNER, outer: int = 32, key: PRNGKeyArray
) -> Float[np.ndarray, " N"]:
    """Effective sample sizes of `ImportanceScore` on a policy's trajectories. outer·inner·T NLE.

    Below some tens the ground truth is the conditional score of a few draws, and nothing measured
    against it can be believed."""

    return np.asarray(_effective_draws(task, policy, inner, outer, key))


@eqx.filter_jit
def _effective_draws(
    task: Task, policy: Policy, inner: int, outer: int, key: PRNGKeyArray
) -> Float[Array, " N"]:
    runs = jax.vmap(lambda k: simulate(task, policy, key=k))(jr.split(named(key, "outer"), outer))
    key_inner = named(key, "inner")
    return jax.vmap(lambda y, xi: importance_moments(task, y, xi, inner=inner, key=key_inner).ess)(
        runs.ys, runs.xis
    )


def _gradient_error(
    means: Float[np.ndarray, "G P"], errors: Float[np.ndarray, "G P"], norm: Estimate, size: int
) -> GradientError:
    """V is the trace of the covariance of one sample: `size` times that of a group's mean."""
    variance = size * float(means.var(0, ddof=1).sum())
    return GradientError(squared_norm(errors), norm, variance, len(means) * size)


def _log_p0(task: Task, runs: Trajectory) -> Float[Array, " N"]:
    return jax.vmap(lambda run: log_likelihood(task, run.theta, run.ys, run.xis))(runs)


def _flat(gradient: PyTree) -> Float[Array, " P"]:
    return jnp.concatenate([leaf.ravel() for leaf in jax.tree.leaves(gradient)])
