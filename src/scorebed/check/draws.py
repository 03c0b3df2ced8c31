"""The draws of a check: whole experiments, and many outcomes of single steps.

Random numbers come from NumPy and are arguments of the compiled programs: a generator inside them
would take longer to compile than the task."""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from scorebed._jit import jit_once
from scorebed.rollout import log_likelihood, simulate_outcomes
from scorebed.tasks.base import State, Task

EXPERIMENTS, STEPS = 128, 12  # number of experiments, and of their steps
# Points (θ, state, ξ) at which sampler and density are compared, and draws at each.
CONDITIONS, DRAWS = 6, 1024
FLAT = 1e-5  # the volume of θ's unit slopes in z below which they are dependent
LATER = 3  # half of these points are so many steps into an experiment


class Experiments(NamedTuple):
    """For each experiment: values, gradients of the log-likelihood, and the effect of changing one
    design or parameter.
    """

    ys: Any
    log_lik: Any
    grad_theta: Any
    grad_y: Any
    grad_xi: Any
    along: Any  # d/dξ log p(y(ξ) | θ, ξ): zero under additive noise
    pull_xi: Any  # a random combination of the outcomes, differentiated in the designs
    # [k + dx + 1]: the largest change of an outcome; the last one is that of all parameters
    change_y: Any
    change_log_lik: Any  # [k + dx + 1]: the change of the log-likelihood of the same data
    prior_gap: Any  # log p(θ) − (log N(z) − log |det ∂θ/∂z|)


class Draws(NamedTuple):
    """At each point: many draws of one step."""

    xi: Any
    ys: Any
    noise: Any
    jacobian: Any  # ∂y/∂ε
    log_prob: Any
    grad_theta: Any
    grad_y: Any
    grad_xi: Any
    log_probs: Any  # of every outcome, where they are finitely many


def draw_experiments(task: Task, *, key: PRNGKeyArray) -> Experiments:
    """Experiments with random designs, as NumPy arrays."""
    random, k, T = _generator(key), task.prior.dim, min(task.horizon, STEPS)
    zs = random.standard_normal((2, EXPERIMENTS, k))
    xis = [random_designs(task, random, (EXPERIMENTS, T)) for _ in range(2)]
    noise, weights = (
        random.standard_normal((EXPERIMENTS, T, n)) for n in (task.noise_dim, task.outcome_dim)
    )
    return _numpy(
        jit_once(jax.vmap(lambda *each: _experiment(task, *each)))(
            *_single(*zs, *xis, noise, weights)
        )
    )


def draw_steps(task: Task, *, key: PRNGKeyArray) -> Draws:
    """Outcomes at a few points, half of them some steps into an experiment, and at the middle and
    the corners of the design space.
    """
    random, steps = _generator(key), min(LATER, task.horizon - 1)
    edges = _edges(task)
    n = CONDITIONS + len(edges)
    xis = np.concatenate([random_designs(task, random, (CONDITIONS,)), edges])
    before = (
        random_designs(task, random, (n, steps)),
        random.standard_normal((n, steps, task.noise_dim)),
    )
    noise = random.standard_normal((n, DRAWS, task.noise_dim))
    given = _single(random.standard_normal((n, task.prior.dim)), xis, *before, noise)
    # Corners at the first step: a constraint may keep later ones away from them.
    later = (jnp.arange(n) % 2 == 1) & (jnp.arange(n) < CONDITIONS)
    return _numpy(jit_once(jax.vmap(lambda *each: _step(task, *each)))(*given, later))


