"""The one table of tasks over which every law is tested."""

import equinox as eqx
import jax.numpy as jnp
import pytest
from jaxtyping import Array, Float, Scalar

from scorebed.tasks import ORACLE_TASKS, TASKS
from scorebed.tasks.base import Gaussian, History, Task
from scorebed.tasks.priors import Prior, log_normal
from scorebed.tasks.spaces import Quantity, Real, Space

HORIZON = 4  # long enough for states and permutations to matter
# its likelihood is that of the other two; its algebra is tested with the closed forms
THIRD = "linear-gaussian-3d"


class Habituation(Gaussian, History):
    """A response that weakens with its own past: the state depends on θ, so it is neither iid nor
    Markov.
    """

    horizon: int = eqx.field(static=True)
    prior: Prior = log_normal((Quantity("gain"), Quantity("fatigue")), 0.5)
    designs: Space = eqx.field(static=True, default=Real((Quantity("stimulus"),)))
    outcomes: tuple[Quantity, ...] = eqx.field(static=True, default=(Quantity("response"),))
    additive_noise: bool = eqx.field(static=True, default=True)

    def initial(self, theta: Float[Array, " 2"]) -> Scalar:
        return jnp.zeros((), theta.dtype)

    def advance(
        self,
        theta: Float[Array, " 2"],
        state: Scalar,
        xi: Float[Array, " 1"],
        y: Float[Array, " 1"],
    ) -> Scalar:
        return 0.5 * state + theta[1] * (xi[0] ** 2 + 0.1 * y[0] ** 2)

    def mean(
        self, theta: Float[Array, " 2"], state: Scalar, xi: Float[Array, " 1"]
    ) -> Float[Array, " 1"]:
        return theta[0] * xi * jnp.exp(-state)

    def scale(
        self, theta: Float[Array, " 2"], state: Scalar, xi: Float[Array, " 1"]
    ) -> tuple[float]:
        del theta, state, xi
        return (0.3,)


ALL_TASKS: dict[str, Task] = {
    **{
        name: make(horizon=HORIZON)
        for name, make in {**TASKS, **ORACLE_TASKS}.items()
        if name != THIRD
    },
    # Fewer sources compile sooner; the plane is one that the command line does not name.
    "location-finding-3d": TASKS["location-finding-3d"](sources=3, horizon=HORIZON),
    "gravimetry-plane": TASKS["gravimetry"](dim=2, horizon=HORIZON),
    "habituation": Habituation(HORIZON),
}


@pytest.fixture(scope="session", params=ALL_TASKS)
def name(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="session")
def task(name: str) -> Task:
    return ALL_TASKS[name]
