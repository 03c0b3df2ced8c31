"""The paper's score network: a transformer over steps with one prediction head per part of the
score (appendix "Score network architecture"), where the text is silent as the authors' program has
it (docs/reproduction.md).

    tokens_t = W · MLP[RFF(y_t), RFF(ξ_t)]  (+ position_t unless steps are exchangeable)
    (summary, h_1 … h_T) = norm(blocks(global token, tokens_1 … tokens_T))
    head input_t = [summary, e_t, h_t]   for independent steps
                   [summary, e_t, h_t, e_{t−1}, e_{t+1}, position_t]   for Markov tasks
                   [summary, e_t, h_t, position_t]   for others
    o^y_t = head_y(input^y_t),   o^ξ_t = head_ξ(input^ξ_t)

with standardised inputs. e_t is the head's embedding of the pair (y_t, ξ_t): of the tokens' form,
with other frequencies and weights. `conservative.py` makes a potential of the outputs, which is the
paper's choice. Here they are the score itself, s^y = o^y / scale_y and s^ξ = o^ξ / scale_ξ: its two
parts need not be the gradient of anything, and a training step costs less than half."""

from collections.abc import Sequence
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from scorebed.errors import require
from scorebed.nets.attention import TransformerBlock, sinusoidal_positions
from scorebed.nets.fourier import FourierFeatures
from scorebed.nets.linear import LayerNorm, preserving_variance
from scorebed.nets.mlp import MLP, gelu
from scorebed.nets.residual import ResidualNetwork
from scorebed.samplers.base import DesignSampler
from scorebed.scores.base import Score, ScoreKind, ScoreValue, require_divisor, require_sizes
from scorebed.scores.standardise import Standardiser, stepwise_standardiser
from scorebed.tasks.base import Task

# Small against the other tokens; every block normalises its input, so it can grow.
GLOBAL_TOKEN_SCALE = 0.02
# Of the Fourier features, in radians per standard deviation: the paper's σ = 10 times 0.01, as its
# authors' program has it.
FREQUENCY_SCALE = 0.1


class PairEmbedding(eqx.Module):
    """(y_t, ξ_t), standardised → `width` numbers: `features` Fourier features of each, side by
    side, through a GELU network.
    """

    features_y: FourierFeatures
    features_xi: FourierFeatures
    mlp: MLP

    def __init__(
        self,
        task: Task,
        width: int,
        *,
        features: int,
        sigma: float,
        hidden: Sequence[int],
        key: PRNGKeyArray,
    ):
        key_y, key_xi, key_mlp = jr.split(key, 3)
        self.features_y = FourierFeatures(task.outcome_dim, features, sigma=sigma, key=key_y)
        self.features_xi = FourierFeatures(task.designs.dim, features, sigma=sigma, key=key_xi)
        self.mlp = MLP((2 * features, *hidden, width), gelu, key=key_mlp)

    def __call__(
        self, ys: Float[Array, "T dy"], xis: Float[Array, "T dx"]
    ) -> Float[Array, "T width"]:
        return self.mlp(jnp.concatenate([self.features_y(ys), self.features_xi(xis)], axis=-1))


class Encoding(NamedTuple):
    """What a backbone knows of an experiment: as a whole, and step by step."""

    summary: Float[Array, " width"]
    steps: Float[Array, "T width"]


