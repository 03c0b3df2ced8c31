"""One history of a task, repeated estimates from it, and the one rule of statistical assertions."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jaxtyping import Array

from scorebed.rollout import simulate_outcomes
from scorebed.tasks.base import Task

Z_ALARM = 4.892  # a false alarm in a million


def _history(task: Task, seed: int = 0) -> tuple[Array, Array]:
    random = np.random.default_rng(seed)
    sizes = (task.prior.dim,), (task.horizon, task.designs.dim), (task.horizon, task.outcome_dim)
    z, u, noise = (jnp.asarray(random.normal(size=size), jnp.float32) for size in sizes)

    @jax.jit
    def run(z: Array, u: Array, noise: Array) -> tuple[Array, Array]:
        xis = task.designs.constrain(u)
        return simulate_outcomes(task, task.prior.from_latent(z), xis, noise), xis

    return run(z, u, noise)


def _repeat(estimate: Callable[[Array], Any], count: int, seed: int = 1) -> Any:
    # Everything here runs once, so the compiler's optimisations cost more than they save.
    quick = {"xla_backend_optimization_level": 0}
    run = jax.jit(
        lambda key: jax.lax.map(lambda i: estimate(jr.fold_in(key, i)), jnp.arange(count)),
        compiler_options=quick,
    )
    return run(jr.key(seed))


def _assert_mean(samples: Array, truth: Array, bias: Array | float = 0.0) -> None:
    samples = np.asarray(samples, np.float64)
    error = np.abs(samples.mean(0) - np.asarray(truth, np.float64))
    allowed = Z_ALARM * samples.std(0, ddof=1) / np.sqrt(len(samples)) + bias
    assert np.all(error <= allowed), (error, allowed)


@pytest.fixture(scope="session")
def history() -> Callable[..., tuple[Array, Array]]:
    """history(task, seed) → (ys, xis) of one experiment."""
    return _history


@pytest.fixture(scope="session")
def repeat() -> Callable[..., Any]:
    """repeat(estimate, count) → estimate(key) for the keys jr.fold_in(jr.key(1), i), i < count;
    compiled, stacked in front.
    """
    return _repeat


@pytest.fixture(scope="session")
def assert_mean() -> Callable[..., None]:
    """|mean − truth| ≤ 4.892 standard errors in every coordinate, plus the `bias` that a method is
    known to have.
    """
    return _assert_mean
