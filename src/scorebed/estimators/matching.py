"""What a score is trained on, one experiment at a time.

Marginal score matching (paper, eq. "msm_loss"): regress s(y, ξ) on ∇_{y,ξ} log p(y | ξ, θ), with a
weight on the y-part,

    J = λ_y ‖s_y − ∇_y log p(y|ξ,θ)‖² + ‖s_ξ − ∇_ξ log p(y|ξ,θ)‖².

Experiments that are not finite, or at which the score is not, have terms that are NaN and gradients
that are zero: whoever averages can drop them.

Its minimiser is the marginal score wherever (y, ξ) is drawn, for any positive weight that depends
on (y, ξ) alone (clipping the residuals, or a Huber loss, would move it). Rollouts of a policy may
enter it, since a policy sees θ only through the data.

Sliced score matching needs no likelihood, and the bias penalty no target; both need designs drawn
*before* the data."""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, PRNGKeyArray, Scalar

from scorebed.errors import require
from scorebed.rollout import Trajectory, log_likelihood
from scorebed.samplers.base import Unconstrained
from scorebed.scores.base import Score, ScoreValue
from scorebed.tasks.base import Task


class MatchingTerms(NamedTuple):
    """The two parts of a score-matching loss."""

    y: Scalar
    xi: Scalar


def conditional_score(task: Task, run: Trajectory) -> ScoreValue:
    """∇_{y,ξ} log p(y | ξ, θ), the target of marginal score matching. T NLE."""
    return ScoreValue(*jax.grad(log_likelihood, argnums=(2, 3))(task, run.theta, run.ys, run.xis))


def marginal_score_matching(
    score: Score,
    task: Task,
    run: Trajectory,
    *,
    lambda_y: Float[Array, "*dy"],
    lambda_xi: Float[Array, "*dx"],
    relative: float,
) -> MatchingTerms:
    """λ_y r_y² and λ_ξ r_ξ², summed over steps and coordinates. T NLE, and those of the score.

    With `relative` > 0 every residual is also divided by 1 + relative · Tn · λ s² (n
    coordinates), behind a stop-gradient: the squared size of the score at that step, in units of
    the typical one where λ makes both parts of order one. Such a weight depends on (y, ξ) alone,
    and keeps a few large scores from drowning the others. Both scores of a pair are regressed on
    the same target."""
    good, target, values = _finite_parts(score, task, run)

    def part(value: Array, target: Array, scale: Array) -> Scalar:
        size = value.size * (scale * value**2).mean(-1, keepdims=True)
        return (scale * (value - target) ** 2 / (1 + relative * jax.lax.stop_gradient(size))).sum()

    return MatchingTerms(
        _unless(good, _total([part(value.y, target.y, lambda_y) for value in values])),
        _unless(good, _total([part(value.xi, target.xi, lambda_xi) for value in values])),
    )


def rescaled_score_matching(
    score: Score,
    task: Task,
    run: Trajectory,
    *,
    lambda_y: Float[Array, "*dy"],
    lambda_xi: Float[Array, "*dx"],
) -> tuple[MatchingTerms, Scalar]:
    """The same with learned weights: λ r² e^{−ℓ}, where ℓ(y, ξ) = `score.log_residual_scale`
    estimates the log of the squared residual, and the loss of ℓ itself, the mean over steps of
    r² e^{−ℓ} + ℓ, whose minimiser is ℓ = log E[r² | y, ξ].

    Each is held fixed in the other's term, so the score keeps its minimiser, and steps count by how
    well they can be predicted. The residuals of a pair are added: a weight that depends on (y, ξ)
    alone serves both."""
    good, target, values = _finite_parts(score.kept, task, run)
    log_size = score.log_residual_scale(*_finite_run(run)[1][1:])
    require(
        log_size is not None,
        "rescaled score matching",
        got=f"a {type(score).__name__}",
        expected="a score that learns the scale of its residuals",
        fix="wrap it: SelfWeighingScore(score, ResidualScale(task, standardise, key=…)).",
    )
    assert log_size is not None  # for the type checker

    def part(
        values: list[Array], target: Array, scale: Array, log_size: Array
    ) -> tuple[Scalar, Scalar]:
        square = _total([scale * (value - target) ** 2 for value in values])
        typical = jax.lax.stop_gradient(target.size * square.mean(-1))
        fitted = (typical * jnp.exp(-log_size) + log_size).mean()
        return (square * jnp.exp(-jax.lax.stop_gradient(log_size))[:, None]).sum(), fitted

    y, weigher_y = part([value.y for value in values], target.y, lambda_y, log_size[:, 0])
    xi, weigher_xi = part([value.xi for value in values], target.xi, lambda_xi, log_size[:, 1])
    terms = MatchingTerms(_unless(good, y), _unless(good, xi))
    return terms, _unless(good, weigher_y + weigher_xi)


