"""Whole sequences of designs that tell most about z, before any of them is carried out.

    J(ξ_{1:T}) = E_{z, ε} ½ log det(P + Σ_t H_tᵀ H_t)
    H_t = ∂(mean / scale)/∂z  at (z, y_{t−1}, ξ_t)

P is what is known already (I before the experiment). For posteriors that are nearly Gaussian J is
the information that the designs will have given by the end. The outcomes y follow from z, noise ε
and the designs themselves, so that the gradient of J takes account of where the designs drive the
system; it has no noise but that of the draws, and no score is needed for it. J has many optima:
`informative_plans` climbs from many starts and keeps those that are best.

In a box designs are v in [−1, 1] of its half-width and are clipped there. Informative inputs of a
driven system lie at the edges of the box and change sides: through ξ = tanh(u) the gradient of such
designs would vanish, and from the same starts the cart-pole's best plan has 7.15 nats in place of
7.21 (decision 045).

For Gaussian outcomes of independent steps or Markov transitions. Cost in NLE, of which each is an
evaluation of the mean with its derivatives: `plans_nle`. When wrong: posteriors that are not
Gaussian, and scales that depend on θ, whose information is left out."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import optax
from jaxtyping import Array, Bool, Float, PRNGKeyArray, Scalar

from scorebed.tasks.base import Gaussian, State, Task
from scorebed.tasks.spaces import Space

BATCH, JUDGES = 16, 256  # draws of z and ε for a step uphill, and for a choice
FIRST, FURTHER, KEEP = 100, 300, 2  # steps of all starts, and of every KEEP-th after a choice
RATE = 0.05  # of Adam, in half-widths
SLOWEST, FASTEST, SIZE, ROUGH = 0.01, 0.5, 2.0, 0.2  # waves of the starts: cycles a step


def designs_at(space: Space, v: Float[Array, "*b dx"]) -> Float[Array, "*b dx"]:
    """Designs from v: in half-widths of a box around its centre, or in units of an open space."""
    return space.evenly((1 + v) / 2) if space.bounded else space.constrain(v)


def inside(space: Space, v: Float[Array, "*b dx"]) -> Float[Array, "*b dx"]:
    """The nearest v that are designs."""
    return jnp.clip(v, -1, 1) if space.bounded else v


def information(
    task: Task,
    z: Float[Array, " k"],
    state: State,
    curvature: Float[Array, "k k"],
    vs: Float[Array, "n dx"],
    noise: Float[Array, "n dn"],
    left: Bool[Array, " n"],
) -> Scalar:
    """½ log det(P + Σ HᵀH) after the designs `vs` in a simulated experiment; those that are not
    `left` are not carried out.
    """
    theta, eye = task.prior.from_latent(z), jnp.eye(len(z), dtype=z.dtype)

    def step(
        carry: tuple[State, Array], row: tuple[Array, Array, Array]
    ) -> tuple[tuple[State, Array], None]:
        state, curvature = carry
        v, eps, live = row
        xi = designs_at(task.designs, v)
        slopes = jax.linearize(lambda z: standardised(task, z, state, xi), z)[1]
        h = jnp.where(live, jax.vmap(slopes, out_axes=1)(eye), 0)
        y = task.outcome(theta, state, xi, eps)
        later = jax.tree.map(
            lambda new, old: jnp.where(live, new, old), task.advance(theta, state, xi, y), state
        )
        # Not as hᵀh: products of so small matrices are a call each, ten times the rest of a step.
        return (later, curvature + (h[:, :, None] * h[:, None, :]).sum(0)), None

    _, curvature = jax.lax.scan(step, (state, curvature), (vs, noise, left))[0]
    return jnp.log(jnp.diagonal(jnp.linalg.cholesky(curvature))).sum()


def standardised(
    task: Task, z: Float[Array, " k"], state: State, xi: Float[Array, " dx"]
) -> Float[Array, " dy"]:
    """mean / scale, with the scale held."""
    assert isinstance(task, Gaussian)
    theta = task.prior.from_latent(z)
    scale = jnp.stack([jnp.asarray(s, z.dtype) for s in task.scale(theta, state, xi)])
    return task.mean(theta, state, xi) / jax.lax.stop_gradient(scale)


def informative_plans(task: Task, count: int, *, key: PRNGKeyArray) -> Float[Array, "count T dx"]:
    """The best of KEEP · count ascents, best first: v of every step."""
    key_starts, key_first, key_further, key_judge = jr.split(key, 4)
    starts = _starts(task, KEEP * count, key=key_starts)
    climbed = _ascents(task, starts, FIRST, key_first)
    some = climbed[jnp.argsort(-_values(task, climbed, key_judge))[:count]]
    found = _ascents(task, some, FURTHER, key_further)
    return found[jnp.argsort(-_values(task, found, key_judge))]


def plans_nle(task: Task, count: int) -> int:
    """Evaluations of the mean by `informative_plans`."""
    ascents = count * (KEEP * FIRST + FURTHER) * BATCH
    return (ascents + count * (KEEP + 1) * JUDGES) * task.horizon


def expected(task: Task, key: PRNGKeyArray, draws: int) -> Callable[[Array], Scalar]:
    """J of a plan, over so many draws of z and ε."""
    key_z, key_noise = jr.split(key)
    z = jr.normal(key_z, (draws, task.prior.dim))
    noise = jr.normal(key_noise, (draws, task.horizon, task.noise_dim))
    eye, left = jnp.eye(task.prior.dim), jnp.ones(task.horizon, bool)

    def value(vs: Float[Array, "T dx"]) -> Scalar:
        def one(z: Array, eps: Array) -> Scalar:
            state = task.initial(task.prior.from_latent(z))
            return information(task, z, state, eye, vs, eps, left)

        return jnp.nanmean(jax.vmap(one)(z, noise))

    return value


def _starts(task: Task, count: int, *, key: PRNGKeyArray) -> Float[Array, "n T dx"]:
    """Waves of all frequencies with some noise, and every fourth noise alone."""
    key_pace, key_phase, key_noise = jr.split(key, 3)
    shape = (count, 1, task.designs.dim)
    pace = jr.uniform(key_pace, shape, minval=SLOWEST, maxval=FASTEST)
    phase = jr.uniform(key_phase, shape, maxval=2 * jnp.pi)
    steps = jnp.arange(task.horizon, dtype=pace.dtype)[:, None]
    waves = SIZE * jnp.sin(2 * jnp.pi * pace * steps + phase)
    noise = SIZE * jr.normal(key_noise, waves.shape)
    alone = (jnp.arange(count) % 4 == 0)[:, None, None]
    return inside(task.designs, jnp.where(alone, noise, waves + ROUGH / SIZE * noise))


@eqx.filter_jit
def _values(task: Task, vs: Float[Array, "n T dx"], key: PRNGKeyArray) -> Float[Array, " n"]:
    found = jax.lax.map(expected(task, key, JUDGES), vs)
    return jnp.where(jnp.isnan(found), -jnp.inf, found)


@eqx.filter_jit
def _ascents(
    task: Task, starts: Float[Array, "n T dx"], steps: int, key: PRNGKeyArray
) -> Float[Array, "n T dx"]:
    """Adam from every start, on fresh draws in every step."""
    optimiser = optax.adam(optax.cosine_decay_schedule(RATE, steps))

    def climb(vs: Array) -> Array:
        def step(
            carry: tuple[Array, optax.OptState], key: PRNGKeyArray
        ) -> tuple[tuple[Array, optax.OptState], None]:
            vs, state = carry
            slope = jnp.nan_to_num(jax.grad(expected(task, key, BATCH))(vs))
            with jax.numpy_dtype_promotion("standard"):  # optax mixes types
                change, state = optimiser.update(-slope, state)
            return (inside(task.designs, vs + change), state), None

        keys = jr.split(key, steps)
        return jax.lax.scan(step, (vs, optimiser.init(vs)), keys)[0][0]

    return jax.vmap(climb)(starts)
