"""Double link: find the masses and lengths of two coupled links by applying torques to their
joints.
"""

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from scorebed.tasks.library.euler_maruyama import GRAVITY, PRIOR_SCALE, EulerMaruyama
from scorebed.tasks.priors import Prior, log_normal
from scorebed.tasks.spaces import Box, Quantity, Space


class DoubleLink(EulerMaruyama):
    """The double link: state (q₁, q₂, q̇₁, q̇₂), parameters (m₁, m₂, l₁, l₂), torques
    ξ ∈ [−4, 4] × [−2, 2].

        f = (q̇, M⁻¹(ξ − C q̇ + τ)),   c = m₂ l₁ l₂ cos q₂,   s = m₂ l₁ l₂ sin q₂
        M₁₁ = (m₁ + m₂) l₁² + m₂ l₂² + 2c,   M₁₂ = M₂₁ = m₂ l₂² + c,   M₂₂ = m₂ l₂²
        C q̇ = s (−(2q̇₁ + q̇₂) q̇₂, ½(2q̇₁ + q̇₂) q̇₁ − ½ q̇₁ q̇₂)
        τ = −g ((m₁ + m₂) l₁ sin q₁ + m₂ l₂ sin(q₁ + q₂), m₂ l₂ sin(q₁ + q₂))

    Gravity restores: both links hang at q = 0. The paper prints −τ, an inverted pendulum, but its
    figures belong to +τ.

    Arguments:
        prior: the prior of θ; log θ ~ N(0, 0.01 I) if left out.
        designs: the range of the controls.
        outcomes: names and units of the states.
        horizon: number of steps, T.
        step: the time step δt.
        diffusion: the noise L.
        additive_noise: True, since L is constant.

    Example:
        >>> sb.DoubleLink(horizon=10).designs.dim
        2
    """

    preset_file: ClassVar[str] = "double-link.toml"
    prior: Prior = log_normal(
        (
            Quantity("mass 1", "kg"),
            Quantity("mass 2", "kg"),
            Quantity("length 1", "m"),
            Quantity("length 2", "m"),
        ),
        PRIOR_SCALE,
    )
    designs: Space = eqx.field(
        static=True,
        default=Box(
            (Quantity("torque 1", "N m"), Quantity("torque 2", "N m")), (-4.0, -2.0), (4.0, 2.0)
        ),
    )
    outcomes: tuple[Quantity, ...] = eqx.field(
        static=True,
        default=(
            Quantity("angle 1", "rad"),
            Quantity("angle 2", "rad"),
            Quantity("angular velocity 1", "rad/s"),
            Quantity("angular velocity 2", "rad/s"),
        ),
    )

    def drift(
        self, y: Float[Array, " 4"], xi: Float[Array, " 2"], theta: Float[Array, " 4"]
    ) -> Float[Array, " 4"]:
        (q1, q2, dq1, dq2), (m1, m2, l1, l2), (u1, u2) = y, theta, xi
        # M, symmetric
        coupling = m2 * l1 * l2 * jnp.cos(q2)
        m22 = m2 * l2**2
        m12 = m22 + coupling
        m11 = (m1 + m2) * l1**2 + m22 + 2 * coupling
        # C q̇
        twist = m2 * l1 * l2 * jnp.sin(q2)
        c1 = -twist * (2 * dq1 + dq2) * dq2
        c2 = 0.5 * twist * ((2 * dq1 + dq2) * dq1 - dq1 * dq2)
        # τ
        tau2 = -GRAVITY * m2 * l2 * jnp.sin(q1 + q2)
        tau1 = tau2 - GRAVITY * (m1 + m2) * l1 * jnp.sin(q1)
        # M⁻¹(ξ − C q̇ + τ), by the closed 2 × 2 inverse
        r1, r2 = u1 - c1 + tau1, u2 - c2 + tau2
        det = m11 * m22 - m12**2
        return jnp.stack([dq1, dq2, (m22 * r1 - m12 * r2) / det, (m11 * r2 - m12 * r1) / det])
