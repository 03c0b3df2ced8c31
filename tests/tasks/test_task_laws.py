"""Laws that every task must keep, whatever it models. They need nothing but the task itself."""

import functools
import itertools
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

from scorebed.rollout import log_likelihood, log_likelihoods, simulate_outcomes
from scorebed.tasks.base import IID, Markov, Task

pytestmark = pytest.mark.usefixtures("float64")

CONDITIONS, REPEATS = 8, 4096  # points (θ, state, ξ), and outcomes at each
CHUNK = 2048  # one shape for every call of the compiled density
Z_ALARM = 4.892  # a false alarm in a million


class Step(NamedTuple):
    """One experiment step and its derivatives; leading axes: condition, repeat."""

    theta: Array
    state: Any
    xi: Array
    noise: Array
    y: Array
    log_prob: Array
    jacobian: Array  # ∂y/∂noise
    gradients: tuple[Array, Array, Array]  # of log p in y, θ, ξ
    total: Array  # d/dξ log p(outcome(θ, s, ξ, ε) | θ, s, ξ)


class Experiment(NamedTuple):
    """Data made by the first of eight parameters, and the likelihood of all eight."""

    thetas: Array
    ys: Array
    xis: Array
    singly: Array
    together: Array
    reversed: Array  # with the steps in the opposite order


@functools.cache
def one_step(task: Task) -> Step:
    """θ from the prior, designs from the space, a state after one step with any outcome, and many
    outcomes of the next.
    """
    random = np.random.default_rng(1)
    z, u, v, y, noise = (
        random.normal(size=(CONDITIONS, *shape))
        for shape in (
            (task.prior.dim,),
            (task.designs.dim,),
            (task.designs.dim,),
            (task.outcome_dim,),
            (REPEATS, task.outcome_dim),
        )
    )

    @eqx.filter_jit
    def evaluate(task: Task, z: Array, u: Array, v: Array, y: Array, noise: Array) -> Step:
        theta, xi, past = (
            task.prior.from_latent(z),
            task.designs.constrain(u),
            task.designs.constrain(v),
        )
        state = task.advance(theta, task.initial(theta), past, 0.7 * y)

        def single(noise: Array) -> Step:
            def log_prob(y: Array, theta: Array, xi: Array) -> Array:
                return task.log_prob(y, theta, state, xi)

            def outcome(noise: Array) -> tuple[Array, Array]:
                y = task.outcome(theta, state, xi, noise)
                return y, y

            jacobian, y = jax.jacfwd(outcome, has_aux=True)(noise)
            value, gradients = jax.value_and_grad(log_prob, (0, 1, 2))(y, theta, xi)
            total = jax.grad(lambda xi: log_prob(task.outcome(theta, state, xi, noise), theta, xi))(
                xi
            )
            return Step(theta, state, xi, noise, y, value, jacobian, gradients, total)

        return jax.vmap(single)(noise)

    rows = [
        jax.tree.map(np.asarray, evaluate(task, *map(jnp.asarray, row)))
        for row in zip(z, u, v, y, noise, strict=True)
    ]
    return jax.tree.map(lambda *leaves: np.stack(leaves), *rows)


@pytest.fixture
def step(task: Task) -> Step:
    return one_step(task)


def log_density(task: Task, ys: Array, thetas: Array, states: Any, xis: Array) -> np.ndarray:
    """log p over leading axes, in chunks of one shape so that it compiles once per task."""
    n = len(ys)
    pad = -n % CHUNK
    rows = jax.tree.map(
        lambda a: np.pad(a, [(0, pad)] + [(0, 0)] * (a.ndim - 1), mode="edge"),
        (ys, thetas, states, xis),
    )
    chunks = [
        _log_density(task, *jax.tree.map(lambda a, i=i: a[i : i + CHUNK], rows))
        for i in range(0, n + pad, CHUNK)
    ]
    return np.concatenate(chunks)[:n]


