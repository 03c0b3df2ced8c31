"""Modes of the posterior of a task with Gaussian outcomes, by Levenberg–Marquardt from several
starts.

With residuals r_t(z) = (y_t − mean(θ, state_t, ξ_t)) / scale(θ, state_t, ξ_t), θ = f(z), and the
prior N(z; 0, I), a mode minimises

    ½ Σ_t r_t(z)² + ½ |z|²,   gradient  z + Hᵀ r,   curvature  P = I + Hᵀ H,   H = ∂r/∂z

and a step goes to z − (P + λ diag P)⁻¹ (z + Hᵀ r): taken if it goes down, with λ a fifth
afterwards, else refused, with λ five times as large. Near a mode the posterior is about N(z, P⁻¹).
The size of the noise is taken as constant in a step.

For independent steps and Markov transitions, whose states follow from the data. An iteration costs
2 T NLE a start, without its derivatives, which the paper does not count for its estimators either.
When wrong: a posterior of many modes needs many starts, and one that is flat or curved is not
described by the curvature at its modes."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Scalar

from scorebed.errors import InvalidValueError
from scorebed.tasks.base import Gaussian, State, Task

# λ at the start, and its limits.
DAMPING, LEAST, MOST = 0.1, 1e-6, 1e4
ACCEPTED, REFUSED = 0.2, 5.0
SAME = 1e-2  # modes this close in z are one
MANY = 10  # parameters: the posterior of more is hardly a sum of few Gaussians


class Data(NamedTuple):
    """A history with the state before every step, and which of its steps have been taken."""

    ys: Float[Array, "T dy"]
    states: State
    xis: Float[Array, "T dx"]
    taken: Bool[Array, " T"]


class Point(NamedTuple):
    """Minus the log posterior at z up to a constant, its gradient and its curvature."""

    value: Scalar
    gradient: Float[Array, " k"]
    curvature: Float[Array, "k k"]


def gaussian_task(task: Task, purpose: str) -> Task:
    """The task, refused unless modes of its posterior can be found."""
    if isinstance(task, Gaussian) and task.states_follow_data:
        return task
    raise InvalidValueError(
        f"a task for {purpose}",
        got=type(task).__name__,
        expected="Gaussian outcomes of independent steps or Markov transitions",
        fix="write it with `mean` and `scale` as IID or Markov, or use another kind of score or "
        "policy.",
    )


def finds_modes(task: Task) -> bool:
    """Whether modes can be found, of parameters so few that the modes may tell nearly all of the
    posterior.
    """
    return has_modes(task) and task.prior.dim <= MANY


def has_modes(task: Task) -> bool:
    """Whether modes can be found, however little they may tell of the posterior."""
    return isinstance(task, Gaussian) and task.states_follow_data


def starts(count: int, dim: int) -> Float[np.ndarray, "J k"]:
    """Points spread evenly over the prior, always the same ones; its mean for a count of one.

    The mean is never one of several: exchangeable blocks, such as two sources, would start at one
    place and stay together."""
    if count == 1:
        return np.zeros((1, dim), np.float32)
    from scipy.special import ndtri
    from scipy.stats.qmc import Sobol  # which takes longer to import than JAX

    return ndtri(Sobol(dim, seed=0).random_base2((count - 1).bit_length())).astype(np.float32)[
        :count
    ]


def residuals(task: Task, z: Float[Array, " k"], data: Data) -> Float[Array, " n"]:
    """Standardised errors of all outcomes, zero for steps that have not been taken. T NLE."""
    assert isinstance(task, Gaussian)
    theta = task.prior.from_latent(z)

    def one(y: Array, state: State, xi: Array) -> Array:
        scale = task.scale(theta, state, xi)
        return (y - task.mean(theta, state, xi)) / jnp.stack(
            [jnp.asarray(s, y.dtype) for s in scale]
        )

    each = jax.vmap(one)(data.ys, data.states, data.xis)
    return jnp.where(data.taken[:, None], each, 0).reshape(-1)


def value(task: Task, z: Float[Array, " k"], data: Data) -> Scalar:
    """½ |r|² + ½ |z|². T NLE."""
    r = residuals(task, z, data)
    return 0.5 * (r @ r) + 0.5 * (z @ z)


def point(task: Task, z: Float[Array, " k"], data: Data) -> Point:
    """Value, gradient and curvature at z. T NLE."""
    r, slopes = jax.linearize(lambda z: residuals(task, z, data), z)
    h = jax.vmap(slopes, out_axes=1)(jnp.eye(len(z), dtype=z.dtype))
    return Point(
        0.5 * (r @ r) + 0.5 * (z @ z), z + h.T @ r, jnp.eye(len(z), dtype=z.dtype) + h.T @ h
    )


def descend(
    task: Task, z: Float[Array, "J k"], damping: Float[Array, " J"], data: Data, *, iterations: int
) -> tuple[Float[Array, "J k"], Float[Array, " J"]]:
    """All starts after so many iterations, with their λ. 2 J T NLE each."""

    def one(z: Array, damping: Array) -> tuple[Array, Array]:
        here = point(task, z, data)
        damped = here.curvature + damping * jnp.diag(jnp.diag(here.curvature))
        there = z - jax.scipy.linalg.cho_solve((jnp.linalg.cholesky(damped), True), here.gradient)
        better = value(task, there, data) < here.value
        damping = damping * jnp.where(better, ACCEPTED, REFUSED)
        return jnp.where(better, there, z), jnp.clip(damping, LEAST, MOST)

    def step(carry: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], None]:
        return jax.vmap(one)(*carry), None

    return jax.lax.scan(step, (z, damping), None, length=iterations)[0]


def log_mass(points: Point) -> Scalar:
    """log of the posterior's integral around a mode, by Laplace, up to a constant that all modes
    share.
    """
    cholesky = jnp.linalg.cholesky(points.curvature)
    return -points.value - jnp.log(jnp.diagonal(cholesky)).sum()
