"""Tasks whose outcomes are one of finitely many: an answer, a category, a count.

    class Choice(IID, Discrete):
        outcomes = categories("answer", ("now", "later"))

        def probabilities(self, theta, state, xi):
            later = jax.nn.sigmoid(theta[0] * xi[0])
            return jnp.stack([1 - later, later])

An outcome is drawn by its quantile function, y = F⁻¹(Φ(ε)): a staircase in ε, θ and ξ, with no
gradient. What trains policies is the gradient of log p(y | θ, ξ) at fixed y.
"""

import abc
from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax.scipy.special import ndtr
from jaxtyping import Array, Float, Scalar

from scorebed.tasks.base import State, Task


class Discrete(Task):
    """A task whose outcomes take finitely many values, with the probability of each: `outcome` and
    `log_prob` follow from these. It is inherited together with a structure.

    Attributes:
        horizon: number of steps, T.
        prior: the prior of θ.
        designs: the design space.
        outcomes: what a step measures; see `categories` and `counts`.

    Methods:
        initial: the state before the first step; `IID` has none, `Markov` takes `start`.
        advance: the state after a step; `IID` and `Markov` have one.
        probabilities: the probability of each value of the outcome; of each of several outcomes
            in a list, which are then independent given θ.

    Example:
        >>> import jax
        >>> import numpyro.distributions as dist
        >>> class Threshold(sb.IID, sb.Discrete):
        ...     horizon = 3
        ...     prior = sb.parameters({"threshold": dist.Normal(0.0, 1.0)})
        ...     designs = sb.ranges({"stimulus": (-3.0, 3.0)})
        ...     outcomes = sb.categories("seen", ("no", "yes"))
        ...
        ...     def probabilities(self, theta, state, xi):
        ...         yes = jax.nn.sigmoid(4 * (xi[0] - theta[0]))
        ...         return jnp.stack([1 - yes, yes])
        >>> threshold = Threshold()
        >>> threshold.outcome_count, threshold.outcomes[0].label(1.0)
        (2, 'yes')
    """

    # Outcomes jump: no noise is added to a mean.
    additive_noise = False  # type: ignore[assignment]

    @abc.abstractmethod
    def probabilities(
        self, theta: Float[Array, " k"], state: State, xi: Float[Array, " dx"]
    ) -> Float[Array, " n"] | Sequence[Float[Array, " n"]]:
        """The probability of each value, [n]; for several outcomes a list of such."""

    def log_probs(
        self, theta: Float[Array, " k"], state: State, xi: Float[Array, " dx"]
    ) -> Float[Array, " Y"]:
        total = jnp.zeros(1, xi.dtype)
        for each in self._each(theta, state, xi):
            total = (total[:, None] + _log(each)[None]).reshape(-1)
        return total

    def outcome(
        self,
        theta: Float[Array, " k"],
        state: State,
        xi: Float[Array, " dx"],
        noise: Float[Array, " dy"],
    ) -> Float[Array, " dy"]:
        each = self._each(theta, state, xi)
        found = [
            quantile(chances, ndtr(noise[i]), quantity.values)
            for i, (chances, quantity) in enumerate(zip(each, self.outcomes, strict=True))
        ]
        return jnp.stack(found)

    def log_prob(
        self,
        y: Float[Array, " dy"],
        theta: Float[Array, " k"],
        state: State,
        xi: Float[Array, " dx"],
    ) -> Scalar:
        # Of a few values the one is selected: gathers do not vectorise over contrastive parameters.
        terms = []
        for i, each in enumerate(self._each(theta, state, xi)):
            values = jnp.asarray(self.outcomes[i].values, y.dtype)
            hit = jnp.abs(values - y[i]) == jnp.abs(values - y[i]).min()
            terms.append(_log(jnp.where(hit, each, 0).sum()))
        return sum(terms[1:], start=terms[0])

    def _each(
        self, theta: Float[Array, " k"], state: State, xi: Float[Array, " dx"]
    ) -> Sequence[Float[Array, " n"]]:
        """One array of probabilities per outcome."""
        found = self.probabilities(theta, state, xi)
        return [found] if isinstance(found, jax.Array) else found


def quantile(
    chances: Float[Array, " n"], level: Scalar, values: Sequence[float]
) -> Float[Array, ""]:
    """The smallest value whose distribution function exceeds `level`; the last one if rounding
    leaves none.
    """
    above = jnp.cumsum(jax.lax.stop_gradient(chances))[:-1] <= jax.lax.stop_gradient(level)
    return jnp.asarray(values, chances.dtype)[above.sum()]


def _log(chances: Array) -> Array:
    """log p; a probability that is zero by rounding stays finite, as does its gradient."""
    return jnp.log(jnp.maximum(chances, jnp.finfo(chances.dtype).tiny))
