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
    no outcome."""

    sizes = np.linalg.svd(
        np.asarray(_jacobians(task, policy, outer, key), np.float64), compute_uv=False
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        numbers = sizes[:, 0] / sizes[:, -1]
    return np.where(np.isnan(numbers), np.inf, numbers)


@eqx.filter_jit
def _jacobians(
    task: Task, policy: Policy, outer: int, key: PRNGKeyArray
) -> Float[Array, "N rows columns"]:
    def one(theta: Array, noise: Noise) -> Array:
        xis = rollout(task, policy, theta, noise).xis
        jacobian = jax.jacfwd(
            lambda xis: simulate_outcomes(task, theta, xis, noise.outcome).ravel()
        )(xis)
        return jacobian.reshape(jacobian.shape[0], -1)

    return jax.vmap(one)(*draws(task, policy, outer, key=key))
