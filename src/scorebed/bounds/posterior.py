"""A lower bound where the model has no density: Barber and Agakov's, with a posterior trained on
the policy's own experiments.

    E[log q(z | y, ξ) − log N(z; 0, I)]  ≤  EIG,   θ = f(z)

Any density q gives a bound, a better one a tighter bound; q learns from some experiments and is
judged on others. The distance to the EIG is the mean divergence of q from the posterior, which
nothing here can measure: there is no upper bound."""

import math
from collections.abc import Callable

import equinox as eqx
import jax
import jax.random as jr
import numpy as np
import optax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree, Scalar

from scorebed.bounds.contrastive import Bounds
from scorebed.densities.mixture_posterior import PosteriorDensity
from scorebed.errors import require
from scorebed.estimators.variational import posterior_gain
from scorebed.keys import named
from scorebed.policies.base import Policy
from scorebed.rollout import draw_noise, rollout
from scorebed.tasks.base import Task
from scorebed.training.fit import Loss, Terms, fit_one

GROUP = 256  # experiments at once


def posterior_bound(
    task: Task,
    policy: Policy,
    fresh: PosteriorDensity,
    *,
    outer: int,
    steps: int,
    batch: int,
    optimiser: optax.GradientTransformation,
    decay: float = 0.99,
    on_step: Callable[[int, int], None] = lambda *_: None,
    key: PRNGKeyArray,
) -> Bounds:
    """The bound from `outer` experiments, by a posterior that starts as `fresh`.
    `posterior_bound_nle` says what it costs.
    """
    require(
        outer >= 2,
        "the size of a bound",
        got=f"outer={outer}",
        expected="at least two experiments",
        fix="use 2048.",
    )

    def loss_for(static: PyTree) -> Loss:
        def loss(params: PyTree, key: PRNGKeyArray) -> Terms:
            density = eqx.combine(params, static)
            gains = jax.vmap(lambda k: _gain(task, policy, density, key=k))(jr.split(key, batch))
            return {"lower bound": -gains.mean()}

        return loss

    trained = fit_one(
        loss_for,
        fresh,
        steps=steps,
        optimiser=optimiser,
        decay=decay,
        key=named(key, "train"),
        on_step=lambda info: on_step(info.step, steps),
    )
    gains = np.asarray(_gains(task, policy, trained, outer, named(key, "outer")), np.float64)
    se = float(gains.std(ddof=1) / math.sqrt(outer))
    nle = posterior_bound_nle(task, outer, steps, batch)
    return Bounds(float(gains.mean()), se, math.nan, math.nan, outer, 0, math.inf, 0.0, nle)


def posterior_bound_nle(task: Task, outer: int, steps: int, batch: int) -> int:
    """No likelihood is evaluated; every simulated outcome is charged."""
    return (steps * batch + outer) * task.horizon


def _gain(task: Task, policy: Policy, density: PosteriorDensity, *, key: PRNGKeyArray) -> Scalar:
    z = jr.normal(named(key, "theta"), (task.prior.dim,))
    run = rollout(
        task, policy, task.prior.from_latent(z), draw_noise(task, policy, key=named(key, "noise"))
    )
    return posterior_gain(task, density, z, run)


@eqx.filter_jit
def _gains(
    task: Task, policy: Policy, density: PosteriorDensity, outer: int, key: PRNGKeyArray
) -> Float[Array, " N"]:
    gain = lambda k: _gain(task, policy, density, key=k)  # noqa: E731
    return jax.lax.map(gain, jr.split(key, outer), batch_size=min(GROUP, outer))
