"""What several tests compare with: closed-form tasks, the smallest policy and history tasks, and
exact means by quadrature.
"""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from scorebed.policies.base import Policy
from scorebed.tasks import ORACLE_TASKS
from scorebed.tasks.base import Gaussian, History, Task
from scorebed.tasks.oracles.closed_form import ClosedForm
from scorebed.tasks.oracles.fading_noise import FadingNoise
from scorebed.tasks.oracles.linear_markov import LinearMarkov
from scorebed.tasks.oracles.projection import Projection
from scorebed.tasks.oracles.sign import Sign
from scorebed.tasks.priors import standard_normal
from scorebed.tasks.spaces import Quantity, Real

STEPS = 2
# Away from the defaults, so that no constant of value one hides a mistake.
ORACLES: dict[str, ClosedForm] = {
    "linear-markov": LinearMarkov(prior_scale=1.3, noise=0.6, horizon=STEPS),
    "sign": Sign(noise=1.4, horizon=STEPS),
    "fading-noise": FadingNoise(prior_scale=1.6, noise=0.9, horizon=STEPS),
    "projection": Projection(prior_scale=1.5, noise=0.8, horizon=STEPS),
    "linear-gaussian-2d": ORACLE_TASKS["linear-gaussian-2d"](horizon=STEPS),
}
# Designs of as many steps, by the number of their coordinates.
XIS = {1: ((0.9,), (-0.6,)), 2: ((0.9, 0.3), (-0.6, 0.8))}


class Affine(Policy):
    """ξ_t = φ_t + κ y_{t−1}, with y_0 = 0: the smallest adaptive policy."""

    phi: Float[Array, "T dx"]
    kappa: Float[Array, ""]

    def sample_noise(self, horizon, *, key):
        del key
        return jnp.zeros((horizon, 0))

    def init(self):
        return jnp.zeros((), jnp.int32), jnp.zeros(1, self.phi.dtype)

    def design(self, memory, noise):
        del noise
        step, y = memory
        return self.phi[step] + self.kappa * y

    def update(self, memory, xi, y):
        del xi
        return memory[0] + 1, y


class Accumulation(History, Gaussian):
    """Effects add up over time: neither iid nor Markov."""

    horizon: int = eqx.field(static=True, default=4)
    prior: eqx.Module = standard_normal((Quantity("effect"),))
    designs: Real = eqx.field(static=True, default=Real((Quantity("dose"),)))
    outcomes: tuple = eqx.field(static=True, default=(Quantity("response"),))
    additive_noise: bool = eqx.field(static=True, default=True)

    def initial(self, theta):
        return jnp.zeros_like(theta)

    def advance(self, theta, state, xi, y):
        del y
        return state + theta * xi

    def mean(self, theta, state, xi):
        return state + theta * xi

    def scale(self, theta, state, xi):
        del theta, state, xi
        return (1.0,)


def product_rule(rules: list[tuple[np.ndarray, np.ndarray]]) -> tuple[Array, Array]:
    """Points and weights of the product of one-dimensional rules."""
    points = np.stack(
        [p.ravel() for p in np.meshgrid(*[r[0] for r in rules], indexing="ij")], axis=1
    )
    weights = np.prod(
        [w.ravel() for w in np.meshgrid(*[r[1] for r in rules], indexing="ij")], axis=0
    )
    return jnp.asarray(points), jnp.asarray(weights)


def grid(task: Task, *, sign_nodes: int = 201) -> tuple[Array, Array, Array]:
    """z, noise and weights of a product rule for N(0, I): trapezoidal, which is spectrally accurate
    for analytic functions.
    """
    sign = isinstance(task, Sign)
    axis = np.linspace(
        -6.5, 6.5, sign_nodes if sign else {1: 27, 2: 19}[task.prior.dim]
    )  # poles of tanh ask for more
    normal = axis, np.exp(-0.5 * axis**2) / np.exp(-0.5 * axis**2).sum()
    coin = np.asarray([-1.0, 1.0]), np.asarray([0.5, 0.5])
    points, weights = product_rule(
        [coin if sign else normal] * task.prior.dim + [normal] * task.horizon
    )
    k = task.prior.dim
    return points[:, :k], points[:, k:, None], weights
