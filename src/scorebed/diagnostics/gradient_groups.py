"""Gradients of a score, of the truth and of rivals on the same trajectories, in groups that share
no draws: what every comparison of gradients starts from.

Per trajectory n, with the score's error e = s − μ pulled back through its rollout,

    g_μ = d/dφ log p − (∂y/∂φ)ᵀμ_y − (∂ξ/∂φ)ᵀμ_ξ,     g_s = g_μ − (∂y/∂φ)ᵀe_y − (∂ξ/∂φ)ᵀe_ξ

Each estimator is the one that trains such a policy: static designs leave out the ξ-part, prices of
designs are subtracted, and where training clips trajectories (`trajectory_clip`), so does the group
with both gradients, chunk by chunk as a batch does."""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree, Scalar

from scorebed.diagnostics.groups import Runs, runs, true_scores
from scorebed.estimators.log_ratios import lower_log_ratio
from scorebed.estimators.trajectory_clip import chunk_size, clip_factors
from scorebed.keys import named
from scorebed.policies.base import Policy
from scorebed.rollout import Noise, log_likelihood, log_likelihoods, price, rollout
from scorebed.scores.base import Score, ScoreValue
from scorebed.scores.reference import Truth
from scorebed.tasks.base import Task

# `estimate(task, policy, theta, noise, *, key)`: one trajectory → a scalar whose gradient in the
# policy is that of the EIG.
Estimator: TypeAlias = Callable[..., Any]


class Clipping(NamedTuple):
    """How training clips trajectories: its batch, and its longest gradient in medians; 0 for the
    plain mean.
    """

    batch: int = 64
    trajectory_clip: float = 0.0

    @property
    def chunk(self) -> int:
        """Trajectories that are clipped together."""
        return chunk_size(self.batch)


PLAIN = Clipping()


class GradientGroup(NamedTuple):
    """Means over one group, and squared lengths of each of its trajectories.

    `error` and `truth` are plain means of g_s − g_μ and g_μ; `used` and `reference` those of g_s
    and g_μ as training uses them; `pce` are plain means of rivals. Trajectories of which either
    gradient is not finite count as zero, as in training, and are `dropped`."""

    error: Float[Array, " P"]
    truth: Float[Array, " P"]
    used: Float[Array, " P"]
    reference: Float[Array, " P"]
    pce: list[Float[Array, " P"]]
    squared_errors: Float[Array, " N"]
    squared_lengths: Float[Array, " N"]
    dropped: Int[Array, ""]
    passes: Int[Array, ""]


def gradient_group(
    task: Task,
    guide: Score | Estimator,
    truth: Truth,
    policy: Policy,
    size: int,
    clipping: Clipping,
    pce: tuple[int, ...],
    key: PRNGKeyArray,
) -> GradientGroup:
    """One group of `size` trajectories. `group_nle` has its cost."""
    made = runs(task, policy, size, key)
    mu, passes = true_scores(truth, made.ys, made.xis, named(key, "truth"))
    found = _pulled_back(task, guide, policy, made, mu, clipping, pce, key)
    return found._replace(passes=passes)


