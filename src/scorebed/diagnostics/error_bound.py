"""The paper's bound on the error of the gradient by the error of the score (App. B, Error Bounds).

    ‖∇I − Ĝ‖ ≤ E[‖e_y‖ ‖∂y/∂φ‖_op + ‖e_ξ‖ ‖∂ξ/∂φ‖_op] ≤ L_y E‖e_y‖ + L_ξ E‖e_ξ‖

with e = s − μ and L_y = sup ‖∂y/∂φ‖_op, L_ξ = sup ‖∂ξ/∂φ‖_op over all trajectories at this policy.
The middle form is a step of the proof, and far sharper where the largest Jacobians are rare. The
suprema are taken over the trajectories drawn, so L_y and L_ξ are lower estimates of the Lipschitz
constants: the last form is only as large as what was seen. Operator norms come from power iteration
on J Jᵀ with one vjp and one jvp through the rollout each; no Jacobian is ever formed. They approach
the norm from below.

A noisy ground truth makes ‖e‖ too large, never too small on average: the bound stays one."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree, Scalar

from scorebed.diagnostics.gradient_error import OnGroup, silent
from scorebed.diagnostics.groups import Estimate, Runs, grouping, runs, true_scores
from scorebed.keys import named
from scorebed.policies.base import Policy
from scorebed.rollout import Noise, rollout
from scorebed.scores.base import Score, ScoreValue
from scorebed.scores.reference import Truth
from scorebed.tasks.base import Task

ITERATIONS = 32


class ErrorBound(NamedTuple):
    """Operator norms of ∂y/∂φ and ∂ξ/∂φ and norms of e_y and e_ξ, by trajectory; and what finding
    them has cost.

    Training of static designs leaves out the ξ-part of a score, and so do their bounds: norms of
    e_ξ are zero there."""

    norms_y: Float[np.ndarray, " N"]
    norms_xi: Float[np.ndarray, " N"]
    errors_y: Float[np.ndarray, " N"]
    errors_xi: Float[np.ndarray, " N"]
    nle: int

    @property
    def lipschitz_y(self) -> float:
        """L_y: the largest norm seen, a lower estimate."""
        return float(self.norms_y.max())

    @property
    def lipschitz_xi(self) -> float:
        """L_ξ: the largest norm seen, a lower estimate."""
        return float(self.norms_xi.max())

    @property
    def bound(self) -> float:
        """L_y E‖e_y‖ + L_ξ E‖e_ξ‖."""
        y, xi = self.errors_y.mean(), self.errors_xi.mean()
        return float(self.lipschitz_y * y + self.lipschitz_xi * xi)

    @property
    def sharper(self) -> Estimate:
        """E[‖e_y‖ ‖∂y/∂φ‖ + ‖e_ξ‖ ‖∂ξ/∂φ‖]."""
        each = self.norms_y * self.errors_y + self.norms_xi * self.errors_xi
        return Estimate(float(each.mean()), float(each.std(ddof=1) / np.sqrt(len(each))))

    def values(self) -> dict[str, float]:
        """In plain values: the constants with quantiles of the norms, the mean errors, and both
        forms of the bound.
        """
        found = {"bound": self.bound, "sharper": self.sharper.value, "sharper_se": self.sharper.se}
        parts = {"y": (self.norms_y, self.errors_y), "xi": (self.norms_xi, self.errors_xi)}
        for name, (norms, errors) in parts.items():
            found[f"lipschitz_{name}"] = float(norms.max())
            found[f"norm_{name}_median"] = float(np.median(norms))
            found[f"norm_{name}_90%"] = float(np.quantile(norms, 0.9))
            found[f"mean_error_{name}"] = float(errors.mean())
        return found


def error_bound(
    task: Task,
    score: Score,
    truth: Truth,
    policy: Policy,
    *,
    outer: int = 256,
    iterations: int = ITERATIONS,
    on_group: OnGroup = silent,
    key: PRNGKeyArray,
) -> ErrorBound:
    """The bound at `policy`, from `outer` trajectories, ‖∇I − Ĝ‖ ≤ L_y E‖e_y‖ + L_ξ E‖e_ξ‖. A call
    of the truth and of the score for each.
    """
    count, size = grouping(outer)
    rows, passes = [], 0
    for g in range(count):
        base = named(key, g)
        made = runs(task, policy, size, base)
        found = true_scores(truth, made.ys, made.xis, named(base, "truth"))
        rows.append(
            np.asarray(
                _norms(task, score, policy, made, found.value, iterations, named(base, "start")),
                np.float64,
            )
        )
        passes += int(found.passes)
        on_group(g + 1, count)
    # Rollouts: the trajectory, and the linearised one.
    nle = count * size * (score.nle + 2 * policy.design_nle) + passes * truth(key).pass_nle
    norms_y, norms_xi, errors_y, errors_xi = np.concatenate(rows, axis=1)
    return ErrorBound(norms_y, norms_xi, errors_y, errors_xi, nle)


def operator_norm(
    task: Task,
    policy: Policy,
    theta: Float[Array, " k"],
    noise: Noise,
    *,
    iterations: int = ITERATIONS,
    key: PRNGKeyArray,
) -> Float[Array, " 2"]:
    """‖∂y_{1:T}/∂φ‖_op and ‖∂ξ_{1:T}/∂φ‖_op of one trajectory, φ being all parameters of the policy
    in one vector. No NLE but those of the policy's designs.
    """
    params, frozen = eqx.partition(policy, eqx.is_inexact_array)

    def roll(params: PyTree) -> ScoreValue:
        run = rollout(task, eqx.combine(params, frozen), theta, noise)
        return ScoreValue(run.ys, run.xis)

    made, push = jax.linearize(roll, params)
    pull = jax.linear_transpose(push, params)

    def norm(part: int, key: PRNGKeyArray) -> Scalar:
        def pulled(v: Array) -> PyTree:
            zeros = [jnp.zeros_like(x) for x in made]
            zeros[part] = v
            return pull(ScoreValue(*zeros))[0]

        def step(v: Array, _: None) -> tuple[Array, None]:
            return _unit(push(pulled(v))[part]), None

        v, _ = jax.lax.scan(step, _unit(jr.normal(key, made[part].shape)), None, iterations)
        return jnp.sqrt(sum((leaf**2).sum() for leaf in jax.tree.leaves(pulled(v))))

    return jnp.stack([norm(part, named(key, part)) for part in range(2)])


@eqx.filter_jit
def _norms(
    task: Task,
    score: Score,
    policy: Policy,
    made: Runs,
    mu: ScoreValue,
    iterations: int,
    key: PRNGKeyArray,
) -> Float[Array, "4 N"]:
    norms = jax.vmap(
        lambda theta, noise, key: operator_norm(
            task, policy, theta, noise, iterations=iterations, key=key
        )
    )(made.thetas, made.noises, jr.split(key, len(made.thetas)))
    s = jax.vmap(score)(made.ys, made.xis)
    errors = [jnp.sqrt(((a - b) ** 2).sum((1, 2))) for a, b in zip(s, mu, strict=True)]
    if not policy.adaptive:
        errors[1] = jnp.zeros_like(errors[1])
    return jnp.concatenate([norms.T, jnp.stack(errors)])


def _unit(v: Array) -> Array:
    """v / ‖v‖, and zero for zero."""
    size = jnp.sqrt((v**2).sum())
    return v / jnp.where(size > 0, size, 1)
