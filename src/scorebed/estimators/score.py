"""The EIG gradient of Theorem 1, with a score in place of the intractable terms.

    ∇_φ I = E { d/dφ log p(y|ξ,θ) − s_y(y,ξ) ∂y/∂φ − s_ξ(y,ξ) ∂ξ/∂φ },   (y, ξ) = g(ε, θ, φ)

Each function maps one trajectory to a scalar whose gradient in the policy is that integrand; its
*value* is not an EIG. Averaged over a batch and differentiated once it costs one backward pass, and
the score is evaluated once per trajectory.

Where there is no log p(y|ξ,θ), or only some parameters ψ are of interest, the score has a
conditional part (`Score.conditional_at`), which takes the place of the first term: ⟨stop(s_c −
s_m), (y, ξ)⟩."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray, Scalar

from scorebed._jit import jit_once
from scorebed.errors import ScorebedError
from scorebed.keys import named
from scorebed.policies.base import Policy
from scorebed.rollout import Noise, Trajectory, log_likelihood, price, rollout, simulate_outcomes
from scorebed.scores.base import Score
from scorebed.tasks.base import State, Task
from scorebed.tasks.nuisance import refuse_nuisance

CHECKED_STEPS = 8


def adaptive(
    task: Task, score: Score, policy: Policy, theta: Float[Array, " k"], noise: Noise
) -> Scalar:
    """log p − ⟨stop(s_y), y⟩ − ⟨stop(s_ξ), ξ⟩, for any policy. T NLE, and those of the score."""
    run = rollout(task, policy, theta, noise)
    return _first_term(task, score, run, _along) - _along(score, run) - price(task, run.xis)


def static(
    task: Task, score: Score, policy: Policy, theta: Float[Array, " k"], noise: Noise
) -> Scalar:
    """The same without the Fisher term, which has mean zero when designs do not depend on the data.
    The same cost.

    No error in the ξ-part of a score can bias it. Its variance need not be smaller: with the exact
    score the Fisher term is a control variate, and on one step of the scalar linear-Gaussian task
    at signal-to-noise one `adaptive` has a third of it."""
    run = rollout(task, policy, theta, noise)
    return (
        _first_term(task, score, run, _along_outcomes)
        - _along_outcomes(score, run)
        - price(task, run.xis)
    )


def _along(score: Score, run: Trajectory) -> Scalar:
    """⟨stop(s_y), y⟩ + ⟨stop(s_ξ), ξ⟩."""
    s_y, s_xi = jax.lax.stop_gradient(score(*jax.lax.stop_gradient((run.ys, run.xis))))
    good = jnp.isfinite(s_y).all() & jnp.isfinite(s_xi).all()
    value = (jnp.where(good, s_y, 0) * run.ys).sum() + (jnp.where(good, s_xi, 0) * run.xis).sum()
    return jnp.where(good, value, jnp.nan)  # the trajectory is dropped


def _along_outcomes(score: Score, run: Trajectory) -> Scalar:
    """⟨stop(s_y), y⟩."""
    s_y = jax.lax.stop_gradient(score(*jax.lax.stop_gradient((run.ys, run.xis))).y)
    good = jnp.isfinite(s_y).all()
    return jnp.where(good, (jnp.where(good, s_y, 0) * run.ys).sum(), jnp.nan)


def _first_term(
    task: Task, score: Score, run: Trajectory, along: Callable[[Score, Trajectory], Scalar]
) -> Scalar:
    """log p(y|ξ,θ), whose total derivative is zero for every sample under additive noise, or what
    is learned in its place.
    """
    conditional = score.conditional_at(run.theta)
    if conditional is not None:
        return along(conditional, run)
    refuse_nuisance(
        task, "the score", "train a pair of scores, as train_score does for such a task."
    )
    if task.additive_noise:
        return jnp.zeros((), run.ys.dtype)
    return log_likelihood(task, run.theta, run.ys, run.xis)


def check_additive_noise(task: Task, *, key: PRNGKeyArray, samples: int = 64) -> None:
    """Refuse a false claim of `additive_noise`: d/dξ log p(y(ξ) | θ, ξ) must vanish at fixed θ and
    noise, state by state.

    It is taken along the first `CHECKED_STEPS` steps of random designs, so that noise whose size
    depends on an earlier outcome or design is seen too, and in unconstrained designs, which are of
    order one whatever the units. samples · 2 · 8 NLE at most.

    Without a density the outcome itself must be mean(θ, state, ξ) + g(noise): see `noise_change`.
    """
    if not task.additive_noise:
        return
    if not task.has_density:
        change, allowed = noise_change(task, key=key, samples=samples)
        if change > allowed:
            raise _not_additive(
                task,
                f"a part made by it that changes by {change:.3g} with θ, ξ or the state",
                "none",
            )
        return
    steps = min(CHECKED_STEPS, task.horizon)

    def slopes(key: PRNGKeyArray) -> tuple[Scalar, Scalar]:
        """The largest slope as outcomes follow the designs, and at fixed outcomes for
        comparison.
        """
        theta = task.prior.sample(key=named(key, "theta"))
        us = jr.normal(named(key, "design"), (steps, task.designs.dim))
        noise = jr.normal(named(key, "noise"), (steps, task.noise_dim))

        def log_prob(of_outcomes: Array, us: Array) -> Scalar:
            ys = simulate_outcomes(task, theta, task.designs.constrain(of_outcomes), noise)
            return log_likelihood(task, theta, ys, task.designs.constrain(us))

        through, across = jax.grad(log_prob, argnums=(0, 1))(us, us)
        return jnp.abs(through + across).max(), jnp.abs(across).max()

    along, across = jit_once(jax.vmap(slopes))(jr.split(key, samples))
    # Sample by sample: one large slope, of a design close to a source, must not excuse the others.
    if not jnp.all(along <= 1e-4 * across + 1e-5):
        raise _not_additive(task, f"a likelihood term of up to {float(along.max()):.3g}", "zero")


def noise_change(task: Task, *, key: PRNGKeyArray, samples: int = 64) -> tuple[float, float]:
    """How much y(θ, state, ξ, ε) − y(θ, state, ξ, ε′) changes among experiments of random θ and
    designs, with the same ε and ε′ in each of them, and how much of that may be rounding. Under
    additive noise it does not change.
    """
    steps = min(CHECKED_STEPS, task.horizon)
    probes = jr.normal(named(key, "probes"), (2, steps, task.noise_dim))

    def experiment(key: PRNGKeyArray) -> tuple[Array, Array]:
        theta = task.prior.sample(key=named(key, "theta"))
        us = jr.normal(named(key, "design"), (steps, task.designs.dim))
        noise = jr.normal(named(key, "noise"), (steps, task.noise_dim))

        def step(
            state: State, data: tuple[Array, Array, Array, Array]
        ) -> tuple[State, tuple[Array, Array]]:
            xi, eps, *both = data
            one, two = (task.outcome(theta, state, xi, probe) for probe in both)
            after = task.advance(theta, state, xi, task.outcome(theta, state, xi, eps))
            return after, (one - two, jnp.abs(one) + jnp.abs(two))

        return jax.lax.scan(
            step, task.initial(theta), (task.designs.constrain(us), noise, *probes)
        )[1]

    parts, sizes = jit_once(jax.vmap(experiment))(jr.split(key, samples))
    allowed = 1e-4 * jnp.abs(parts).max() + 8 * jnp.finfo(sizes.dtype).eps * sizes.max()
    return float(jnp.abs(parts - parts[:1]).max()), float(allowed)


def _not_additive(task: Task, got: str, expected: str) -> ScorebedError:
    return ScorebedError(
        f"the noise of {type(task).__name__} is declared additive, got {got}, expected {expected}. "
        "Fix: set additive_noise to False."
    )