@eqx.filter_jit
def _pulled_back(
    task: Task,
    guide: Score | Estimator,
    policy: Policy,
    made: Runs,
    mu: ScoreValue,
    clipping: Clipping,
    pce: tuple[int, ...],
    key: PRNGKeyArray,
) -> GradientGroup:
    params, frozen = eqx.partition(policy, eqx.is_inexact_array)
    size = len(made.thetas)

    def roll(params: PyTree, theta: Array, noise: Noise) -> tuple[Array, Array, Array, Array]:
        return _roll(task, eqx.combine(params, frozen), theta, noise)

    # One copy of the parameters for each trajectory: the pullback then gives a gradient for each.
    copies = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (size, *leaf.shape)), params)
    (_, _, log_p0, _), pull_back = jax.vjp(
        lambda copies: jax.vmap(roll)(copies, made.thetas, made.noises), copies
    )
    fisher = 1.0 if policy.adaptive else 0.0
    # Additive noise makes the likelihood term of the score's gradient zero for every sample, up to
    # rounding.
    ones, zeros = jnp.ones_like(log_p0), jnp.zeros_like(log_p0)
    likelihood = zeros if task.additive_noise else ones
    of_truth = _rows(pull_back((-mu.y, -fisher * mu.xi, likelihood, -ones)))
    if isinstance(guide, Score):
        s = jax.vmap(guide)(made.ys, made.xis)
        off = _rows(pull_back((mu.y - s.y, fisher * (mu.xi - s.xi), zeros, zeros)))
    else:

        def estimate(params: PyTree, theta: Array, noise: Noise, key: PRNGKeyArray) -> Scalar:
            value: Scalar = guide(task, eqx.combine(params, frozen), theta, noise, key=key)
            return value

        keys = jr.split(named(key, "estimate"), size)
        each = jax.vmap(jax.grad(estimate))(copies, made.thetas, made.noises, keys)
        off = _rows(each) - of_truth
    finite = jnp.isfinite(off).all(1) & jnp.isfinite(of_truth).all(1)
    off, of_truth = (jnp.where(finite[:, None], rows, 0) for rows in (off, of_truth))

    def contrast(y: Array, xi: Array, log_p0: Array, inner: int, key: PRNGKeyArray) -> Scalar:
        """PCE of one trajectory; no two trajectories share draws."""
        others = jax.vmap(lambda k: task.prior.sample(key=k))(jr.split(key, inner))
        total = jax.nn.logsumexp(log_likelihoods(task, others, y, xi))
        return lower_log_ratio(log_p0, log_p0, total, inner)

    def rival(inner: int) -> Array:
        keys = jr.split(named(key, "contrast", inner), size)
        slopes = jax.vmap(jax.grad(contrast, argnums=(0, 1, 2)), in_axes=(0, 0, 0, None, 0))
        each = slopes(made.ys, made.xis, log_p0, inner, keys)
        return _rows(pull_back((*each, -ones))).mean(0)

    return GradientGroup(
        error=off.mean(0),
        truth=of_truth.mean(0),
        used=clipped_mean(of_truth + off, clipping),
        reference=clipped_mean(of_truth, clipping),
        pce=[rival(m) for m in pce],
        squared_errors=(off**2).sum(1),
        squared_lengths=(of_truth**2).sum(1),
        dropped=(~finite).sum(),
        passes=jnp.zeros((), int),
    )


def _roll(
    task: Task, policy: Policy, theta: Array, noise: Noise
) -> tuple[Array, Array, Array, Array]:
    """Outcomes, designs, log-likelihood and price of one trajectory."""
    run = rollout(task, policy, theta, noise)
    return run.ys, run.xis, log_likelihood(task, theta, run.ys, run.xis), price(task, run.xis)


def clipped_mean(gradients: Float[Array, "N P"], clipping: Clipping) -> Float[Array, " P"]:
    """Their mean as training takes it: in units of the longest length that it allows, where it
    clips. What does not fill a chunk is a smaller chunk.
    """
    if not clipping.trajectory_clip:
        return gradients.mean(0)
    n, chunk = len(gradients), min(clipping.chunk, len(gradients))
    lengths = jnp.sqrt((gradients**2).sum(1))
    parts = [lengths[i : i + chunk] for i in range(0, n, chunk)]
    factors = jnp.concatenate([clip_factors(part, clipping.trajectory_clip) for part in parts])
    return factors @ gradients / n


def group_nle(
    task: Task, guide: Score | Estimator, policy: Policy, size: int, pce: tuple[int, ...]
) -> int:
    """Likelihood evaluations of a group, without those of the truth: one likelihood of each
    trajectory, a call of the score, M + 1 likelihoods for each of `pce`, and the designs of a
    policy that evaluates the model. An estimator's own are not known here.
    """
    likelihoods = 1 + sum(m + 1 for m in pce)
    own = guide.nle if isinstance(guide, Score) else 0
    return size * (likelihoods * task.horizon + own + 2 * policy.design_nle)


def _rows(gradients: PyTree) -> Float[Array, "N P"]:
    """One row of all parameters for each trajectory."""
    leaves = jax.tree.leaves(gradients)
    return jnp.concatenate([leaf.reshape(len(leaf), -1) for leaf in leaves], axis=1)
