"""A lower bound where the model has no density: Barber and Agakov's, with a posterior trained on
the experiments of the policy.

    E[log q(z | y, ξ) − log N(z; 0, I)]  ≤  EIG,   θ = f(z)

Any density q gives a bound, a better one a tighter bound; q learns from some experiments and is
judged on others. The distance to the EIG is the mean divergence of q from the posterior, which
nothing here can measure: there is no upper bound."""

import math
from collections.abc import Callable
from typing import Any, ClassVar, TypeAlias

import equinox as eqx
import jax
import jax.random as jr
import numpy as np
import optax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree, Scalar

from scorebed._jit import jit_once
from scorebed.bounds.base import Bound, Bounds, OnGroup, silent, size
from scorebed.bounds.groups import GroupSums
from scorebed.densities.mixture_posterior import MixturePosterior, PosteriorDensity
from scorebed.errors import require
from scorebed.estimators.variational import posterior_gain
from scorebed.keys import named
from scorebed.policies.base import Policy
from scorebed.rollout import draw_noise, rollout
from scorebed.samplers.paper import paper_sampler
from scorebed.scores.standardise import standardiser
from scorebed.tasks.base import Task
from scorebed.training.fit import Loss, Terms, fit_one

GROUP = 256  # experiments at once

# (task, *, key) → an untrained posterior.
MakePosterior: TypeAlias = Callable[..., PosteriorDensity]


def small_posterior(task: Task, *, key: PRNGKeyArray) -> PosteriorDensity:
    """An untrained mixture posterior for CPUs, its inputs standardised on the paper's sampler."""

    def make(key: PRNGKeyArray) -> MixturePosterior:
        standardise = standardiser(task, paper_sampler(task), key=named(key, "standardise"))
        return MixturePosterior.small(task, standardise, key=named(key, "init"))

    made: MixturePosterior = jit_once(make)(key)
    return made


def cosine_adam(steps: int) -> optax.GradientTransformation:
    """Adam with a cosine decay from 10⁻³, behind clipping at 10."""
    schedule = optax.cosine_decay_schedule(1e-3, steps)
    return optax.chain(optax.clip_by_global_norm(10.0), optax.adam(schedule))


class PosteriorBound(Bound):
    """A trained posterior, for any task, with or without a density; there is no upper bound.

    `inner` means nothing to it: no draws are made."""

    name: ClassVar[str] = "posterior"

    outer: int = eqx.field(static=True, default=2048)
    """Number of experiments that the bound is estimated from, N."""
    steps: int = eqx.field(static=True, default=1000)
    """Number of training steps of the posterior."""
    batch: int = eqx.field(static=True, default=256)
    """Number of simulated experiments per training step."""
    decay: float = eqx.field(static=True, default=0.99)
    """Decay of the moving average of the posterior's parameters, which is what is used."""
    make: MakePosterior = eqx.field(static=True, default=small_posterior)
    """Makes the untrained posterior of a task: `make(task, key=key)`."""
    optimiser: Callable[[int], Any] = eqx.field(static=True, default=cosine_adam)
    """The optimiser for so many steps."""

    def __call__(
        self,
        task: Task,
        policy: Policy,
        *,
        outer: int | None = None,
        inner: int | None = None,
        on_group: OnGroup = silent,
        key: PRNGKeyArray,
    ) -> Bounds:
        del inner
        return posterior_bound(
            task,
            policy,
            self.make(task, key=named(key, "posterior")),
            outer=size(outer, self.outer),
            steps=self.steps,
            batch=self.batch,
            decay=self.decay,
            optimiser=self.optimiser(self.steps),
            on_step=on_group,
            key=key,
        )

    def nle(self, task: Task, outer: int, inner: int) -> int:
        """Simulated outcomes; there are no likelihoods to count."""
        del inner
        return posterior_bound_nle(task, outer, self.steps, self.batch)

    def experiments(self, outer: int) -> int:
        return self.steps * self.batch + outer


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
    on_step: OnGroup = silent,
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
    nle += (steps * batch + outer) * policy.design_nle
    each = np.split(gains, outer)
    sums = GroupSums.of(each, [np.full_like(gain, math.nan) for gain in each])
    return Bounds(float(gains.mean()), se, math.nan, math.nan, outer, 0, math.inf, 0.0, nle, sums)


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
