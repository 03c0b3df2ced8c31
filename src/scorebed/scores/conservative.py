"""The conservative wrapper: a score that is the gradient of a scalar potential, as the true one is
of log p(y | ξ).

    Φ(y, ξ) = Σ_t ⟨a, [o^y_t, o^ξ_t]⟩,   s = ∇_{y,ξ} Φ

with the outputs o of the two-headed network and a learned projection a. Steps are pooled by a sum:
log p(y | ξ) grows with their number, and a sum keeps the permutation equivariance of the network.
The projection has no bias, since no gradient would see it. The units of the score come from the
chain rule through the standardised inputs.

A gradient of a gradient: a training step costs about 2.5 times that of the direct form.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, Scalar

from scorebed.keys import named
from scorebed.nets.linear import uniform
from scorebed.scores.base import Score, ScoreKind, ScoreValue, require_divisor, require_sizes
from scorebed.scores.standardise import Standardiser
from scorebed.scores.transformer import TransformerDirect, TransformerScore
from scorebed.tasks.base import Task


class ConservativeScore(Score):
    """s = ∇Φ around a network of any size: `ConservativeScore(TransformerScore(task, standardise,
    key=…), key=…)`.
    """

    network: TransformerScore
    projection: Float[Array, " dy+dx"]

    def __init__(self, network: TransformerScore, *, key: PRNGKeyArray):
        size = network.standardise.scale_y.size + network.standardise.scale_xi.size
        self.network = network
        self.projection = uniform(size, bound=size**-0.5, key=key)

    def potential(self, ys: Float[Array, "T dy"], xis: Float[Array, "T dx"]) -> Scalar:
        """Φ(y, ξ): log p(y | ξ) up to a constant, once trained."""
        return (jnp.concatenate(self.network.outputs(ys, xis), axis=-1) @ self.projection).sum()

    def __call__(self, ys: Float[Array, "T dy"], xis: Float[Array, "T dx"]) -> ScoreValue:
        return ScoreValue(*jax.grad(self.potential, argnums=(0, 1))(ys, xis))

    @property
    def nle(self) -> int:
        return 0


class Transformer(ScoreKind):
    """The paper's transformer, conservative: its score is the gradient of a potential."""

    width: int = eqx.field(static=True, default=128)
    """The transformer's model dimension."""
    blocks: int = eqx.field(static=True, default=4)
    """Number of transformer blocks."""
    heads: int = eqx.field(static=True, default=8)
    """Number of attention heads, which divides the width."""

    def __check_init__(self) -> None:
        require_sizes(self)
        require_divisor(self.heads, self.width)

    def make(
        self, task: Task, standardise: Standardiser, *, key: PRNGKeyArray
    ) -> ConservativeScore:
        direct = TransformerDirect(self.width, self.blocks, self.heads)
        network = direct.make(task, standardise, key=named(key, "network"))
        return ConservativeScore(network, key=named(key, "projection"))

    def nle(self, task: Task) -> int:
        del task
        return 0
