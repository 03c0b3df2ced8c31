"""Controlled stochastic differential equations, observed at every Euler–Maruyama step (paper,
"Dynamical systems").

    y_t = y_{t−1} + δt f(y_{t−1}, ξ_t, θ) + √δt L ε_t
    log θ ~ N(0, 0.01 I),   y_0 = 0,   L = 0.1 I,   δt = 0.05

A dynamical task is its drift f and the names of its states, parameters and controls; the rest is
here. An Euler–Maruyama step *is* an experiment step, so no solver is needed."""

import abc
from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from scorebed.errors import require
from scorebed.tasks.base import Gaussian, Markov
from scorebed.tasks.priors import Prior
from scorebed.tasks.spaces import Quantity, Space

GRAVITY = 9.81
PRIOR_SCALE = 0.1


class EulerMaruyama(Markov, Gaussian):
    """A controlled stochastic differential equation, given by its drift f:
    y_t = y_{t−1} + δt f(y_{t−1}, ξ_t, θ) + √δt L ε_t. Inherit from it, and write `drift`.

    Attributes:
        prior: the prior of θ.
        designs: the controls.
        outcomes: the states, all of them observed.
        horizon: number of steps, 50.
        step: the time step δt, 0.05.
        diffusion: the noise L, 0.1.
        additive_noise: True, since L is constant.

    Methods:
        drift: f(y, ξ, θ), [dy].
        start: y_0, by default zero.

    Example:
        >>> class Spring(sb.EulerMaruyama):
        ...     prior = sb.parameters({"stiffness": dist.LogNormal(0.0, 0.1)})
        ...     designs = sb.ranges({"force [N]": (-1.0, 1.0)})
        ...     outcomes = sb.measured("position [m]", "velocity [m/s]")
        ...
        ...     def drift(self, y, xi, theta):
        ...         return jnp.stack([y[1], xi[0] - theta[0] * y[0]])
        >>> Spring(horizon=10).noise_dim
        2
    """

    prior: eqx.AbstractVar[Prior]
    designs: eqx.AbstractVar[Space]
    outcomes: eqx.AbstractVar[tuple[Quantity, ...]]
    horizon: int = eqx.field(static=True, default=50, kw_only=True)
    step: float = eqx.field(static=True, default=0.05, kw_only=True)
    diffusion: float = eqx.field(static=True, default=0.1, kw_only=True)
    additive_noise: bool = eqx.field(static=True, default=True, kw_only=True)
    few_modes: ClassVar[bool] = True

    def __check_init__(self) -> None:
        require(
            self.horizon >= 1 and self.step > 0 and self.diffusion > 0,
            "a dynamical task",
            got=f"horizon={self.horizon}, step={self.step}, diffusion={self.diffusion}",
            expected="at least one step, a positive time step and a positive diffusion",
            fix="leave them out for the paper's 50, 0.05 and 0.1.",
        )

    @abc.abstractmethod
    def drift(
        self, y: Float[Array, " dy"], xi: Float[Array, " dx"], theta: Float[Array, " k"]
    ) -> Float[Array, " dy"]:
        """f(y, ξ, θ)."""

    def start(self) -> Float[Array, " dy"]:
        return jnp.zeros(self.outcome_dim)

    def mean(
        self, theta: Float[Array, " k"], state: Float[Array, " dy"], xi: Float[Array, " dx"]
    ) -> Float[Array, " dy"]:
        # Component by component, so that the compiler sees scalars (see base.py).
        drift = self.drift(state, xi, theta)
        return jnp.stack([state[i] + self.step * drift[i] for i in range(self.outcome_dim)])

    def scale(
        self, theta: Float[Array, " k"], state: Float[Array, " dy"], xi: Float[Array, " dx"]
    ) -> tuple[float, ...]:
        del theta, state, xi
        return (self.step**0.5 * self.diffusion,) * self.outcome_dim
