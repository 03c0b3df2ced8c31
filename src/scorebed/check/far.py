"""Where a model is not finite although its prior's draws are: the shell around them that scores and
proposals may look at.

Scores keep their points within √k + 4 of the prior's centre (`tasks/priors.py`), and one draw of
the prior in 10⁴ lies beyond √k + 3. A model that overflows in that shell can still be trained:
points and trajectories there are left out and counted. It is better finite.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from scorebed._jit import jit_once
from scorebed.check.draws import random_designs
from scorebed.check.finding import WARNING, Finding
from scorebed.tasks.base import Task
from scorebed.tasks.priors import REACH

RADII = (0.0, REACH, REACH + 1)  # beyond √k; the first is among the prior's draws
DIRECTIONS = 192  # random ones at each radius, besides those along the axes


class Overflow(NamedTuple):
    """The share of parameters at which a step of the model is not finite, at the smallest radius
    that has any, and one of them with its design.
    """

    radius: float
    share: float
    theta: np.ndarray
    xi: np.ndarray

    def words(self, task: Task) -> str:
        """The parameters and the design, with their units."""
        named = [*task.prior.quantities, *task.designs.quantities]
        values = [*self.theta, *self.xi]
        return ", ".join(
            f"{q.name} = {value:.3g}{' ' + q.unit if q.unit else ''}"
            for q, value in zip(named, values, strict=True)
        )


def find_overflow(task: Task, *, key: PRNGKeyArray) -> Overflow | None:
    """Look for parameters at which the first step is not finite, farther and farther out; None if
    there are none. About 600 NLE.
    """
    random = np.random.default_rng(np.asarray(jr.key_data(key)))
    k = task.prior.dim
    axes = np.concatenate([np.eye(k), -np.eye(k)])
    around = random.standard_normal((DIRECTIONS, k))
    directions = np.concatenate([axes, around / np.linalg.norm(around, axis=1, keepdims=True)])
    count = len(directions)
    xis = random_designs(task, random, (count, 1))[:, 0]
    z_data = random.standard_normal((count, k))
    noise = random.standard_normal((count, task.noise_dim))
    program = jit_once(jax.vmap(lambda *each: _finite_step(task, *each)))
    for beyond in RADII:
        radius = math.sqrt(k) + beyond
        given = (jnp.asarray(x, jnp.float32) for x in (radius * directions, z_data, xis, noise))
        good, thetas, designs = map(np.asarray, program(*given))
        if not good.all():
            where = int(np.argmin(good))
            return Overflow(radius, float(1 - good.mean()), thetas[where], designs[where])
    return None


def far_findings(task: Task, *, key: PRNGKeyArray) -> list[Finding]:
    """A warning about a model that overflows around the prior's draws."""
    found = find_overflow(task, key=key)
    if found is None:
        return []
    return [
        Finding(
            "overflow",
            WARNING,
            f"the model is NaN or infinite for {found.share:.0%} of the parameters "
            f"{found.radius:.1f} standard deviations from the centre of the prior, as at "
            f"{found.words(task)}",
            "training leaves such points out; keep the model finite there by smaller steps or an "
            "implicit solver, by jnp.clip of what grows without bound, or by a narrower prior",
        )
    ]


def _finite_step(
    task: Task,
    z: Float[Array, " k"],
    z_data: Float[Array, " k"],
    xi: Float[Array, " dx"],
    noise: Float[Array, " dn"],
) -> tuple[Bool[Array, ""], Float[Array, " k"], Float[Array, " dx"]]:
    """Whether the first step at f(z) is finite with all its gradients, for data of f(z_data)."""
    theta, other = task.prior.from_latent(z), task.prior.from_latent(z_data)
    if task.feasible is not None:
        xi = task.feasible.obey(xi[None])[0]
    y = task.outcome(other, task.initial(other), xi, noise)

    def value(theta: Array, y: Array, xi: Array) -> Array:
        if task.has_density:
            return task.log_prob(y, theta, task.initial(theta), xi)
        return task.outcome(theta, task.initial(theta), xi, noise).sum()

    found, gradients = jax.value_and_grad(value, argnums=(0, 1, 2))(theta, y, xi)
    good = jnp.stack([jnp.isfinite(part).all() for part in (found, *gradients)]).all()
    return good, theta, xi
