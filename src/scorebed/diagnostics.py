"""Is a score good? Its EIG gradient, its own error, and where its policy goes, against a ground truth.

Per-trajectory policy gradients are linear in the score, so the bias B of the gradient is the *error* of the score pulled back
through the rollout (paper, "Bias-Variance Decompositions"):

    B = −E[(∂y/∂φ)ᵀ(s_y − μ_y) + (∂ξ/∂φ)ᵀ(s_ξ − μ_ξ)],     MSE_N = ‖B‖² + V_s / N

Trajectories come in groups that share no draws, neither θ and noise nor those of a Monte Carlo ground truth; inside of a group
the latter are shared, which costs less. Squared norms are means of ⟨X_g, X_h⟩ over pairs g ≠ h of groups: the noise of the
trajectories and of the ground truth falls out of them, and an estimate of zero is sometimes negative. Their standard errors are
jackknifed over groups. What remains is the bias of the ground truth itself, O(1/ESS) or O(1/particles): see `effective_draws`
for when prior draws are too few, and `SMCTruth` for what to take instead.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree, Scalar

from scorebed.errors import require
from scorebed.inference.importance import importance_moments
from scorebed.keys import named
from scorebed.policies.base import Policy
from scorebed.policies.constrained import is_static
from scorebed.rollout import Noise, Trajectory, draw_noise, log_likelihood, log_likelihoods, observe, rollout, simulate
from scorebed.samplers.base import DesignSampler
from scorebed.scores.base import Score, ScoreValue
from scorebed.scores.truth import INNER, Truth, evaluate, pass_nle
from scorebed.tasks.base import Task

GROUPS = 32
REACH = 0.99  # quantile of the pool's own nearest distances
SLACK = 2.0  # times that is out of reach: a step that always asks for one design must not fall into a gap of the pool by chance
GOOD, FAIR = 0.05, 0.20  # relative bias of the gradient
OUTSIDE = 0.05  # share of designs out of reach; the sampler's own are so almost never, at its edges
FEW_DRAWS = 100.0

OnGroup: TypeAlias = Callable[[int, int], None]


def _silent(done: int, total: int) -> None:
    del done, total


class Estimate(NamedTuple):
    """A number and its standard error."""

    value: float
    se: float


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
        """The batch size N = V_s / ‖B‖² past which bias outweighs noise; infinite if no bias was found."""
        return self.variance / self.squared_bias.value if self.squared_bias.value > 0 else math.inf


class GradientErrors(NamedTuple):
    """Of the score, and of PCE by its number of contrastive parameters; `nle` is what finding them has cost."""

    score: GradientError
    pce: dict[int, GradientError]
    nle: int


class ScoreError(NamedTuple):
    """E‖s − μ‖² / E‖μ‖² of the two parts of a score; 0 is exact, 1 no better than nothing."""

    y: Estimate
    xi: Estimate
    nle: int  # what finding it has cost


class Coverage(NamedTuple):
    """The share of the policy's designs out of the sampler's reach, by step."""

    outside: Float[np.ndarray, " T"]

    @property
    def share(self) -> float:
        return float(self.outside.mean())


class RelativeBias(NamedTuple):
    """‖B‖ in units of a gradient's norm, and the same at two standard errors above."""

    value: float
    upper: float


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
    """Bias and variance of the policy gradient of `score`, and of PCE with each of these numbers of contrastive parameters.

    Each estimator is the one that trains such a policy: static designs leave out the ξ-part. A trajectory takes one call of the
    truth and of the score, its own likelihood, and M + 1 likelihoods for each of `pce`.
    """
    groups, size = _grouping(outer)
    of_score, of_truth, of_pce, passes = [], [], [], 0
    for g in range(groups):
        found = _gradient_group(task, score, truth, policy, size, tuple(pce), named(key, g))
        of_score.append(found.score)
        of_truth.append(found.truth)
        of_pce.append(found.pce)
        passes += int(found.passes)
        on_group(g + 1, groups)
    truths, errors = _stack(of_truth), _stack(of_score)
    norm = _squared_norm(truths)
    rivals = {m: _stack([group[i] for group in of_pce]) for i, m in enumerate(pce)}
    likelihoods = 1 + sum(m + 1 for m in pce)
    return GradientErrors(
        _gradient_error(truths + errors, errors, norm, size),
        {m: _gradient_error(each, each - truths, norm, size) for m, each in rivals.items()},
        groups * size * (likelihoods * task.horizon + score.nle) + passes * pass_nle(truth(key)),
    )


