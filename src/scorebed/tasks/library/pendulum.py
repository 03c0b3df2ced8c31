"""Stochastic pendulum: find the mass and length of a damped pendulum by applying torque."""

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from scorebed.tasks.library.euler_maruyama import GRAVITY, PRIOR_SCALE, EulerMaruyama
from scorebed.tasks.priors import Prior, log_normal
from scorebed.tasks.spaces import Box, Quantity, Space

DAMPING = 0.1


class Pendulum(EulerMaruyama):
    """The pendulum: state (q, q̇), parameters (m, l), torque ξ ∈ [−1, 1].

    f = (q̇, −3g/(2l) sin q + 3(ξ − b q̇)/(m l²)), with the factor 3 on the input and damping term
    of the published results (the paper's footnote).

    Arguments:
        prior: the prior of θ; log θ ~ N(0, 0.01 I) if left out.
        designs: the range of the controls.
        outcomes: names and units of the states.
        horizon: number of steps, T.
        step: the time step δt.
        diffusion: the noise L.
        additive_noise: True, since L is constant.

    Example:
        >>> sb.Pendulum(horizon=10).start()
        Array([0., 0.], dtype=float32)
    """

    preset_file: ClassVar[str] = "pendulum.toml"
    prior: Prior = log_normal((Quantity("mass", "kg"), Quantity("length", "m")), PRIOR_SCALE)
    designs: Space = eqx.field(
        static=True, default=Box((Quantity("torque", "N m"),), (-1.0,), (1.0,))
    )
    outcomes: tuple[Quantity, ...] = eqx.field(
        static=True, default=(Quantity("angle", "rad"), Quantity("angular velocity", "rad/s"))
    )

    def drift(
        self, y: Float[Array, " 2"], xi: Float[Array, " 1"], theta: Float[Array, " 2"]
    ) -> Float[Array, " 2"]:
        (q, dq), (m, l), (u,) = y, theta, xi
        ddq = -1.5 * GRAVITY / l * jnp.sin(q) + 3 * (u - DAMPING * dq) / (m * l**2)
        return jnp.stack([dq, ddq])
