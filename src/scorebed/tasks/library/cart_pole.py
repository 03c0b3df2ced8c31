"""Cart-pole: find pole length, pole mass and cart mass by applying a force to the cart."""

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from scorebed.tasks.library.euler_maruyama import GRAVITY, PRIOR_SCALE, EulerMaruyama
from scorebed.tasks.priors import Prior, log_normal
from scorebed.tasks.spaces import Box, Quantity, Space

K1 = K2 = D1 = D2 = 0.01


class CartPole(EulerMaruyama):
    """The cart-pole: state (s, q, ṡ, q̇), parameters (l, m_p, m_c), force ξ ∈ [−5, 5].

        f = (ṡ, q̇, s̈, q̈),   a = k₁ s + d₁ ṡ,   b = (k₂ q + d₂ q̇) cos q / l
        s̈ = [ξ + m_p sin q (l q̇² + g cos q) − a − b] / (m_c + m_p sin² q)
        q̈ = [−ξ cos q − m_p l q̇² cos q sin q − (m_c + m_p) g sin q − (a + b) cos q]
            / [l (m_c + m_p sin² q)]

    The term (k₁ s + d₁ ṡ) cos q in q̈ is kept with the sign that the paper prints.

    Arguments:
        prior: the prior of θ; log θ ~ N(0, 0.01 I) if left out.
        designs: the range of the controls.
        outcomes: names and units of the states.
        horizon: number of steps, T.
        step: the time step δt.
        diffusion: the noise L.
        additive_noise: True, since L is constant.

    Example:
        >>> sb.CartPole(horizon=10).prior.dim
        3
    """

    preset_file: ClassVar[str] = "cart-pole.toml"
    prior: Prior = log_normal(
        (Quantity("pole length", "m"), Quantity("pole mass", "kg"), Quantity("cart mass", "kg")),
        PRIOR_SCALE,
    )
    designs: Space = eqx.field(static=True, default=Box((Quantity("force", "N"),), (-5.0,), (5.0,)))
    outcomes: tuple[Quantity, ...] = eqx.field(
        static=True,
        default=(
            Quantity("cart position", "m"),
            Quantity("pole angle", "rad"),
            Quantity("cart velocity", "m/s"),
            Quantity("angular velocity", "rad/s"),
        ),
    )

    def drift(
        self, y: Float[Array, " 4"], xi: Float[Array, " 1"], theta: Float[Array, " 3"]
    ) -> Float[Array, " 4"]:
        (s, q, ds, dq), (l, mp, mc), (u,) = y, theta, xi
        sin, cos = jnp.sin(q), jnp.cos(q)
        cart = K1 * s + D1 * ds
        pole = (K2 * q + D2 * dq) * cos / l
        inertia = mc + mp * sin**2
        dds = (u + mp * sin * (l * dq**2 + GRAVITY * cos) - cart - pole) / inertia
        ddq = (
            -u * cos
            - mp * l * dq**2 * cos * sin
            - (mc + mp) * GRAVITY * sin
            - cart * cos
            - pole * cos
        ) / (l * inertia)
        return jnp.stack([ds, dq, dds, ddq])
