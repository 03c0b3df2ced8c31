"""Bias and variance of the policy gradients of several scores and of PCE, against one truth on the
same trajectories.

    B = −E[(∂y/∂φ)ᵀ(s_y − μ_y) + (∂ξ/∂φ)ᵀ(s_ξ − μ_ξ)],     MSE_N = ‖B‖² + V / N

As `gradient_error`, whose truth is most of the cost: here it is evaluated once for all scores,
which also share the noise of the trajectories, so that their order is better known than each of
them. The scores have one architecture, such as a score at several steps of its training.
"""

from collections.abc import Sequence
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree, Scalar

from scorebed.diagnostics.gradient_error import GradientError, OnGroup
from scorebed.diagnostics.groups import Estimate, draws, grouping, squared_norm, stack
from scorebed.errors import require
from scorebed.estimators.log_ratios import lower_log_ratio
from scorebed.keys import named
from scorebed.policies.base import Policy
from scorebed.rollout import log_likelihood, log_likelihoods, rollout
from scorebed.scores.base import Score, ScoreValue
from scorebed.scores.reference import Truth
from scorebed.tasks.base import Task


class SeveralErrors(NamedTuple):
    """Of every score, in order, and of PCE by its number of contrastive parameters; `nle` is what
    finding them has cost.
    """

    scores: list[GradientError]
    pce: dict[int, GradientError]
    nle: int


def _silent(done: int, total: int) -> None:
    del done, total


def several_gradient_errors(
    task: Task,
    scores: Sequence[Score],
    truth: Truth,
    policy: Policy,
    *,
    outer: int = 512,
    pce: Sequence[int] = (),
    on_group: OnGroup = _silent,
    key: PRNGKeyArray,
) -> SeveralErrors:
    """Errors of the policy gradients of `scores`, and of PCE with each M of `pce`.

    A trajectory takes one call of the truth and of every score, its likelihood, and M + 1
    likelihoods for each of `pce`. Per-trajectory clipping is left out: it has a bias of its own.
    """
    structures = {jax.tree.structure(eqx.filter(score, eqx.is_array)) for score in scores}
    require(
        len(structures) == 1,
        "the scores to compare",
        got=f"{len(scores)} scores of {len(structures)} architectures",
        expected="at least one score, all of one architecture",
        fix="compare scores of one run and its like.",
    )
    static = eqx.filter(scores[0], eqx.is_array, inverse=True)
    arrays = jax.tree.map(
        lambda *leaves: jnp.stack(leaves), *(eqx.filter(score, eqx.is_array) for score in scores)
    )
    groups, size = grouping(outer)
    found, passes = [], 0
    for g in range(groups):
        group = _group(task, arrays, static, truth, policy, size, tuple(pce), named(key, g))
        passes += int(group.passes)
        found.append(group)
        on_group(g + 1, groups)
    truths = stack([group.truth for group in found])
    norm = squared_norm(truths)
    errors = [stack([group.errors[i] for group in found]) for i in range(len(scores))]
    rivals = {m: stack([group.pce[i] for group in found]) for i, m in enumerate(pce)}
    likelihoods = 1 + sum(m + 1 for m in pce)
    each = likelihoods * task.horizon + sum(score.nle for score in scores)
    return SeveralErrors(
        [_error(truths + error, error, norm, size) for error in errors],
        {m: _error(rival, rival - truths, norm, size) for m, rival in rivals.items()},
        groups * size * each + passes * truth(key).pass_nle,
    )


class _Group(NamedTuple):
    """Means over one group: errors of the scores' gradients, the true gradient, and those of
    PCE.
    """

    errors: Float[Array, "S P"]
    truth: Float[Array, " P"]
    pce: list[Array]
    passes: Int[Array, ""]


@eqx.filter_jit
def _group(
    task: Task,
    arrays: PyTree,
    static: PyTree,
    truth: Truth,
    policy: Policy,
    size: int,
    pce: tuple[int, ...],
    key: PRNGKeyArray,
) -> _Group:
    params, frozen = eqx.partition(policy, eqx.is_inexact_array)
    thetas, noises = draws(task, policy, size, key=key)

    def roll(params: PyTree) -> tuple[Array, Array, Array]:
        runs = jax.vmap(
            lambda theta, noise: rollout(task, eqx.combine(params, frozen), theta, noise)
        )(thetas, noises)
        log_p0 = jax.vmap(lambda run: log_likelihood(task, run.theta, run.ys, run.xis))(runs)
        return runs.ys, runs.xis, log_p0

    (ys, xis, log_p0), pull_back = jax.vjp(roll, params)
    fisher = 1 / size if policy.adaptive else 0.0  # static designs leave the ξ-part out

    def gradient(value: ScoreValue, likelihood: float) -> Array:
        return _flat(
            pull_back(
                (-value.y / size, -fisher * value.xi, jnp.full_like(log_p0, likelihood / size))
            )[0]
        )

    mu, passes = truth(named(key, "truth")).evaluate(ys, xis)

    def error(arrays: PyTree) -> Array:
        s = jax.vmap(eqx.combine(arrays, static))(ys, xis)
        return gradient(ScoreValue(s.y - mu.y, s.xi - mu.xi), 0.0)

    def contrast(params: PyTree, inner: int) -> Scalar:
        """PCE; no two trajectories share draws."""

        def one(y: Array, xi: Array, log_p0: Array, key: PRNGKeyArray) -> Scalar:
            others = jax.vmap(lambda k: task.prior.sample(key=k))(jr.split(key, inner))
            total = jax.nn.logsumexp(log_likelihoods(task, others, y, xi))
            return lower_log_ratio(log_p0, log_p0, total, inner)

        return jax.vmap(one)(*roll(params), jr.split(named(key, "contrast", inner), size)).mean()

    return _Group(
        errors=jax.lax.map(error, arrays),  # a loop, which compiles the score once
        # Additive noise makes the likelihood term zero for every sample, up to rounding.
        truth=gradient(mu, 0.0 if task.additive_noise else 1.0),
        pce=[_flat(jax.grad(contrast)(params, m)) for m in pce],
        passes=passes,
    )


def _error(
    means: Float[np.ndarray, "G P"], errors: Float[np.ndarray, "G P"], norm: Estimate, size: int
) -> GradientError:
    """V is the trace of the covariance of one sample: `size` times that of a group's mean."""
    variance = size * float(means.var(0, ddof=1).sum())
    return GradientError(squared_norm(errors), norm, variance, len(means) * size)


def _flat(gradient: PyTree) -> Float[Array, " P"]:
    return jnp.concatenate([leaf.ravel() for leaf in jax.tree.leaves(gradient)])
