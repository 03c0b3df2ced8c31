"""A mixture of design samplers: one component is drawn per trajectory."""

import math
from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float, PRNGKeyArray, Scalar

from scorebed.errors import NoDensityError, require
from scorebed.samplers.base import DesignSampler
from scorebed.tasks.spaces import Space


class SamplerMixture(DesignSampler):
    """q = Σ_i w_i q_i. Weights are normalised; without them all components are equally likely."""

    components: tuple[DesignSampler, ...]
    weights: tuple[float, ...] = eqx.field(static=True)
    horizon: int = eqx.field(static=True)
    space: Space = eqx.field(static=True)

    def __init__(
        self, components: tuple[DesignSampler, ...], weights: tuple[float, ...] | None = None
    ):
        require(
            len(components) >= 1,
            "a mixture of design samplers",
            got="no components",
            expected="at least one",
            fix="give a tuple of samplers.",
        )
        horizon, space = components[0].horizon, components[0].space
        require(
            all(c.horizon == horizon and c.space == space for c in components),
            "the components of a mixture",
            got="different horizons or design spaces",
            expected="the same for all",
            fix="make every component for one task.",
        )
        weights = (1.0,) * len(components) if weights is None else weights
        require(
            len(weights) == len(components) and all(0 < w < math.inf for w in weights),
            "the weights of a mixture",
            got=weights,
            expected=f"{len(components)} positive numbers",
            fix="give one per component, or leave them out for equal shares.",
        )
        self.components, self.horizon, self.space = components, horizon, space
        self.weights = tuple(w / sum(weights) for w in weights)

    def sample(self, *, key: PRNGKeyArray) -> Float[Array, "T dx"]:
        key_which, *keys = jr.split(key, 1 + len(self.components))
        which = jr.categorical(key_which, jnp.log(jnp.asarray(self.weights)))
        # All are drawn and one is kept: under vmap a branch would compute all of them anyway.
        return jnp.stack([c.sample(key=k) for c, k in zip(self.components, keys, strict=True)])[
            which
        ]

    def log_prob(self, xis: Float[Array, "T dx"]) -> Scalar:
        return self._log_sum(lambda component: component.log_prob(xis))

    def log_prob_unconstrained(self, us: Float[Array, "T dx"]) -> Scalar:
        return self._log_sum(lambda component: component.log_prob_unconstrained(us))

    def _log_sum(self, log_prob: Callable[[DesignSampler], Scalar]) -> Scalar:
        terms = []
        for i, (component, weight) in enumerate(zip(self.components, self.weights, strict=True)):
            try:
                terms.append(math.log(weight) + log_prob(component))
            except NoDensityError as error:
                raise NoDensityError(
                    f"component {i + 1} of a mixture, {type(component).__name__}: {error}"
                ) from error
        return logsumexp(jnp.stack(terms))