def _experiment(
    task: Task,
    z: Float[Array, " k"],
    other_z: Float[Array, " k"],
    xis: Float[Array, "T dx"],
    other_xis: Float[Array, "T dx"],
    noise: Float[Array, "T dn"],
    weights: Float[Array, "T dy"],
) -> Experiments:
    k, dx = len(z), xis.shape[-1]
    xis, other_xis = _obeying(task, xis), _obeying(task, other_xis)
    theta, other = task.prior.from_latent(z), task.prior.from_latent(other_z)
    ys, pull = jax.vjp(lambda xis: simulate_outcomes(task, theta, xis, noise), xis)

    def likelihood(theta: Array, ys: Array, xis: Array) -> Array:
        if task.has_density:
            return log_likelihood(task, theta, ys, xis)
        # Without a density: how outcomes depend on θ and ξ.
        return (weights * simulate_outcomes(task, theta, xis, noise)).sum()

    log_lik, (grad_theta, grad_y, grad_xi) = jax.value_and_grad(likelihood, argnums=(0, 1, 2))(
        theta, ys, xis
    )

    def change(which: Array) -> tuple[Array, Array]:
        theta_, xis_ = jnp.where(which[:k], other, theta), jnp.where(which[k:], other_xis, xis)
        return jnp.abs(simulate_outcomes(task, theta_, xis_, noise) - ys).max(), likelihood(
            theta_, ys, xis_
        ) - log_lik

    cases = np.concatenate([np.eye(k + dx, dtype=bool), np.arange(k + dx)[None] < k])
    jacobian = jax.jacfwd(task.prior.from_latent)(z)
    _, log_det = jnp.linalg.slogdet(jacobian)
    gap = task.prior.log_prob(theta) - (
        -0.5 * (z**2).sum() - 0.5 * k * math.log(2 * math.pi) - log_det
    )
    # A map that is not one-to-one, as that to a simplex, has no density to compare with.
    rows = jnp.linalg.norm(jacobian, axis=1, keepdims=True)
    _, log_flat = jnp.linalg.slogdet(jacobian / jnp.maximum(rows, jnp.finfo(rows.dtype).tiny))
    gap = jnp.where(log_flat < math.log(FLAT), jnp.nan, gap)
    (along,), (pull_xi,) = pull(grad_y), pull(weights)
    change_y, change_log_lik = jax.vmap(change)(jnp.asarray(cases))
    return Experiments(
        ys,
        log_lik,
        grad_theta,
        grad_y,
        grad_xi,
        grad_xi + along,
        pull_xi,
        change_y,
        change_log_lik,
        gap,
    )


def _step(
    task: Task,
    z: Float[Array, " k"],
    xi: Float[Array, " dx"],
    xis_before: Float[Array, "n dx"],
    noise_before: Float[Array, "n dn"],
    noises: Float[Array, "N dn"],
    later: Array,
) -> Draws:
    theta = task.prior.from_latent(z)
    if task.feasible is not None:
        xis_before, start = _obeying(task, xis_before), task.feasible.start()
        previous = jnp.where(later, xis_before[-1], start) if len(xis_before) else start
        xi = task.feasible.place(xi, previous, jnp.where(later, len(xis_before), 0))

    def step(state: State, data: tuple[Array, Array]) -> tuple[State, None]:
        xi, noise = data
        return task.advance(theta, state, xi, task.outcome(theta, state, xi, noise)), None

    first = task.initial(theta)
    then, _ = jax.lax.scan(step, first, (xis_before, noise_before))
    state = jax.tree.map(lambda a, b: jnp.where(later, b, a), first, then)

    def draw(noise: Array) -> tuple[Array, ...]:
        sample = lambda noise: task.outcome(theta, state, xi, noise)  # noqa: E731

        def density(y: Array, theta: Array, xi: Array) -> Array:
            return task.log_prob(y, theta, state, xi) if task.has_density else 0 * y.sum()

        y = sample(noise)
        log_prob, (grad_y, grad_theta, grad_xi) = jax.value_and_grad(density, argnums=(0, 1, 2))(
            y, theta, xi
        )
        return y, noise, jax.jacfwd(sample)(noise), log_prob, grad_theta, grad_y, grad_xi

    finite = task.discrete_outcomes and task.has_density
    chances = task.log_probs(theta, state, xi) if finite else jnp.zeros(0)
    return Draws(xi, *jax.vmap(draw)(noises), log_probs=chances)


def random_designs(task: Task, random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Uniform in a bounded space; else Gaussian, of many sizes."""
    space = task.designs
    if space.listed:
        return np.asarray(space.evenly(jnp.asarray(random.uniform(size=(*shape, space.dim)))))
    if space.bounded:
        low, high = map(np.asarray, space.limits)
        return low + (high - low) * random.uniform(size=(*shape, space.dim))
    size = random.uniform(0.2, 3.0, (*shape[:1], *(1,) * len(shape)))
    return np.asarray(
        space.constrain(
            jnp.asarray(size * random.standard_normal((*shape, space.dim)), jnp.float32)
        )
    )


def _obeying(task: Task, xis: Float[Array, "T dx"]) -> Float[Array, "T dx"]:
    """Feasible designs: a model need not be defined for others, such as times out of order."""
    return xis if task.feasible is None or not len(xis) else task.feasible.obey(xis)


def _edges(task: Task) -> np.ndarray:
    """The middle of the design space, and its corners, where policies may push designs."""
    if not task.designs.bounded:
        return np.zeros((1, task.designs.dim))
    low, high = map(np.asarray, task.designs.limits)
    found = np.stack([(low + high) / 2, low, high])
    return np.asarray(task.designs.nearest(jnp.asarray(found, jnp.float32)))


def _generator(key: PRNGKeyArray) -> np.random.Generator:
    return np.random.default_rng(np.asarray(jr.key_data(key)))


def _single(*arrays: np.ndarray) -> list[Array]:
    return [jnp.asarray(array, jnp.float32) for array in arrays]


def _numpy(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), tree)
