"""The conservative wrapper: a score that is the gradient of a scalar potential, as the true one is
of log p(y | ξ).

    Φ(y, ξ) = Σ_t ⟨a, norm [o^y_t, o^ξ_t]⟩,   s = ∇_{y,ξ} Φ   or   ∇_{y,ξ} Φ / σ̄

with the outputs o of the two-headed network and a learned projection a. Of two numbers a norm keeps
only their order: there they go through a wider GELU layer first. Steps are pooled by a sum: log
p(y | ξ) grows with their number, and a sum keeps the permutation equivariance of the network. The
projection has no bias, since no gradient would see it. The units of the score come from the chain
rule through the standardised inputs.

σ̄ is the mean standard deviation of the outcomes' noise, one number: conditional scores have the
size 1/σ. The authors' program divides the y-part by σ of each coordinate and the ξ-part by σ̄, which
is the same wherever all σ are equal, as in every task of the paper. Where they are not, no
potential could then give the true score.

A gradient of a gradient: a training step costs about 2.5 times that of the direct form.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray, Scalar

from scorebed.keys import named
from scorebed.nets.linear import LayerNorm, Linear, preserving_variance, uniform
from scorebed.nets.mlp import gelu
from scorebed.scores.base import Score, ScoreValue
from scorebed.scores.standardise import Standardiser
from scorebed.scores.transformer import TransformerKind, TransformerScore
from scorebed.tasks.base import Task

FEWEST_NORMALISED = 3


class Pooling(eqx.Module):
    """One number from `inputs` numbers: a norm and a projection, below them a GELU layer of `width`
    where a norm would leave too little of the inputs. Unnormalised it is the projection alone.
    """

    widen: Linear | None
    norm: LayerNorm | None
    projection: Float[Array, " n"]

    def __init__(
        self, inputs: int, *, width: int = 128, normalised: bool = True, key: PRNGKeyArray
    ):
        key_widen, key_projection = jr.split(key)
        wide = normalised and inputs < FEWEST_NORMALISED
        size = width if wide else inputs
        self.widen = preserving_variance(Linear(inputs, width, key=key_widen)) if wide else None
        self.norm = LayerNorm(size) if normalised else None
        self.projection = uniform(size, bound=size**-0.5, key=key_projection)

    def __call__(self, x: Float[Array, "*b n"]) -> Float[Array, "*b"]:
        x = x if self.widen is None else gelu(self.widen(x))
        return (x if self.norm is None else self.norm(x)) @ self.projection


class ConservativeScore(Score):
    """s = ∇Φ / noise around a network of any size: `ConservativeScore(TransformerScore(task,
    standardise, key=…), key=…)`.
    """

    network: TransformerScore
    pooling: Pooling
    noise: Float[Array, ""]

    def __init__(
        self,
        network: TransformerScore,
        *,
        width: int = 128,
        normalised: bool = True,
        noise: Float[Array, ""] | None = None,
        key: PRNGKeyArray,
    ):
        self.network = network
        self.pooling = Pooling(
            sum(network.standardise.sizes), width=width, normalised=normalised, key=key
        )
        self.noise = jnp.ones(()) if noise is None else noise

    def potential(self, ys: Float[Array, "T dy"], xis: Float[Array, "T dx"]) -> Scalar:
        """Φ(y, ξ): `noise` · log p(y | ξ) up to a constant, once trained."""
        return self.pooling(jnp.concatenate(self.network.outputs(ys, xis), axis=-1)).sum()

    def __call__(self, ys: Float[Array, "T dy"], xis: Float[Array, "T dx"]) -> ScoreValue:
        noise = jax.lax.stop_gradient(self.noise)
        y, xi = jax.grad(self.potential, argnums=(0, 1))(ys, xis)
        return ScoreValue(y / noise, xi / noise)

    @property
    def nle(self) -> int:
        return 0


class Transformer(TransformerKind):
    """The paper's transformer, conservative: its score is the gradient of a potential."""

    potential_width: int = eqx.field(static=True, default=128)
    """Width of the potential's hidden layer, where a step has one outcome and one design."""
    normalised: bool = eqx.field(static=True, default=True)
    """Whether the outputs of the heads are normalised before they are summed up to the potential;
    false for a plain projection, as in the paper's text.
    """
    by_noise: bool = eqx.field(static=True, default=False)
    """Whether the gradient of the potential is divided by the standard deviation of the noise."""

    def make(
        self, task: Task, standardise: Standardiser, *, key: PRNGKeyArray
    ) -> ConservativeScore:
        return ConservativeScore(
            self.network(task, standardise, key=named(key, "network")),
            width=self.potential_width,
            normalised=self.normalised,
            noise=task.typical_noise().mean() if self.by_noise else None,
            key=named(key, "projection"),
        )
