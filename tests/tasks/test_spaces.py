"""Design spaces: unconstrained coordinates and back."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from scorebed.errors import InvalidValueError
from scorebed.tasks.spaces import Box, Quantity, Real, Space

PAIR = (Quantity("torque", "N m"), Quantity("angle"))
SPACES = {"real": Real(PAIR, scale=40.0), "box": Box(PAIR, (-4.0, 1.0), (4.0, 2.0))}


@pytest.fixture(params=SPACES)
def space(request: pytest.FixtureRequest) -> Space:
    return SPACES[request.param]


@pytest.mark.usefixtures("float64")
def test_unconstrain_inverts_constrain(space: Space) -> None:
    u = jnp.asarray(np.random.default_rng(0).normal(size=(50, 2)))
    np.testing.assert_allclose(
        jax.jit(lambda u: space.unconstrain(space.constrain(u)))(u), u, rtol=1e-9
    )


@pytest.mark.usefixtures("float64")
def test_log_jacobian_is_that_of_constrain(space: Space) -> None:
    """Coordinates do not mix, so the gradient of their sum is the diagonal."""
    u = jnp.asarray(np.random.default_rng(0).normal(size=(50, 2)))
    slope = jax.jit(jax.vmap(jax.grad(lambda u: space.constrain(u).sum())))(u)
    np.testing.assert_allclose(jax.jit(space.log_jacobian)(u), np.log(slope), rtol=1e-9)


def test_designs_of_a_box_stay_inside_and_reach_its_edges() -> None:
    box = SPACES["box"]
    designs = jax.jit(box.constrain)(jnp.asarray([[-50.0, -50.0], [0.0, 0.0], [50.0, 50.0]]))
    np.testing.assert_allclose(designs, [[-4.0, 1.0], [0.0, 1.5], [4.0, 2.0]])
    units, back = jax.jit(lambda xi: (box.normalise(xi), box.unconstrain(xi)))(designs)
    np.testing.assert_allclose(units, [[-1, -1], [0, 0], [1, 1]])
    assert np.isfinite(back).all()


def test_log_jacobian_of_a_box_is_finite_where_tanh_rounds_to_one() -> None:
    """log(1 − tanh² u) → log 4 − 2|u|."""
    value = jax.jit(SPACES["box"].log_jacobian)(jnp.asarray([30.0, -30.0]))
    np.testing.assert_allclose(value, np.log([4.0, 0.5]) + np.log(4) - 60, rtol=1e-6)


def test_real_designs_scale() -> None:
    real = SPACES["real"]
    np.testing.assert_allclose(real.constrain(jnp.asarray([1.0, -2.0])), [40.0, -80.0])
    np.testing.assert_allclose(real.normalise(jnp.asarray([40.0, -80.0])), [1.0, -2.0])


def test_quantities_print_their_units() -> None:
    assert [str(q) for q in PAIR] == ["torque [N m]", "angle"]


@pytest.mark.parametrize(
    ("low", "high"),
    [((0.0,), (1.0,)), ((0.0, 1.0), (1.0, 1.0)), ((0.0, 2.0), (1.0, 1.0)), ((), ())],
)
def test_bad_limits_are_refused(low: tuple[float, ...], high: tuple[float, ...]) -> None:
    with pytest.raises(InvalidValueError, match=r"expected 2 pairs with low < high.*Fix:"):
        Box(PAIR, low, high)


@pytest.mark.parametrize("scale", [0.0, -1.0, float("inf"), float("nan")])
def test_a_bad_scale_is_refused(scale: float) -> None:
    with pytest.raises(InvalidValueError, match=r"a positive number.*Fix:"):
        Real(PAIR, scale=scale)
