"""How outcomes depend on designs along a policy's experiments: the Jacobian through which errors of
a score pass.
"""

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from scorebed.diagnostics.groups import draws
from scorebed.policies.base import Policy
from scorebed.rollout import Noise, rollout, simulate_outcomes
from scorebed.tasks.base import Task


def conditioning(
    task: Task, policy: Policy, *, outer: int = 256, key: PRNGKeyArray
) -> Float[np.ndarray, " N"]:
    """Condition numbers κ = σ_max / σ_min of ∂y_{1:T}/∂ξ_{1:T} at fixed θ and noise, on a policy's
    trajectories.

    The Jacobian turns errors of s_y into errors of the gradient. Infinite where some designs move
    no outcome. `per_trajectory` gives the score's errors beside them."""
    return condition_numbers(_jacobians(task, policy, outer, key))


def condition_numbers(jacobians: Float[Array, "N rows columns"]) -> Float[np.ndarray, " N"]:
    """σ_max / σ_min of each."""
    sizes = np.linalg.svd(np.asarray(jacobians, np.float64), compute_uv=False)
    with np.errstate(divide="ignore", invalid="ignore"):
        numbers = sizes[:, 0] / sizes[:, -1]
    return np.where(np.isnan(numbers), np.inf, numbers)


def design_jacobian(
    task: Task, theta: Float[Array, " k"], xis: Float[Array, "T dx"], noise: Noise
) -> Float[Array, "rows columns"]:
    """∂y_{1:T}/∂ξ_{1:T} of one experiment, as a matrix."""
    jacobian = jax.jacfwd(lambda xis: simulate_outcomes(task, theta, xis, noise.outcome).ravel())(
        xis
    )
    return jacobian.reshape(jacobian.shape[0], -1)


@eqx.filter_jit
def _jacobians(
    task: Task, policy: Policy, outer: int, key: PRNGKeyArray
) -> Float[Array, "N rows columns"]:
    def one(theta: Array, noise: Noise) -> Array:
        return design_jacobian(task, theta, rollout(task, policy, theta, noise).xis, noise)

    return jax.vmap(one)(*draws(task, policy, outer, key=key))