class TransformerBackbone(eqx.Module):
    """Embedding, positions, global token, blocks and a layer norm, on standardised inputs; shared
    with the variational posterior.

    Exchangeable steps carry no positions, so that the steps of the encoding follow any permutation
    and the summary none."""

    # Why files of an earlier version do not fit (`runs/artifacts.py`).
    changed: ClassVar[str] = "the transformer's frequencies, norms and heads are others since"

    embedding: PairEmbedding
    global_token: Float[Array, " width"]
    blocks: tuple[TransformerBlock, ...]
    norm: LayerNorm
    positions: bool = eqx.field(static=True)

    def __init__(
        self,
        task: Task,
        *,
        width: int = 256,
        blocks: int = 4,
        heads: int = 8,
        features: int = 64,
        sigma: float = FREQUENCY_SCALE,
        hidden: Sequence[int] = (192, 128),
        key: PRNGKeyArray,
    ):
        require(
            blocks >= 0,
            "the blocks of a transformer",
            got=blocks,
            expected="a whole number from 0",
            fix="leave it out for the paper's 4.",
        )
        key_embedding, key_token, key_blocks = jr.split(key, 3)
        self.embedding = preserving_variance(
            PairEmbedding(
                task, width, features=features, sigma=sigma, hidden=hidden, key=key_embedding
            )
        )
        self.global_token = GLOBAL_TOKEN_SCALE * jr.normal(key_token, (width,))
        self.blocks = tuple(
            preserving_variance(TransformerBlock(width, heads, 2 * width, key=k))
            for k in jr.split(key_blocks, blocks)
        )
        self.norm = LayerNorm(width)
        self.positions = not task.exchangeable_steps

    def __call__(self, ys: Float[Array, "T dy"], xis: Float[Array, "T dx"]) -> Encoding:
        tokens = self.embedding(ys, xis)
        if self.positions:
            tokens = tokens + jnp.asarray(sinusoidal_positions(*tokens.shape), tokens.dtype)
        x = jnp.concatenate([self.global_token[None], tokens])
        for block in self.blocks:
            x = block(x)
        x = self.norm(x)
        return Encoding(x[0], x[1:])


class Head(eqx.Module):
    """`outputs` numbers per step from the encoding and the head's embedding, by a residual network
    of `width`; with no blocks it has one hidden layer, as the paper describes it.

    With `window` the head also sees its embeddings of the steps before and after (zero beyond the
    ends): a Markov likelihood couples the score at t to just these, and attention need not find
    them. Where steps carry positions it sees that of its own step once more."""

    embedding: PairEmbedding
    network: ResidualNetwork
    window: bool = eqx.field(static=True)
    positions: bool = eqx.field(static=True)

    def __init__(
        self,
        task: Task,
        outputs: int,
        *,
        width: int,
        features: int,
        sigma: float,
        hidden: Sequence[int],
        blocks: int,
        key: PRNGKeyArray,
    ):
        key_embedding, key_network = jr.split(key)
        self.window, self.positions = task.exchangeable_transitions, not task.exchangeable_steps
        self.embedding = preserving_variance(
            PairEmbedding(
                task, width, features=features, sigma=sigma, hidden=hidden, key=key_embedding
            )
        )
        inputs = (3 + 2 * self.window + self.positions) * width
        self.network = preserving_variance(
            ResidualNetwork(inputs, width, outputs, blocks=blocks, key=key_network)
        )

    def __call__(
        self, encoding: Encoding, ys: Float[Array, "T dy"], xis: Float[Array, "T dx"]
    ) -> Float[Array, "T outputs"]:
        e = self.embedding(ys, xis)
        parts = [jnp.broadcast_to(encoding.summary, e.shape), e, encoding.steps]
        if self.window:
            none = jnp.zeros_like(e[:1])
            parts += [jnp.concatenate([none, e[:-1]]), jnp.concatenate([e[1:], none])]
        if self.positions:
            parts += [jnp.asarray(sinusoidal_positions(*e.shape), e.dtype)]
        return self.network(jnp.concatenate(parts, axis=-1))


