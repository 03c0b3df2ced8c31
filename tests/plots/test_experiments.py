"""Drawings: every kind of task has one, it shows the data where they are, and nothing global is
touched.
"""

import io

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from matplotlib import pyplot
from matplotlib.collections import PathCollection
from matplotlib.figure import Figure
from matplotlib.patches import Circle

from scorebed.errors import ScorebedError
from scorebed.plots.experiments import draw_experiments, draw_into
from scorebed.rollout import Trajectory
from scorebed.tasks import TASKS
from scorebed.tasks.base import IID, Gaussian, Implicit, Markov
from scorebed.tasks.declare import measured, parameters, ranges, unbounded
from scorebed.tasks.library.gravimetry import Gravimetry
from scorebed.tasks.library.location import LocationFinding
from scorebed.tasks.priors import standard_normal
from scorebed.tasks.sketch import HiddenObjects, Positions, Profile
from scorebed.tasks.spaces import Box, Quantity


class Flat(IID, Gaussian):
    """A mean that no design changes: nothing to shade, no contours."""

    horizon: int = eqx.field(static=True, default=5)
    prior: eqx.Module = standard_normal((Quantity("level"),))
    designs: Box = eqx.field(
        static=True, default=Box((Quantity("a"), Quantity("b", "m")), (0.0, 0.0), (1.0, 3.0))
    )
    outcomes: tuple = eqx.field(static=True, default=(Quantity("reading"),))
    additive_noise: bool = eqx.field(static=True, default=True)

    def mean(self, theta, state, xi):
        del state
        return (theta[0] + 0 * xi[0])[None]

    def scale(self, theta, state, xi):
        del theta, state, xi
        return (1.0,)


class Drifting(Markov, Gaussian):
    """A user's task that says where its hidden objects are: two buoys, in a current."""

    horizon = 6
    prior = parameters({("speed",): dist.Normal(0.0, 1.0), ("a", "b", "c", "d"): dist.Normal()})
    designs = unbounded("x", "y", scale=2.0)
    outcomes = measured("signal")
    additive_noise = True

    def start(self):
        return jnp.zeros(1)

    def mean(self, theta, state, xi):
        return state + theta[0] * xi[:1] + theta[1:2] * xi[1:]

    def scale(self, theta, state, xi):
        del theta, state, xi
        return [1.0]

    def sketch(self):
        return Positions(HiddenObjects("buoy", ((1, 2), (3, 4))))


class Buried(Gravimetry):
    """Two objects on a line, at the depth of one parameter and without a size."""

    def sketch(self):
        return Profile(HiddenObjects("pipe", ((0,), (2,))), depth=1)


class Simulated(IID, Implicit):
    """A profile whose mean is not known."""

    horizon = 4
    prior = parameters({"rate": dist.Normal(0.0, 1.0)})
    designs = ranges({"time": (0.0, 1.0)})
    outcomes = measured("signal")
    additive_noise = False

    def outcome(self, theta, state, xi, noise):
        del state
        return theta * xi + noise


EVERY = dict(TASKS) | {
    "location-finding-1d": lambda: LocationFinding(dim=1, sources=2),
    "gravimetry-plane": lambda: Gravimetry(dim=2),
    "flat": Flat,
}


def experiments(task, count: int) -> list[Trajectory]:
    """Made up with numpy, which compiles nothing: drawings care for shapes and places, not for
    laws.
    """
    rng = np.random.default_rng(0)

    def one() -> Trajectory:
        theta = task.prior.from_latent(jnp.asarray(rng.normal(size=task.prior.dim), jnp.float32))
        u = jnp.asarray(rng.normal(size=(task.horizon, task.designs.dim)), jnp.float32)
        ys = jnp.asarray(rng.normal(size=(task.horizon, task.outcome_dim)), jnp.float32)
        return Trajectory(theta, ys, task.designs.constrain(u))

    return [one() for _ in range(count)]


def points(figure) -> np.ndarray:
    """All scattered points."""
    found = [
        c.get_offsets()
        for ax in figure.axes
        for c in ax.collections
        if isinstance(c, PathCollection)
    ]
    return np.concatenate([np.asarray(offsets).reshape(-1, 2) for offsets in found])


def lines(figure) -> list[np.ndarray]:
    return [np.asarray(line.get_ydata()) for ax in figure.axes for line in ax.get_lines()]


@pytest.mark.parametrize("name", EVERY)
def test_a_drawing_holds_every_outcome_or_design(name):
    task = EVERY[name]()
    (run,) = experiments(task, 1)
    figure = draw_experiments(task, [run])
    figure.savefig(io.BytesIO(), dpi=20)  # warnings of the layout are errors here
    assert pyplot.get_fignums() == []
    xis, ys = np.asarray(run.xis), np.asarray(run.ys)
    if isinstance(task, IID):  # outcomes over designs, or designs in space
        wanted = np.stack([xis[:, 0], ys[:, 0] if task.designs.dim == 1 else xis[:, 1]], 1)
        drawn = points(figure)
        assert all(np.isclose(drawn, point, atol=1e-6).all(1).any() for point in wanted)
    else:
        drawn = [line for line in lines(figure) if len(line) == task.horizon]
        assert all(any(np.allclose(line, column) for line in drawn) for column in (*xis.T, *ys.T))


