"""Location finding: any number of sources in any dimension."""

import jax.numpy as jnp
import numpy as np
import pytest

from scorebed.errors import InvalidValueError, UnknownNameError
from scorebed.tasks import TASKS, make_task
from scorebed.tasks.library.location import LocationFinding


@pytest.mark.parametrize(
    ("dim", "sources", "horizon"), [(1, 1, 1), (2, 2, 30), (3, 10, 30), (5, 4, 7)]
)
def test_intensity_in_any_dimension(dim: int, sources: int, horizon: int) -> None:
    """μ = b + Σ_k α / (m + ‖θ_k − ξ‖²), and y is log μ with noise of 0.5."""
    task = LocationFinding(dim=dim, sources=sources, horizon=horizon)
    random = np.random.default_rng(dim)
    theta, xi = random.normal(size=(sources, dim)), random.normal(size=dim)
    mu = 0.1 + (1 / (1e-4 + ((theta - xi) ** 2).sum(1))).sum()
    arguments = jnp.asarray(theta.ravel(), jnp.float32), None, jnp.asarray(xi, jnp.float32)
    np.testing.assert_allclose(task.mean(*arguments), [np.log(mu)], rtol=1e-5)
    assert task.scale(*arguments) == (0.5,)
    assert (task.horizon, task.designs.dim, task.prior.dim) == (horizon, dim, dim * sources)


def test_a_source_is_loudest_at_the_sensor() -> None:
    """μ = b + α/m on top of the only source."""
    task = LocationFinding(dim=2, sources=1, background=0.2, floor=0.01, strength=3.0)
    assert float(task.intensity(jnp.asarray([0.3, 0.4]), jnp.asarray([0.3, 0.4]))) == pytest.approx(
        0.2 + 300.0
    )


@pytest.mark.parametrize(
    "options",
    [
        {"dim": 0},
        {"sources": 0},
        {"horizon": 0},
        {"noise": 0.0},
        {"floor": -1.0},
        {"background": 0.0},
    ],
)
def test_bad_arguments_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(InvalidValueError, match=r"a location-finding task, got .*Fix:"):
        LocationFinding(**options)


def test_built_in_tasks_have_the_paper_s_sizes() -> None:
    """(T, parameters, designs, outcomes)."""
    sizes = {
        name: (t.horizon, t.prior.dim, t.designs.dim, t.outcome_dim)
        for name in TASKS
        for t in [make_task(name)]
    }
    assert sizes == {
        "location-finding": (30, 4, 2, 1),
        "location-finding-3d": (30, 30, 3, 1),
        "pendulum": (50, 2, 1, 2),
        "cart-pole": (50, 3, 1, 4),
        "double-link": (50, 4, 2, 4),
        "gravimetry": (20, 3, 1, 1),
        "linear-gaussian": (3, 1, 1, 1),
    }


def test_an_unknown_task_is_answered_with_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match=r"did you mean 'pendulum'"):
        make_task("pendelum")


@pytest.mark.parametrize("name", TASKS)
def test_a_built_in_task_takes_other_sizes(name: str) -> None:
    assert make_task(name, horizon=7).horizon == 7


def test_sizes_go_to_the_constructor_over_those_of_the_table() -> None:
    task = make_task("location-finding-3d", sources=2)
    assert (task.prior.dim, task.designs.dim) == (6, 3)
    with pytest.raises(InvalidValueError, match="sources=0"):
        make_task("location-finding", sources=0)


def test_an_unknown_size_is_answered_with_the_nearest() -> None:
    with pytest.raises(
        UnknownNameError, match=r"size of the task 'pendulum', got 'horizn'.*did you mean 'horizon'"
    ):
        make_task("pendulum", horizn=3)