class _GroupGradients(NamedTuple):
    """Means over one group: the error of the score's gradient, the true gradient, and those of PCE."""

    score: Array
    truth: Array
    pce: list[Array]
    passes: Int[Array, ""]


@eqx.filter_jit
def _gradient_group(
    task: Task, score: Score, truth: Truth, policy: Policy, size: int, pce: tuple[int, ...], key: PRNGKeyArray
) -> _GroupGradients:
    params, frozen = eqx.partition(policy, eqx.is_inexact_array)
    thetas, noises = _draws(task, policy, size, key=key)

    def roll(params: PyTree) -> tuple[Array, Array, Array]:
        runs = jax.vmap(lambda theta, noise: rollout(task, eqx.combine(params, frozen), theta, noise))(thetas, noises)
        return runs.ys, runs.xis, _own(task, runs)

    (ys, xis, own), pull_back = jax.vjp(roll, params)
    # Additive noise makes the likelihood term of the score's gradient zero for every sample, up to rounding.
    likelihood = jnp.full_like(own, 0.0 if task.additive_noise else 1 / size)

    def gradient(value: ScoreValue, likelihood: Array) -> Array:
        fisher = 0.0 if is_static(policy) else 1 / size
        return _flat(pull_back((-value.y / size, -fisher * value.xi, likelihood))[0])

    mu, passes = evaluate(truth(named(key, "truth")), ys, xis)
    s = jax.vmap(score)(ys, xis)
    error = gradient(ScoreValue(s.y - mu.y, s.xi - mu.xi), jnp.zeros_like(own))

    def contrast(params: PyTree, inner: int) -> Scalar:
        """PCE: log p(y|θ_0) − log 1/(M+1) Σ_{m=0..M} p(y|θ_m), up to its constant, each trajectory with draws of its own."""

        def one(y: Array, xi: Array, own: Array, key: PRNGKeyArray) -> Scalar:
            others = jax.vmap(lambda k: task.prior.sample(key=k))(jr.split(key, inner))
            return own - jnp.logaddexp(own, jax.nn.logsumexp(log_likelihoods(task, others, y, xi)))

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
    """The relative squared error of both parts of a score on a policy's trajectories (`RandomDesigns(sampler)` for a sampler's).

    Two independent truths μ¹, μ² per trajectory: ⟨s − μ¹, s − μ²⟩ / ⟨μ¹, μ²⟩ has none of their noise. Coordinates are summed
    as they are, so those with the smallest unit of outcome weigh most.
    """
    groups, size = _grouping(outer)
    rows, passes = [], 0
    for g in range(groups):
        found, spent = _score_group(task, score, truth, policy, size, named(key, g))
        rows.append(found)
        passes += int(spent)
        on_group(g + 1, groups)
    error_y, size_y, error_xi, size_xi = _stack(rows).T
    nle = groups * size * score.nle + passes * pass_nle(truth(key))
    return ScoreError(_ratio(error_y, size_y), _ratio(error_xi, size_xi), nle)


@eqx.filter_jit
def _score_group(
    task: Task, score: Score, truth: Truth, policy: Policy, size: int, key: PRNGKeyArray
) -> tuple[Float[Array, " 4"], Int[Array, ""]]:
    thetas, noises = _draws(task, policy, size, key=key)
    runs = jax.vmap(lambda theta, noise: rollout(task, policy, theta, noise))(thetas, noises)
    s = jax.vmap(score)(runs.ys, runs.xis)
    # A loop of two, which compiles the truth once.
    keys = jnp.stack([named(key, name) for name in ("first", "second")])
    both = jax.lax.map(lambda k: evaluate(truth(k), runs.ys, runs.xis), keys)
    parts = zip(s, both.value, strict=True)
    sums = jnp.stack([x for s, (a, b) in parts for x in (((s - a) * (s - b)).sum() / size, (a * b).sum() / size)])
    return sums, both.passes.sum()