@eqx.filter_jit
def _log_density(task: Task, ys: Array, thetas: Array, states: Any, xis: Array) -> Array:
    return jax.vmap(task.log_prob)(ys, thetas, states, xis)


@functools.cache
def experiment(task: Task) -> Experiment:
    random = np.random.default_rng(2)

    @eqx.filter_jit
    def evaluate(task: Task, thetas: Array, us: Array, noise: Array) -> Experiment:
        xis = task.designs.constrain(us)
        ys = simulate_outcomes(task, thetas[0], xis, noise)
        both = jnp.stack([ys, ys[::-1]]), jnp.stack([xis, xis[::-1]])
        singly = jax.vmap(functools.partial(log_likelihood, task), (0, None, None))
        forward, backward = jax.vmap(singly, (None, 0, 0))(thetas, *both)
        return Experiment(
            thetas, ys, xis, forward, log_likelihoods(task, thetas, ys, xis), backward
        )

    us, noise = (
        random.normal(size=(task.horizon, d)) for d in (task.designs.dim, task.outcome_dim)
    )
    return jax.tree.map(
        np.asarray, evaluate(task, *map(jnp.asarray, (one_step(task).theta[:, 0], us, noise)))
    )


def assert_zero_mean(samples: np.ndarray) -> None:
    """The mean over axis 1 is zero, within chance and rounding."""
    error = samples.std(1) * Z_ALARM / samples.shape[1] ** 0.5
    np.testing.assert_array_less(
        np.abs(samples.mean(1)), error + 1e-9 * (1 + np.abs(samples).max(1))
    )


def test_the_density_is_that_of_the_outcome(step: Step) -> None:
    """log p(y) = log N(noise; 0, I) − log |∂y/∂noise|: sampler and density are one model."""
    normal = -0.5 * (step.noise**2).sum(-1) - 0.5 * np.log(2 * np.pi) * step.noise.shape[-1]
    np.testing.assert_allclose(
        step.log_prob, normal - np.linalg.slogdet(step.jacobian)[1], rtol=1e-9, atol=1e-9
    )


def test_outcome_scores_average_zero(step: Step) -> None:
    """E_y[∇_y log p] = 0. 4096 outcomes catch a density whose centre is off by 0.13 of its own
    width.
    """
    assert_zero_mean(step.gradients[0])


def test_parameter_scores_average_zero(step: Step) -> None:
    """E_y[∇_θ log p] = 0. Catches a normaliser that leaves out what depends on θ, at 0.13 of the
    score's own size.
    """
    assert_zero_mean(step.gradients[1])


def test_design_scores_average_zero(step: Step) -> None:
    """E_y[∇_ξ log p] = 0: the Fisher term of static designs. Catches a normaliser that leaves out
    what depends on ξ.
    """
    assert_zero_mean(step.gradients[2])


def test_the_density_integrates_to_one(task: Task, step: Step) -> None:
    """On a grid of the outcome space, which for Gaussian tails is exact to rounding."""
    first = jax.tree.map(lambda a: a[0, 0], (step.theta, step.state, step.xi))
    dy = task.outcome_dim
    points = {1: 801, 2: 81, 4: 17}[dy]
    centre, widths = step.y[0].mean(0), 6.4 * np.abs(np.diagonal(step.jacobian[0, 0]))
    axes = [np.linspace(c - w, c + w, points) for c, w in zip(centre, widths, strict=True)]
    grid = np.asarray(list(itertools.product(*axes)))
    theta, state, xi = jax.tree.map(lambda a: np.broadcast_to(a, (len(grid), *a.shape)), first)
    cell = np.prod([axis[1] - axis[0] for axis in axes])
    assert np.exp(log_density(task, grid, theta, state, xi)).sum() * cell == pytest.approx(
        1.0, abs=1e-6
    )


