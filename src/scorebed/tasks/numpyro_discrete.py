"""Discrete outcomes of a NumPyro model: Bernoulli, Binomial, Categorical, Poisson and whatever else
has a probability for each whole number.

Counts without a largest one, such as Poisson's, are told apart up to `at_most`, and larger ones
count as that many: the last probability is that of all the rest. If it is not given, it is chosen
such that hardly any draw of the prior and the design space goes beyond it.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float

from scorebed.errors import InvalidValueError, require
from scorebed.tasks.base import IID
from scorebed.tasks.constraints import Constraint
from scorebed.tasks.cost import DesignCost
from scorebed.tasks.discrete import Discrete
from scorebed.tasks.priors import Prior
from scorebed.tasks.spaces import Listed, Quantity, Space

PILOT = 256  # draws of θ and designs by which `at_most` is chosen
FAR = 8.0  # standard deviations above the mean of each of them
MOST = 1000  # counts that are told apart without being asked for

# (θ, ξ, what the observed sites are taken to be) → their distributions, by name.
Observed = Callable[[Array, Array, float], dict[str, Any]]


class NumpyroDiscrete(IID, Discrete):
    """Steps are independent given the parameters, and outcomes are finitely many. Made by
    `from_numpyro`.
    """

    observed: Observed = eqx.field(static=True)
    unbounded: tuple[str, ...] = eqx.field(static=True)
    sites: tuple[tuple[str, int], ...] = eqx.field(static=True)
    horizon: int = eqx.field(static=True)
    prior: Prior
    designs: Space = eqx.field(static=True)
    outcomes: tuple[Quantity, ...] = eqx.field(static=True)
    interest: tuple[str, ...] = eqx.field(static=True)  # type: ignore[misc]
    constraint: Constraint | None = eqx.field(static=True)  # type: ignore[misc]
    cost: DesignCost | None = eqx.field(static=True)  # type: ignore[misc]

    def probabilities(
        self, theta: Float[Array, " k"], state: None, xi: Float[Array, " dx"]
    ) -> Sequence[Float[Array, " n"]]:
        del state
        found: list[Array] = []
        distributions = self.observed(theta, xi, 0.0)
        for name, size in self.sites:
            values = self.outcomes[len(found)].values
            each = _chances(distributions[name], len(values), size)
            if name in self.unbounded:
                rest = jnp.maximum(1 - each[:-1].sum(0), 0.0)
                each = each.at[-1].set(rest)
            found += [each[:, i] for i in range(size)]
        return found


def largest(
    name: str,
    distribution: Any,
    at_most: Mapping[str, int],
    draw: Callable[[Array, Array], dict[str, Any]],
    dims: tuple[int, int],
) -> tuple[int, bool]:
    """The largest value of a site, and whether the distribution goes on beyond it. `draw` gives the
    distributions at latent z and unconstrained u, of `dims` numbers each.
    """
    upper = getattr(distribution.support, "upper_bound", None)
    if type(distribution.support) is type(_boolean()):
        upper = 1
    if upper is not None:
        highest = int(np.max(np.asarray(upper)))
        lowest = int(np.min(np.asarray(distribution.support.lower_bound))) if highest > 1 else 0
        require(
            lowest >= 0,
            f"the site '{name}' of the model",
            got=f"values from {lowest}",
            expected="whole numbers from 0",
            fix="count from 0.",
        )
        return highest, False
    if name in at_most:
        return at_most[name], True

    def reach(key: Any) -> Array:
        key_z, key_u = jr.split(key)
        found = draw(jr.normal(key_z, (dims[0],)), jr.normal(key_u, (dims[1],)))[name]
        return (found.mean + FAR * jnp.sqrt(found.variance)).max()

    found = float(np.max(np.asarray(jax.vmap(reach)(jr.split(jr.key(0), PILOT)))))
    if not found <= MOST:
        raise InvalidValueError(
            f"the site '{name}' of the model",
            got=f"counts up to {found:.0f} among draws of the prior",
            expected=f"at most {MOST}, or a largest count of yours",
            fix=f'give at_most={{"{name}": …}}; larger counts are then entered as that one.',
        )
    return max(2, math.ceil(found)), True


def require_independent(observed: Observed, theta: Array, xi: Array, sites: Any) -> None:
    """Refuse an observed site whose distribution depends on another one."""
    none, one = (observed(theta, xi, value) for value in (0.0, 1.0))
    for name, size in sites:
        first, second = (_chances(each[name], 2, size) for each in (none, one))
        require(
            bool(jnp.allclose(first, second)),
            f"the site '{name}' of the model",
            got="a distribution that depends on another observed site",
            expected="outcomes that are independent given the parameters",
            fix="observe one of them, or write the task as a class.",
        )


def listed(name: str, unit: str, count: int) -> Listed:
    """An outcome with the values 0 to `count`."""
    return Listed(name, unit, tuple(float(i) for i in range(count + 1)))


def _boolean() -> Any:
    from numpyro.distributions import constraints

    return constraints.boolean


def _chances(distribution: Any, count: int, size: int) -> Float[Array, "n m"]:
    """The probabilities of 0 … n − 1, of each of the numbers of a site."""
    values = jnp.arange(count).reshape(-1, *(1,) * len(distribution.batch_shape))
    with jax.numpy_dtype_promotion("standard"):
        log_p = distribution.log_prob(jnp.broadcast_to(values, (count, *distribution.batch_shape)))
    return jnp.exp(log_p).reshape(count, size).astype(jnp.result_type(float))