def coverage(
    task: Task, sampler: DesignSampler, policy: Policy, *, outer: int = 512, pool: int = 1024, key: PRNGKeyArray
) -> Coverage:
    """Which of the policy's designs the score has seen the like of, step by step.

    A design is out of reach if the nearest of `pool` sampler designs of the same step is more than twice as far as 99% of the
    pool are from their own nearest neighbours, in normalised designs. It looks at one step at a time: a sequence of familiar
    designs may still be a new one. No NLE.
    """
    require(outer >= 1 and pool >= 100, "the size of a coverage check", got=f"outer={outer}, pool={pool}",
            expected="at least one trajectory and a pool of a hundred", fix="512 and 1024 are usual.")  # fmt: skip

    return Coverage(np.asarray(_outside(task, sampler, policy, outer, pool, key)))


@eqx.filter_jit
def _outside(
    task: Task, sampler: DesignSampler, policy: Policy, outer: int, pool: int, key: PRNGKeyArray
) -> Float[Array, " T"]:
    known = jax.vmap(lambda k: sampler.sample(key=k))(jr.split(named(key, "pool"), pool))
    asked = jax.vmap(lambda k: simulate(task, policy, key=k).xis)(jr.split(named(key, "policy"), outer))

    def step(each: tuple[Array, Array]) -> Scalar:
        known, asked = each
        within = jnp.where(jnp.eye(pool, dtype=bool), jnp.inf, _distances(known, known)).min(1)
        limit = SLACK * jnp.quantile(within, REACH) + 1e-6  # a sampler may repeat itself exactly
        return jnp.mean((_distances(asked, known).min(1) > limit).astype(asked.dtype))

    by_step = [jnp.swapaxes(task.designs.normalise(xis), 0, 1) for xis in (known, asked)]
    return jax.lax.map(step, (by_step[0], by_step[1]))


def conditioning(task: Task, policy: Policy, *, outer: int = 256, key: PRNGKeyArray) -> Float[np.ndarray, " N"]:
    """Condition numbers σ_max / σ_min of ∂y_{1:T}/∂ξ_{1:T} at fixed θ and noise, on a policy's trajectories.

    The Jacobian turns errors of s_y into errors of the gradient. Infinite where some designs move no outcome.
    """

    sizes = np.linalg.svd(np.asarray(_jacobians(task, policy, outer, key), np.float64), compute_uv=False)
    with np.errstate(divide="ignore", invalid="ignore"):
        numbers = sizes[:, 0] / sizes[:, -1]
    return np.where(np.isnan(numbers), np.inf, numbers)


@eqx.filter_jit
def _jacobians(task: Task, policy: Policy, outer: int, key: PRNGKeyArray) -> Float[Array, "N rows columns"]:
    def one(theta: Array, noise: Noise) -> Array:
        xis = rollout(task, policy, theta, noise).xis
        jacobian = jax.jacfwd(lambda xis: observe(task, theta, xis, noise.outcome).ravel())(xis)
        return jacobian.reshape(jacobian.shape[0], -1)

    return jax.vmap(one)(*_draws(task, policy, outer, key=key))


def effective_draws(
    task: Task, policy: Policy, *, inner: int = INNER, outer: int = 32, key: PRNGKeyArray
) -> Float[np.ndarray, " N"]:
    """Effective sample sizes of `ImportanceScore` on a policy's trajectories. outer·inner·T NLE.

    Below some tens the ground truth is the conditional score of a few draws, and nothing measured against it can be believed.
    """

    return np.asarray(_effective_draws(task, policy, inner, outer, key))


@eqx.filter_jit
def _effective_draws(task: Task, policy: Policy, inner: int, outer: int, key: PRNGKeyArray) -> Float[Array, " N"]:
    runs = jax.vmap(lambda k: simulate(task, policy, key=k))(jr.split(named(key, "outer"), outer))
    draws = named(key, "inner")
    return jax.vmap(lambda y, xi: importance_moments(task, y, xi, inner=inner, key=draws).ess)(runs.ys, runs.xis)


def relative_bias(error: GradientError, *others: GradientError) -> RelativeBias:
    """‖B‖ over the largest of the true gradients' norms.

    The gradient at a trained policy is close to zero, and any bias is large beside it; that at the untrained policy, among
    `others`, is what the bias has to compete with. NaN where no gradient can be told from zero.
    """
    norm = max(e.squared_norm.value for e in (error, *others))
    if not norm > 0:
        return RelativeBias(math.nan, math.nan)
    value, se = error.squared_bias
    return RelativeBias(math.sqrt(max(value, 0) / norm), math.sqrt(max(value + 2 * se, 0) / norm))


