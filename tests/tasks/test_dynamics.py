"""Pendulum, cart-pole and double link: the mechanics behind their drifts."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

from scorebed.errors import InvalidValueError
from scorebed.tasks.library import cart_pole as cartpole
from scorebed.tasks.library.cart_pole import CartPole
from scorebed.tasks.library.double_link import DoubleLink
from scorebed.tasks.library.euler_maruyama import EulerMaruyama
from scorebed.tasks.library.pendulum import Pendulum

pytestmark = pytest.mark.usefixtures("float64")

SYSTEMS = [Pendulum(), CartPole(), DoubleLink()]
G = 9.81


@eqx.filter_jit
def drift(task: EulerMaruyama, y: Array, xi: Array, theta: Array) -> Array:
    return task.drift(y, xi, theta)


@eqx.filter_jit
def slopes(task: EulerMaruyama, theta: Array) -> tuple[Array, Array]:
    """∂f/∂y and ∂f/∂ξ at rest."""
    return jax.jacfwd(task.drift, (0, 1))(
        jnp.zeros(task.outcome_dim), jnp.zeros(task.designs.dim), theta
    )


def random(*shape: int, seed: int = 0) -> Array:
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape))


@pytest.mark.parametrize("task", SYSTEMS, ids=lambda t: type(t).__name__)
def test_one_step_is_euler_maruyama(task: EulerMaruyama) -> None:
    """y_t = y_{t−1} + δt f + √δt L ε, with the paper's δt = 0.05 and L = 0.1 I, from rest, for 50
    steps.
    """
    y, xi, theta, noise = (
        random(task.outcome_dim),
        random(task.designs.dim),
        jnp.ones(task.prior.dim),
        random(task.outcome_dim),
    )
    expected = y + 0.05 * drift(task, y, xi, theta) + 0.05**0.5 * 0.1 * noise
    np.testing.assert_allclose(jax.jit(task.outcome)(theta, y, xi, noise), expected, rtol=1e-12)
    np.testing.assert_array_equal(task.start(), np.zeros(task.outcome_dim))
    assert task.horizon == 50


@pytest.mark.parametrize("task", SYSTEMS, ids=lambda t: type(t).__name__)
def test_rest_is_an_equilibrium(task: EulerMaruyama) -> None:
    np.testing.assert_array_equal(
        drift(task, task.start(), jnp.zeros(task.designs.dim), jnp.full(task.prior.dim, 1.3)), 0.0
    )


@pytest.mark.parametrize("task", SYSTEMS, ids=lambda t: type(t).__name__)
def test_rest_is_stable(task: EulerMaruyama) -> None:
    """Everything hangs: the linearised system has no growing mode. Catches gravity with the wrong
    sign.
    """
    slope, _ = slopes(task, jnp.exp(0.1 * random(task.prior.dim)))
    assert np.linalg.eigvals(np.asarray(slope)).real.max() <= 1e-6


def test_pendulum_frequency_damping_and_input() -> None:
    """Small angles: ω² = 3g/(2l), damping 3b/(m l²), input gain 3/(m l²)."""
    m, l = 1.2, 0.8
    slope, gain = slopes(Pendulum(), jnp.asarray([m, l]))
    np.testing.assert_allclose(
        slope, [[0, 1], [-3 * G / (2 * l), -3 * 0.1 / (m * l**2)]], rtol=1e-12
    )
    np.testing.assert_allclose(gain, [[0], [3 / (m * l**2)]], rtol=1e-12)


def test_cart_pole_obeys_lagrange_without_friction(monkeypatch: pytest.MonkeyPatch) -> None:
    """(m_c + m_p) s̈ + m_p l (q̈ cos q − q̇² sin q) = ξ and l q̈ + s̈ cos q + g sin q = 0."""
    for constant in ("K1", "K2", "D1", "D2"):
        monkeypatch.setattr(cartpole, constant, 0.0)
    y, u, l, mp, mc = random(4), 0.7, 0.9, 1.2, 1.4
    _, q, _, dq = np.asarray(y)
    frictionless = jax.jit(
        lambda *arguments: CartPole().drift(*arguments)
    )  # `drift` may be compiled with friction
    _, _, dds, ddq = np.asarray(frictionless(y, jnp.asarray([u]), jnp.asarray([l, mp, mc])))
    cart = (mc + mp) * dds + mp * l * (ddq * np.cos(q) - dq**2 * np.sin(q))
    pole = l * ddq + dds * np.cos(q) + G * np.sin(q)
    np.testing.assert_allclose([cart, pole], [u, 0.0], atol=1e-12)


def test_cart_pole_friction_at_rest() -> None:
    """Stiffness and damping as printed, where q = 0: of the cart on both rows with the same sign,
    of the pole over l.
    """
    l, mc, k = 0.9, 1.4, 0.01
    slope = np.asarray(slopes(CartPole(), jnp.asarray([l, 1.2, mc]))[0])
    np.testing.assert_allclose(slope[2, [0, 2, 3]], -np.asarray([k, k, k / l]) / mc, rtol=1e-12)
    np.testing.assert_allclose(
        slope[3, [0, 2, 3]], -np.asarray([k, k, k / l]) / (l * mc), rtol=1e-12
    )


def test_double_link_solves_the_printed_system() -> None:
    """(q̈₁, q̈₂) = M⁻¹(ξ − C q̇ + τ) with the paper's matrices, gravity with the sign that
    restores.
    """
    for seed in range(5):
        y, xi, theta = (
            random(4, seed=seed),
            random(2, seed=seed + 10),
            jnp.exp(0.3 * random(4, seed=seed + 20)),
        )
        q1, q2, dq1, dq2 = np.asarray(y)
        m1, m2, l1, l2 = np.asarray(theta)
        c = m2 * l1 * l2 * np.cos(q2)
        s = m2 * l1 * l2 * np.sin(q2)
        mass = np.asarray(
            [[(m1 + m2) * l1**2 + m2 * l2**2 + 2 * c, m2 * l2**2 + c], [m2 * l2**2 + c, m2 * l2**2]]
        )
        coriolis = np.asarray(
            [[0.0, -s * (2 * dq1 + dq2)], [0.5 * s * (2 * dq1 + dq2), -0.5 * s * dq1]]
        )
        arms = np.asarray(
            [(m1 + m2) * l1 * np.sin(q1) + m2 * l2 * np.sin(q1 + q2), m2 * l2 * np.sin(q1 + q2)]
        )
        acceleration = np.linalg.solve(mass, np.asarray(xi) - coriolis @ [dq1, dq2] - G * arms)
        np.testing.assert_allclose(
            drift(DoubleLink(), y, xi, theta), [dq1, dq2, *acceleration], rtol=1e-10
        )


def test_double_link_conserves_energy_without_torque() -> None:
    """½ q̇ᵀMq̇ − g[(m₁ + m₂) l₁ cos q₁ + m₂ l₂ cos(q₁ + q₂)] does not change along the drift, and
    torque adds ξᵀq̇.
    """
    theta, task = jnp.asarray([1.1, 0.9, 0.8, 1.2]), DoubleLink()

    def energy(y: Array) -> Array:
        (q1, q2, dq1, dq2), (m1, m2, l1, l2) = y, theta
        kinetic = 0.5 * m1 * (l1 * dq1) ** 2 + 0.5 * m2 * (
            (l1 * dq1) ** 2
            + (l2 * (dq1 + dq2)) ** 2
            + 2 * l1 * l2 * dq1 * (dq1 + dq2) * jnp.cos(q2)
        )
        return kinetic - G * ((m1 + m2) * l1 * jnp.cos(q1) + m2 * l2 * jnp.cos(q1 + q2))

    for seed, xi in enumerate([jnp.zeros(2), jnp.asarray([2.0, -1.0])]):
        y = random(4, seed=seed)
        power = jax.jit(jax.grad(energy))(y) @ drift(task, y, xi, theta)
        assert float(power) == pytest.approx(float(xi @ y[2:]), abs=1e-10)


@pytest.mark.parametrize("options", [{"horizon": 0}, {"step": 0.0}, {"diffusion": -0.1}])
def test_bad_arguments_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(InvalidValueError, match=r"a dynamical task, got .*Fix:"):
        Pendulum(**options)
