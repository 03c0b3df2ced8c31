"""What the loss of marginal score matching consists of (paper, App. C, Score Error).

    L = E‖s − ∇ log p(y|ξ,θ)‖² = ‖B‖² + V_e + V_ν,
    B = E[s − μ],   V_e = tr Cov(s − μ),   V_ν = E‖∇ log p(y|ξ,θ) − μ‖²

‖B‖² + V_e is what training can still take away, V_ν, the noise of the target, is not. Where designs
are drawn before the data, the first two also split by design: E‖b(ξ)‖² + V_e^within with b(ξ) =
E_{y|ξ}[s − μ], which biases of opposite sign at different designs do not cancel in.

Each term is estimated by itself, with two independent truths μ¹, μ² in every square, so that their
noise falls out; L is not the sum of the parts by construction. `remainder` = L − (‖B‖² + V_e + V_ν)
= 2 E⟨s − μ, μ − ∇ log p(y|ξ,θ)⟩ is zero for the exact μ. One that is not by its standard error
shows a biased ground truth."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from scorebed.diagnostics.gradient_error import OnGroup, silent
from scorebed.diagnostics.groups import Estimate, grouping, squared_norm, true_scores
from scorebed.estimators.matching import conditional_score
from scorebed.keys import named
from scorebed.policies.base import Policy
from scorebed.rollout import Noise, Trajectory, rollout
from scorebed.scores.base import Score, ScoreValue
from scorebed.scores.reference import Truth
from scorebed.tasks.base import Task


class LossParts(NamedTuple):
    """The loss of one part of a score, summed over steps and coordinates, and what it consists of.

    The two terms by design are NaN for adaptive policies, whose designs depend on the data."""

    loss: Estimate
    squared_bias: Estimate
    error_variance: Estimate
    target_noise: Estimate
    remainder: Estimate
    design_bias: Estimate
    within_variance: Estimate


class MSMDecomposition(NamedTuple):
    """Of the y-part and the ξ-part; the loss that training minimises is λ_y times the first plus
    the second. `nle` is what finding it has cost.
    """

    y: LossParts
    xi: LossParts
    nle: int


def loss_decomposition(
    task: Task,
    score: Score,
    truth: Truth,
    policy: Policy,
    *,
    outer: int = 512,
    on_group: OnGroup = silent,
    key: PRNGKeyArray,
) -> MSMDecomposition:
    """The loss L = ‖B‖² + V_e + V_ν on a policy's designs (`RandomDesigns(sampler)` for a
    sampler's, those that a score is trained on).

    Designs that are drawn before the data get two outcomes each. Two calls of the truth, one of the
    score and a likelihood for every one of `outer` trajectories."""
    count, size = grouping(outer)
    size += size % 2
    rows: list[list[_Sums]] = []
    passes = 0
    for g in range(count):
        base = named(key, g)
        made = _pairs(task, policy, size, base)
        both = [
            true_scores(truth, made.ys, made.xis, named(base, name)) for name in ("first", "second")
        ]
        passes += sum(int(found.passes) for found in both)
        found = _sums(task, score, made, *(each.value for each in both))
        rows.append(jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), found))
        on_group(g + 1, count)
    each = task.horizon + score.nle + policy.design_nle
    nle = count * size * each + passes * truth(key).pass_nle
    y, xi = (_parts([row[part] for row in rows], policy) for part in range(2))
    return MSMDecomposition(y, xi, nle)


class _Sums(NamedTuple):
    """Means over a group: of e¹ and e², and of four products."""

    first: Float[Array, " d"]
    second: Float[Array, " d"]
    loss: Array
    error: Array
    noise: Array
    design_bias: Array


@eqx.filter_jit
def _pairs(task: Task, policy: Policy, size: int, key: PRNGKeyArray) -> Trajectory:
    """Trajectories; of predetermined designs those n and n + N/2 have the same."""

    def one(key: PRNGKeyArray, key_design: PRNGKeyArray) -> Trajectory:
        theta = task.prior.sample(key=named(key, "theta"))
        noise = Noise(
            jr.normal(named(key, "outcome"), (task.horizon, task.noise_dim)),
            policy.sample_noise(task.horizon, key=key_design),
        )
        return rollout(task, policy, theta, noise)

    keys = jr.split(named(key, "each"), size)
    designs = jr.split(named(key, "designs"), size)
    if not policy.adaptive:
        designs = jnp.concatenate([designs[: size // 2]] * 2)
    return jax.vmap(one)(keys, designs)


@eqx.filter_jit
def _sums(
    task: Task, score: Score, made: Trajectory, first: ScoreValue, second: ScoreValue
) -> list[_Sums]:
    s = jax.vmap(score)(made.ys, made.xis)
    target = jax.vmap(lambda run: conditional_score(task, run))(made)
    found = []
    for s_part, t, a, b in zip(s, target, first, second, strict=True):
        n = len(a)
        e1, e2, t1, t2, off = (
            x.reshape(n, -1) for x in (s_part - a, s_part - b, t - a, t - b, s_part - t)
        )
        half = n // 2
        # Other truths, too, in the two halves of a pair: their noise is shared by all histories.
        pairs = 0.5 * ((e1[:half] * e2[half:]).sum(1) + (e2[:half] * e1[half:]).sum(1))
        loss, error, noise = ((x * y).sum(1).mean() for x, y in ((off, off), (e1, e2), (t1, t2)))
        found.append(_Sums(e1.mean(0), e2.mean(0), loss, error, noise, pairs.mean()))
    return found


def _parts(groups: list[_Sums], policy: Policy) -> LossParts:
    columns = {
        name: np.array([getattr(group, name) for group in groups])
        for name in ("loss", "error", "noise", "design_bias")
    }
    bias = squared_norm(np.stack([0.5 * (group.first + group.second) for group in groups]))
    error = columns["error"]
    variance = _mean(error)
    if policy.adaptive:
        by_design = within = Estimate(np.nan, np.nan)
    else:
        by_design, within = _mean(columns["design_bias"]), _mean(error - columns["design_bias"])
    return LossParts(
        loss=_mean(columns["loss"]),
        squared_bias=bias,
        error_variance=Estimate(variance.value - bias.value, float(np.hypot(variance.se, bias.se))),
        target_noise=_mean(columns["noise"]),
        remainder=_mean(columns["loss"] - error - columns["noise"]),
        design_bias=by_design,
        within_variance=within,
    )


def _mean(values: Float[np.ndarray, " G"]) -> Estimate:
    return Estimate(float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values))))