def sliced_score_matching(
    score: Score,
    sampler: Unconstrained,
    ys: Float[Array, "T dy"],
    us: Float[Array, "T dx"],
    *,
    lambda_y: Float[Array, "*dy"] | None = None,
    lambda_u: Float[Array, "*dx"] | None = None,
    key: PRNGKeyArray,
) -> Scalar:
    """vᵀ ∇S v + ½ E(vᵀS)² for one random direction v, where S is the score of the joint density of
    (y, u). No NLE.

    Designs are taken in unconstrained coordinates u, where integration by parts has no boundary.
    The joint score is S = (s_y, s_ξ ∂ξ/∂u + ∇_u log q(u)): the designs' density is added here, so
    that s keeps the conditional part.

    v has independent coordinates ±1, those of y times √λ_y and those of u times √λ_u: the minimiser
    is the score for any of them.
    """
    key_y, key_u = jr.split(key)
    weights = tuple(
        jnp.broadcast_to(jnp.ones((), x.dtype) if scale is None else scale, x.shape)
        for x, scale in ((ys, lambda_y), (us, lambda_u))
    )
    direction = (
        jnp.sqrt(weights[0]) * jr.rademacher(key_y, ys.shape, ys.dtype),
        jnp.sqrt(weights[1]) * jr.rademacher(key_u, us.shape, us.dtype),
    )
    log_q = jax.grad(sampler.log_prob_unconstrained)

    def joint(ys: Float[Array, "T dy"], us: Float[Array, "T dx"]) -> tuple[Array, Array]:
        xis, pull_back = jax.vjp(sampler.space.constrain, us)
        s = score(ys, xis)
        return s.y, pull_back(s.xi)[0] + log_q(us)

    value, slope = jax.jvp(joint, (ys, us), direction)
    squares = sum((w * x**2).sum() for w, x in zip(weights, value, strict=True))
    return _inner(direction, slope) + 0.5 * squares


def bias_penalty(
    score: Score,
    ys: Float[Array, "M T dy"],
    xis: Float[Array, "T dx"],
    *,
    lambda_y: Float[Array, "*dy"],
    lambda_xi: Float[Array, "*dx"],
) -> MatchingTerms:
    """The U-statistic of λ ‖E_{y|ξ} s(y, ξ)‖² from M ≥ 2 outcomes of the same designs,
    U = λ/(M(M−1)) Σ_{i≠j} s(y_i, ξ)ᵀ s(y_j, ξ). No NLE but those of the score.

    The true score has mean zero over y at fixed designs, so the penalty leaves the minimiser where
    it is. It is unbiased, hence sometimes negative."""
    m = len(ys)
    require(
        m >= 2,
        "the outcomes of a bias penalty",
        got=m,
        expected="at least two of the same designs",
        fix="draw more outcomes per design.",
    )
    values = jax.vmap(score, in_axes=(0, None))(ys, xis)

    def part(s: Float[Array, "M T n"], scale: Array) -> Scalar:
        return (scale * (jnp.square(s.sum(0)) - jnp.square(s).sum(0))).sum() / (m * (m - 1))

    return MatchingTerms(part(values.y, lambda_y), part(values.xi, lambda_xi))


def _finite_run(run: Trajectory) -> tuple[Bool[Array, ""], tuple[Array, Array, Array]]:
    """Whether an experiment is finite; θ, y and ξ, or zeros, which a network can be differentiated
    at.
    """
    parts = (run.theta, run.ys, run.xis)
    good = jnp.stack([jnp.isfinite(part).all() for part in parts]).all()
    return good, (
        jnp.where(good, run.theta, 0),
        jnp.where(good, run.ys, 0),
        jnp.where(good, run.xis, 0),
    )


def _finite_parts(
    score: Score, task: Task, run: Trajectory
) -> tuple[Bool[Array, ""], ScoreValue, list[ScoreValue]]:
    """Whether an experiment, its target and the values of its scores are finite; the target and the
    values, or zeros. T NLE, and those of the score.
    """
    usable, (theta, ys, xis) = _finite_run(run)
    target = conditional_score(task, Trajectory(theta, ys, xis))
    values = [each(ys, xis) for each in score.parts(theta)]
    found = [target, *values]
    good = usable & jnp.stack([jnp.isfinite(x).all() for each in found for x in each]).all()
    cleaned = [ScoreValue(*(jnp.where(good, x, 0) for x in each)) for each in found]
    return good, cleaned[0], cleaned[1:]


def _unless(good: Bool[Array, ""], term: Scalar) -> Scalar:
    """The term of an experiment, NaN where it is to be dropped; the gradient is then zero."""
    return jnp.where(good, term, jnp.nan)


def _total(terms: Sequence[Array]) -> Array:
    return sum(terms[1:], start=terms[0])


def _inner(a: tuple[Array, Array], b: tuple[Array, Array]) -> Scalar:
    return (a[0] * b[0]).sum() + (a[1] * b[1]).sum()