def test_gradients_match_finite_differences(task: Task, step: Step) -> None:
    """∂ log p in every coordinate of y, θ and ξ."""
    y, theta, state, xi = jax.tree.map(lambda a: a[:, 0], (step.y, step.theta, step.state, step.xi))
    gradients = np.concatenate([g[:, 0] for g in step.gradients], axis=1)
    sizes = np.cumsum([y.shape[1], theta.shape[1]])
    x = np.concatenate([y, theta, xi], axis=1)
    n, d = x.shape
    h = 1e-5 * np.maximum(1.0, np.abs(x))  # n d
    shift = h[:, :, None] * np.eye(d)  # n, coordinate that moves, d
    moved = np.concatenate([x[:, None] + shift, x[:, None] - shift]).reshape(-1, d)
    ys, thetas, xis = np.split(moved, sizes, axis=1)
    states = jax.tree.map(lambda a: np.concatenate([np.repeat(a, d, axis=0)] * 2), state)
    up, down = log_density(task, ys, thetas, states, xis).reshape(2, n, d)
    np.testing.assert_allclose(
        (up - down) / (2 * h), gradients, rtol=1e-5, atol=1e-5 * (1 + np.abs(gradients).max())
    )


def test_additive_noise_is_what_it_claims(task: Task, step: Step) -> None:
    """The likelihood term d/dξ log p(y(ξ) | θ, ξ) is zero for every sample exactly when the task
    says so.
    """
    zero = np.abs(step.total).max() <= 1e-9 * (1 + np.abs(step.gradients[2]).max())
    assert zero == task.additive_noise


def test_likelihoods_of_many_parameters_are_those_of_each(task: Task) -> None:
    run = experiment(task)
    np.testing.assert_allclose(run.together, run.singly, rtol=1e-10)


def test_steps_without_state_can_be_exchanged(task: Task) -> None:
    """log p(y_{1:T} | ξ_{1:T}, θ) forgets the order of (y_t, ξ_t) if, and only if, the task
    is iid.
    """
    run = experiment(task)
    assert np.allclose(run.singly, run.reversed, rtol=1e-9) == isinstance(task, IID)


def test_a_history_is_the_sum_of_its_steps(task: Task) -> None:
    """Transitions collected one by one through `initial` and `advance`, added up in another
    order.
    """
    run = experiment(task)
    theta, states = jnp.asarray(run.thetas[0]), []
    state = task.initial(theta)
    for y, xi in zip(jnp.asarray(run.ys), jnp.asarray(run.xis), strict=True):
        states.append(state)
        state = task.advance(theta, state, xi, y)
    order = np.asarray([2, 0, 3, 1])
    shuffled = jax.tree.map(lambda *leaves: np.stack(leaves)[order], *states)
    thetas = np.broadcast_to(theta, (len(order), len(theta)))
    terms = log_density(task, run.ys[order], thetas, shuffled, run.xis[order])
    np.testing.assert_allclose(terms.sum(), run.singly[0], rtol=1e-10)
    if isinstance(task, Markov):
        previous = np.concatenate([np.zeros_like(run.ys[:1]), run.ys[:-1]])
        np.testing.assert_array_equal(shuffled, previous[order])


def test_compiled_equals_uncompiled(task: Task) -> None:
    run = experiment(task)
    with jax.disable_jit():
        plain = log_likelihood(task, *map(jnp.asarray, (run.thetas[0], run.ys, run.xis)))
    np.testing.assert_allclose(plain, run.singly[0], rtol=1e-10)


def test_names_and_sizes_agree(task: Task) -> None:
    """Every coordinate has a name of its own, and every array its size."""
    run = experiment(task)
    assert run.thetas.shape[1] == task.prior.dim == len({q.name for q in task.prior.quantities})
    assert run.xis.shape == (task.horizon, len({q.name for q in task.designs.quantities}))
    assert run.ys.shape == (task.horizon, len({q.name for q in task.outcomes}))