def verdict(bias: RelativeBias, reach: Coverage, *, ess: float = math.inf) -> str:
    """One sentence. `ess` is the effective sample size of the ground truth on its worse histories."""
    if ess < FEW_DRAWS:
        return (
            f"Undecided: the ground truth has only {ess:.0f} effective draws on its worse histories; "
            "use --truth smc, or more --inner."
        )
    size = f"the bias of its gradient is {bias.value:.1%} of the gradient's norm (at most {bias.upper:.1%})"
    if math.isnan(bias.value):
        return "Undecided: the true gradient cannot be told from zero; use more --outer."
    if bias.value >= FAIR:
        return f"Poor: {size}; train the score longer."
    if reach.share > OUTSIDE:
        worst = int(reach.outside.argmax())
        return (
            f"Doubtful: {reach.share:.0%} of the policy's designs lie outside of the sampler's reach "
            f"({reach.outside[worst]:.0%} at step {worst + 1}), where the score was not trained; {size}."
        )
    if bias.upper >= FAIR:
        return f"Undecided: {size}; use more --outer."
    if bias.value >= GOOD:
        return f"Fair: {size}, and its policy stays within the sampler's reach."
    return f"Good: {size}, and its policy stays within the sampler's reach."


# ---- trajectories in groups


def _grouping(outer: int) -> tuple[int, int]:
    """The number of groups and the size of each; together at least `outer`."""
    require(outer >= 8, "the trajectories of a diagnosis", got=outer, expected="at least eight", fix="512 is usual.")
    groups = min(GROUPS, outer // 2)
    return groups, -(-outer // groups)


def _draws(task: Task, policy: Policy, size: int, *, key: PRNGKeyArray) -> tuple[Float[Array, "N k"], Noise]:
    thetas = jax.vmap(lambda k: task.prior.sample(key=k))(jr.split(named(key, "theta"), size))
    return thetas, jax.vmap(lambda k: draw_noise(task, policy, key=k))(jr.split(named(key, "noise"), size))


def _own(task: Task, runs: Trajectory) -> Float[Array, " N"]:
    return jax.vmap(lambda run: log_likelihood(task, run.theta, run.ys, run.xis))(runs)


def _flat(gradient: PyTree) -> Float[Array, " P"]:
    return jnp.concatenate([leaf.ravel() for leaf in jax.tree.leaves(gradient)])


def _distances(a: Float[Array, "N dx"], b: Float[Array, "M dx"]) -> Float[Array, "N M"]:
    # Coordinate by coordinate: ‖a‖² − 2⟨a, b⟩ + ‖b‖² would lose short distances to rounding.
    return jnp.sqrt(sum((a[:, i, None] - b[None, :, i]) ** 2 for i in range(a.shape[1])))


# ---- statistics over groups


def _stack(groups: list[Array]) -> Float[np.ndarray, "G P"]:
    return np.stack([np.asarray(group, np.float64) for group in groups])


def _gradient_error(
    means: Float[np.ndarray, "G P"], errors: Float[np.ndarray, "G P"], norm: Estimate, size: int
) -> GradientError:
    """V is the trace of the covariance of one sample: `size` times that of a group's mean."""
    variance = size * float(means.var(0, ddof=1).sum())
    return GradientError(_squared_norm(errors), norm, variance, len(means) * size)


def _squared_norm(means: Float[np.ndarray, "G P"]) -> Estimate:
    """The mean of ⟨X_g, X_h⟩ over g ≠ h: unbiased for ‖E X‖². Its standard error is √2 too large where that is zero."""
    gram = means @ means.T
    np.fill_diagonal(gram, 0.0)
    n, total = len(gram), gram.sum()
    without = (total - 2 * gram.sum(1)) / ((n - 1) * (n - 2))
    return Estimate(float(total / (n * (n - 1))), _jackknife(without))


def _ratio(numerators: Float[np.ndarray, " G"], denominators: Float[np.ndarray, " G"]) -> Estimate:
    """The ratio of two means."""
    above, below = numerators.sum(), denominators.sum()
    with np.errstate(divide="ignore", invalid="ignore"):
        without = (above - numerators) / (below - denominators)
        return Estimate(float(above / below), _jackknife(without))


def _jackknife(without: Float[np.ndarray, " G"]) -> float:
    """Standard error from the estimates that leave out one group each."""
    n = len(without)
    return float(np.sqrt((n - 1) / n * np.square(without - without.mean()).sum()))
