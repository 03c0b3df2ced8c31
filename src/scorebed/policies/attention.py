"""A transformer policy in the manner of iDAD (Ivanova et al., 2021), the paper's policy for
gravimetry.

Each pair becomes a token r_t = fusion(design encoder(ξ_t), outcome encoder(y_t)) + type embedding.
One self-attention encoder layer reads {decision token, r_1, …, r_t}, and the design is emitted from
its output at the decision token. The layer is post-norm, the usual default of encoder layers:
a = norm(d + attention(d)), then norm(a + MLP(a)).

There is only one layer and only one row of its output is used, so the query is always the same
learned vector and the attention is a weighted mean over the tokens seen so far. Memory is that
mean's running sums: constant in t, with nothing to mask."""

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, PRNGKeyArray

from scorebed.nets import MLP, LayerNorm, MultiHeadAttention, RunningAttention, gelu
from scorebed.policies.base import Policy
from scorebed.tasks.base import Task
from scorebed.tasks.spaces import Space

TOKEN_SCALE = 0.02  # small tokens attend almost evenly at first


class AttentionPolicy(Policy):
    """Deterministic, and blind to the order of the history. Like `DAD`, right for exchangeable
    steps.
    """

    design_encoder: MLP
    outcome_encoder: MLP
    fusion: MLP
    type_embedding: Float[Array, " d"]
    decision_token: Float[Array, " d"]
    attention: MultiHeadAttention
    norm_attention: LayerNorm
    mlp: MLP
    norm_mlp: LayerNorm
    emitter: MLP
    space: Space = eqx.field(static=True)

    def __init__(
        self,
        task: Task,
        *,
        encoder_hidden: tuple[int, ...] = (64,),
        fusion_hidden: tuple[int, ...] = (64,),
        width: int = 32,
        heads: int = 4,
        feed_forward: int = 64,
        emitter_hidden: tuple[int, ...] = (64,),
        emitter_bound: float = 0.05,
        key: PRNGKeyArray,
    ):
        (
            key_design,
            key_outcome,
            key_fusion,
            key_type,
            key_token,
            key_attention,
            key_mlp,
            key_emitter,
        ) = jr.split(key, 8)
        dx = task.designs.free_dim
        self.design_encoder = MLP((dx, *encoder_hidden, width), gelu, key=key_design)
        self.outcome_encoder = MLP(
            (task.outcome_dim, *encoder_hidden, width), gelu, key=key_outcome
        )
        self.fusion = MLP((2 * width, *fusion_hidden, width), gelu, key=key_fusion)
        self.type_embedding = TOKEN_SCALE * jr.normal(key_type, (width,))
        self.decision_token = TOKEN_SCALE * jr.normal(key_token, (width,))
        self.attention = MultiHeadAttention(width, heads, key=key_attention)
        self.norm_attention, self.norm_mlp = LayerNorm(width), LayerNorm(width)
        self.mlp = MLP((width, feed_forward, width), gelu, key=key_mlp)
        self.emitter = MLP(
            (width, *emitter_hidden, dx), gelu, last_bound=emitter_bound, key=key_emitter
        )
        self.space = task.designs

    @property
    def beyond_training(self) -> str:
        return (
            "The policy averages over what it has seen, which becomes more than it ever was in "
            "training: designs there are extrapolation. Refining trains it for this end."
        )

    def sample_noise(self, horizon: int, *, key: PRNGKeyArray) -> Float[Array, "T 0"]:
        del key
        return jnp.zeros((horizon, 0))

    def init(self) -> RunningAttention:
        return RunningAttention.of(*self._attend(self.decision_token))

    def design(self, memory: RunningAttention, noise: Float[Array, " 0"]) -> Float[Array, " dx"]:
        return self.space.constrain(self.preferences(memory, noise))

    def preferences(
        self, memory: RunningAttention, noise: Float[Array, " 0"]
    ) -> Float[Array, " f"]:
        del noise
        x = self.norm_attention(self.decision_token + self.attention.join(memory.mean()))
        return self.emitter(self.norm_mlp(x + self.mlp(x)))

    def update(
        self, memory: RunningAttention, xi: Float[Array, " dx"], y: Float[Array, " dy"]
    ) -> RunningAttention:
        return memory.add(*self._attend(self.token(xi, y)))

    def token(self, xi: Float[Array, " dx"], y: Float[Array, " dy"]) -> Float[Array, " d"]:
        """r(ξ, y), type embedding included."""
        pair = jnp.concatenate(
            [self.design_encoder(self.space.normalise(xi)), self.outcome_encoder(y)]
        )
        return self.fusion(pair) + self.type_embedding

    def _attend(
        self, token: Float[Array, " d"]
    ) -> tuple[Float[Array, " heads"], Float[Array, "heads e"]]:
        """What the decision token sees of a token: a logit and a value per head."""
        query = self.attention.queries(self.decision_token)
        return (query * self.attention.keys(token)).sum(-1), self.attention.values(token)
