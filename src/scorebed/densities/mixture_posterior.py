"""VarPost: a mixture of Gaussians, given by a transformer of the data, in place of the posterior
(paper, appendix "Baselines").

    q(z | y, ξ) = Σ_c w_c N(z; m_c, diag s_c²),   (w, m, s) = heads(summary of (y_{1:T}, ξ_{1:T}))

It is a density of the prior's latent z, θ = f(z), z ~ N(0, I). Outcomes depend on z through θ
alone, so I(z; y) = I(θ; y) whether or not f has an inverse, and E[log q(z | y, ξ) − log N(z; 0, I)]
is a lower bound of the EIG (Barber & Agakov). Where some parameters are a nuisance it is a density
of the z of those of interest, and the bound is that of the EIG on them.

The posterior of K exchangeable blocks, such as sources, has K! copies of every peak. There the
mixture describes the blocks in canonical order, by their first coordinate, and each of the K!
orders has its share:   q(z) = q_sorted(sort z) / K!."""

import abc
import math
from collections.abc import Sequence
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray, Scalar

from scorebed.errors import require
from scorebed.inference.blocks import canonical, exchangeable_blocks
from scorebed.inference.gaussian_mixture import gaussian_log_prob
from scorebed.nets.mlp import MLP, gelu
from scorebed.scores.standardise import Standardiser
from scorebed.scores.transformer import FREQUENCY_SCALE, TransformerBackbone
from scorebed.tasks.base import Task
from scorebed.tasks.nuisance import has_nuisance, of_interest


class PosteriorDensity(eqx.Module):
    """q(z | y_{1:T}, ξ_{1:T}), an approximation of the posterior of the latent z. It costs no
    NLE.
    """

    @abc.abstractmethod
    def log_prob(
        self, z: Float[Array, " k"], ys: Float[Array, "T dy"], xis: Float[Array, "T dx"]
    ) -> Scalar:
        """log q(z | y_{1:T}, ξ_{1:T}), differentiable in all."""


class DiagonalMixture(NamedTuple):
    """Weights (log, normalised), means and log standard deviations of a mixture of diagonal
    Gaussians.
    """

    log_weights: Float[Array, " components"]
    means: Float[Array, "components k"]
    log_scales: Float[Array, "components k"]

    def log_prob(self, z: Float[Array, " k"]) -> Scalar:
        """The log density at z."""
        squares = jnp.square((z - self.means) * jnp.exp(-self.log_scales)).sum(-1)
        each = gaussian_log_prob(squares, self.log_scales.sum(-1), dim=z.size)
        return jax.nn.logsumexp(self.log_weights + each)


class MixturePosterior(PosteriorDensity):
    """The score network's backbone, with one head per component instead of the score's. Defaults
    are the paper's.

    Each head has one hidden layer and sees the global token alone. Steps carry positions unless
    they are exchangeable. A mixture in canonical order may put some of its mass on other orders,
    which no z will ever claim: the bound is then lower, not wrong."""

    standardise: Standardiser
    backbone: TransformerBackbone
    to_weights: MLP
    to_components: MLP
    blocks: int = eqx.field(static=True)

    def __init__(
        self,
        task: Task,
        standardise: Standardiser,
        *,
        components: int = 10,
        width: int = 256,
        blocks: int = 3,
        heads: int = 4,
        features: int = 64,
        sigma: float = FREQUENCY_SCALE,
        hidden: Sequence[int] = (192, 128),
        key: PRNGKeyArray,
    ):
        require(
            components >= 1,
            "the components of a posterior",
            got=components,
            expected="a whole number from 1",
            fix="leave it out for the paper's 10.",
        )
        standardise.require_for(task, "a posterior")
        key_backbone, key_weights, key_components = jr.split(key, 3)
        self.standardise = standardise
        self.backbone = TransformerBackbone(
            task,
            width=width,
            blocks=blocks,
            heads=heads,
            features=features,
            sigma=sigma,
            hidden=hidden,
            key=key_backbone,
        )
        self.to_weights = MLP((width, width, components), gelu, key=key_weights)
        outputs = 2 * len(of_interest(task))
        self.to_components = eqx.filter_vmap(lambda k: MLP((width, width, outputs), gelu, key=k))(
            jr.split(key_components, components)
        )
        self.blocks = 1 if has_nuisance(task) else exchangeable_blocks(task)

    @classmethod
    def small(
        cls, task: Task, standardise: Standardiser, *, key: PRNGKeyArray
    ) -> "MixturePosterior":
        """The sizes of `TransformerScore.small`, for CPUs."""
        return cls(
            task,
            standardise,
            width=64,
            blocks=2,
            heads=4,
            features=32,
            hidden=(64, 64),
            key=key,
        )

    def mixture(self, ys: Float[Array, "T dy"], xis: Float[Array, "T dx"]) -> DiagonalMixture:
        """The mixture that these data give; its blocks are in canonical order."""
        summary = self.backbone(self.standardise.y(ys), self.standardise.xi(xis)).summary
        means, log_scales = jnp.split(
            jax.vmap(lambda head: head(summary))(self.to_components), 2, axis=-1
        )
        return DiagonalMixture(jax.nn.log_softmax(self.to_weights(summary)), means, log_scales)

    def log_prob(
        self, z: Float[Array, " k"], ys: Float[Array, "T dy"], xis: Float[Array, "T dx"]
    ) -> Scalar:
        log_q = self.mixture(ys, xis).log_prob(canonical(z, self.blocks))
        return log_q - math.lgamma(self.blocks + 1)