class TransformerScore(Score):
    """The network's outputs *are* the score, in units of 1 / standard deviation. Defaults are the
    paper's: 3 million parameters.

    The y-part of a Markov task is in units of 1 / standard deviation of y_t − y_{t−1}: its
    likelihood is one of transitions, and outcomes wander many transitions far."""

    standardise: Standardiser
    backbone: TransformerBackbone
    head_y: Head
    head_xi: Head

    def __init__(
        self,
        task: Task,
        standardise: Standardiser,
        *,
        width: int = 256,
        blocks: int = 4,
        heads: int = 8,
        features: int = 64,
        sigma: float = FREQUENCY_SCALE,
        hidden: Sequence[int] = (192, 128),
        head_blocks: int = 2,
        key: PRNGKeyArray,
    ):
        standardise.require_for(task, "a score")
        key_backbone, key_y, key_xi = jr.split(key, 3)
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
        self.head_y, self.head_xi = (
            Head(
                task,
                outputs,
                width=width,
                features=features,
                sigma=sigma,
                hidden=hidden,
                blocks=head_blocks,
                key=k,
            )
            for outputs, k in ((task.outcome_dim, key_y), (task.designs.dim, key_xi))
        )

    @classmethod
    def small(
        cls, task: Task, standardise: Standardiser, *, key: PRNGKeyArray
    ) -> "TransformerScore":
        """A tenth of the parameters, for CPUs."""
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

    def outputs(
        self, ys: Float[Array, "T dy"], xis: Float[Array, "T dx"]
    ) -> tuple[Float[Array, "T dy"], Float[Array, "T dx"]]:
        """What the two heads say, of order one."""
        ys, xis = self.standardise.y(ys), self.standardise.xi(xis)
        encoding = self.backbone(ys, xis)
        return self.head_y(encoding, ys, xis), self.head_xi(encoding, ys, xis)

    def __call__(self, ys: Float[Array, "T dy"], xis: Float[Array, "T dx"]) -> ScoreValue:
        y, xi = self.outputs(ys, xis)
        scale_y = self.standardise.scale_step if self.head_y.window else self.standardise.scale_y
        return ScoreValue(
            y / jax.lax.stop_gradient(scale_y),
            xi / jax.lax.stop_gradient(self.standardise.scale_xi),
        )

    @property
    def nle(self) -> int:
        return 0


class TransformerKind(ScoreKind):
    """The settings of the paper's network, as a score or below a potential."""

    width: int = eqx.field(static=True, default=128)
    """The transformer's model dimension."""
    blocks: int = eqx.field(static=True, default=4)
    """Number of transformer blocks."""
    heads: int = eqx.field(static=True, default=8)
    """Number of attention heads, which divides the width."""
    frequency_scale: float = eqx.field(static=True, default=FREQUENCY_SCALE)
    """Standard deviation of the Fourier features' frequencies, in radians per standard deviation of
    the inputs. The paper's text read literally, 2π times N(0, 10²), is 62.83.
    """
    features: int = eqx.field(static=True, default=64)
    """Fourier features of the outcome, and as many of the design: half cosines, half sines."""
    hidden: tuple[int, ...] = eqx.field(static=True, default=(192, 128))
    """Hidden widths of each embedding."""
    head_blocks: int = eqx.field(static=True, default=2)
    """Residual blocks of each head; 0 for one hidden layer, as in the paper's text."""

    def __check_init__(self) -> None:
        require_sizes(self, zero=("head_blocks",))
        require_divisor(self.heads, self.width)
        require(
            self.features % 2 == 0,
            "score.features",
            got=self.features,
            expected="an even number",
            fix="change it by --set score.features=VALUE.",
        )

    def standardiser(
        self, task: Task, sampler: DesignSampler, *, key: PRNGKeyArray
    ) -> Standardiser:
        return stepwise_standardiser(task, sampler, key=key)

    def network(
        self, task: Task, standardise: Standardiser, *, key: PRNGKeyArray
    ) -> TransformerScore:
        """The network with two heads."""
        return TransformerScore(
            task,
            standardise,
            width=self.width,
            blocks=self.blocks,
            heads=self.heads,
            features=self.features,
            sigma=self.frequency_scale,
            hidden=self.hidden,
            head_blocks=self.head_blocks,
            key=key,
        )

    def nle(self, task: Task) -> int:
        del task
        return 0


class TransformerDirect(TransformerKind):
    """The paper's transformer, its outputs taken as the score."""

    def make(self, task: Task, standardise: Standardiser, *, key: PRNGKeyArray) -> TransformerScore:
        return self.network(task, standardise, key=key)