def test_columns_are_experiments_on_common_axes():
    task = TASKS["gravimetry"]()
    figure = draw_experiments(task, experiments(task, 3))
    *axes, bar = figure.axes
    assert len(axes) == 2 * 3
    assert bar.get_ylabel() == "step"
    assert len({ax.get_xlim() for ax in axes}) == 1
    assert len({ax.get_ylim() for ax in axes[:3]}) == len({ax.get_ylim() for ax in axes[3:]}) == 1


def test_labels_carry_names_and_units():
    task = TASKS["double-link"]()
    figure = draw_experiments(task, experiments(task, 1))
    assert [ax.get_ylabel() for ax in figure.axes] == ["[N m]", "[rad]", "[rad/s]"]
    names = [text.get_text() for ax in figure.axes for text in ax.get_legend().get_texts()]
    assert names == [q.name for q in (*task.designs.quantities, *task.outcomes)]


def test_sources_and_void_are_where_theta_says():
    task = TASKS["location-finding"]()
    (run,) = experiments(task, 1)
    drawn = points(draw_experiments(task, [run]))
    assert all(
        np.isclose(drawn, source, atol=1e-6).all(1).any() for source in run.theta.reshape(2, 2)
    )

    task = Gravimetry()
    run = experiments(task, 1)[0]
    (void,) = [
        patch
        for ax in draw_experiments(task, [run]).axes
        for patch in ax.patches
        if isinstance(patch, Circle)
    ]
    x0, depth, kappa = run.theta.tolist()
    np.testing.assert_allclose(void.center, (x0, depth), rtol=1e-6)
    # κ = G · 4/3 π R³ Δρ / 10⁻⁸ with G = 6.674e-11 and Δρ = −2200, turned round
    np.testing.assert_allclose(
        6.674e-11 * 4 / 3 * np.pi * void.radius**3 * -2200 / 1e-8, kappa, rtol=1e-5
    )


def test_the_curve_is_the_mean_of_the_task():
    task = TASKS["linear-gaussian"]()
    (run,) = experiments(task, 1)
    (curve,) = draw_experiments(task, [run]).axes[0].get_lines()
    x, y = curve.get_data()
    np.testing.assert_allclose(y, x * float(run.theta[0]), atol=1e-5)


def test_an_experiment_may_be_unfinished():
    task = TASKS["location-finding"]()
    (run,) = experiments(task, 1)
    short = Trajectory(run.theta, run.ys[:1], run.xis[:1])
    draw_experiments(task, [short]).savefig(io.BytesIO(), dpi=20)


def test_a_subfigure_can_be_filled():
    task = TASKS["linear-gaussian"]()
    figure = Figure(figsize=(8, 3), layout="constrained")
    left, right = figure.subfigures(1, 2)
    draw_into(right, task, experiments(task, 1))
    assert len(right.axes) == 2
    assert left.axes == []


def test_other_shapes_are_refused_with_a_sentence():
    task, other = TASKS["location-finding"](), TASKS["gravimetry"]()
    batch = jax.tree.map(lambda *leaves: jnp.stack(leaves), *experiments(task, 2))
    for wrong in ([], [batch], experiments(other, 1)):
        with pytest.raises(ScorebedError, match=r"experiments to draw.*Fix: pass \[run\]"):
            draw_experiments(task, wrong)


def test_a_task_of_a_user_shows_its_hidden_objects():
    task = Drifting()
    (run,) = experiments(task, 1)
    figure = draw_experiments(task, [run])
    drawn = points(figure)
    for wanted in (*run.theta[1:].reshape(2, 2), *run.xis):
        assert np.isclose(drawn, wanted, atol=1e-6).all(1).any()
    assert "buoy" in [text.get_text() for text in figure.axes[0].get_legend().get_texts()]

    task = Buried()
    (run,) = experiments(task, 1)
    circles = [
        patch.center
        for ax in draw_experiments(task, [run]).axes
        for patch in ax.patches
        if isinstance(patch, Circle)
    ]
    np.testing.assert_allclose(
        circles, [(run.theta[0], run.theta[1]), (run.theta[2], run.theta[1])], rtol=1e-6
    )


def test_a_profile_without_a_mean_is_drawn_as_time_series():
    task = Simulated()
    (run,) = experiments(task, 1)
    figure = draw_experiments(task, [run])
    assert [ax.get_ylabel() for ax in figure.axes] == ["time", "signal"]
