"""Gravimetry: the anomaly of a buried void, and its prior."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.typing import ArrayLike

from scorebed.errors import InvalidValueError
from scorebed.tasks.library.gravimetry import Gravimetry

pytestmark = pytest.mark.usefixtures("float64")


def void(z: ArrayLike) -> np.ndarray:
    """θ at the same quantile in every coordinate."""
    return np.asarray(
        jax.jit(jax.vmap(Gravimetry().prior.from_latent))(jnp.tile(jnp.asarray(z)[:, None], 3))
    )


def test_anomaly_matches_the_formula() -> None:
    """g = κ z / ((ξ − x₀)² + z²)^{3/2}, with noise of 1 µGal."""
    x0, z, kappa, xi = 12.0, 8.0, -900.0, -5.0
    theta, design = jnp.asarray([x0, z, kappa]), jnp.asarray([xi])
    assert float(Gravimetry().mean(theta, None, design)[0]) == pytest.approx(
        kappa * z / ((xi - x0) ** 2 + z**2) ** 1.5
    )
    assert float(Gravimetry().scale(theta, None, design)[0]) == 1.0


def test_plane_reduces_to_the_line() -> None:
    """With the sensor on the void's own line y = y₀, the second coordinate does not matter."""
    line = Gravimetry().mean(jnp.asarray([12.0, 8.0, -900.0]), None, jnp.asarray([-5.0]))
    plane = Gravimetry(dim=2).mean(
        jnp.asarray([12.0, 7.0, 8.0, -900.0]), None, jnp.asarray([-5.0, 7.0])
    )
    np.testing.assert_allclose(plane, line, rtol=1e-12)


def test_plane_depends_on_the_distance_alone() -> None:
    plane = Gravimetry(dim=2)
    a, b = (
        plane.mean(jnp.asarray([1.0, 2.0, 8.0, -900.0]), None, jnp.asarray(xi))
        for xi in ([4.0, 6.0], [-4.0, 2.0])
    )
    np.testing.assert_allclose(a, b, rtol=1e-12)


def test_strength_has_the_published_range() -> None:
    """κ ∈ [−3940, −210] µGal m², the ends of R ~ U(1.5, 4)."""
    extremes = void([-8.0, 8.0])[:, 2].tolist()
    assert extremes == pytest.approx([-208.0, -3937.0], abs=1.0)  # the paper rounds to tens
    assert [round(e, -1) for e in extremes] == [-210.0, -3940.0]


def test_depth_has_the_published_quantiles() -> None:
    """Median 10 m, 95% within [3.7, 27] m."""
    assert void([-1.96, 0.0, 1.96])[:, 1].tolist() == pytest.approx([3.75, 10.0, 26.6], abs=0.05)


def test_floored_depths_are_as_frequent_as_the_prior_says() -> None:
    """P(z = 3) = Φ((ln 3 − ln 10)/0.5) = 0.80%. Catches a resampled floor (no atom at all) for
    certain.
    """
    depth = void(np.random.default_rng(0).normal(size=50_000))[:, 1]
    truth = 0.00802
    assert depth.min() == 3.0
    assert abs((depth == 3.0).mean() - truth) <= 4.892 * (truth / len(depth)) ** 0.5


@pytest.mark.parametrize("options", [{"dim": 3}, {"dim": 0}, {"horizon": 0}, {"noise": 0.0}])
def test_bad_arguments_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(InvalidValueError, match=r"a gravimetry task, got .*Fix:"):
        Gravimetry(**options)
