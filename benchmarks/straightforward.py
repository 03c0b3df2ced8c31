"""The paper's networks as one would write them with Equinox's own layers: unbatched `eqx.nn`
layers, mapped over steps and experiments by `vmap`, and the gradient of the potential by
`jax.grad`.

The measure of benchmarks/steps.py, and of nothing else. `straightforward` turns a network of ours
into it, with the same parameters: both compute the same function.
"""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from scorebed.densities.mixture_posterior import DiagonalMixture, MixturePosterior, PosteriorDensity
from scorebed.inference.blocks import canonical
from scorebed.nets.attention import sinusoidal_positions
from scorebed.scores.base import Score, ScoreValue
from scorebed.scores.conservative import ConservativeScore
from scorebed.scores.standardise import Standardiser
from scorebed.scores.transformer import PairEmbedding, TransformerBackbone

KEY = jr.key(0)  # every parameter is replaced


def linear(ours: Any) -> eqx.nn.Linear:
    inputs, outputs = ours.weight.shape
    layer = eqx.nn.Linear(inputs, outputs, key=KEY)
    return eqx.tree_at(lambda l: (l.weight, l.bias), layer, (ours.weight.T, ours.bias))


def norm(ours: Any) -> eqx.nn.LayerNorm:
    layer = eqx.nn.LayerNorm(ours.gain.size)
    return eqx.tree_at(lambda l: (l.weight, l.bias), layer, (ours.gain, ours.shift))


class MLP(eqx.Module):
    layers: list[eqx.nn.Linear]

    def __init__(self, ours: Any):
        self.layers = [linear(layer) for layer in ours.layers]

    def __call__(self, x: jax.Array) -> jax.Array:
        for layer in self.layers[:-1]:
            x = jax.nn.gelu(layer(x))
        return self.layers[-1](x)


class Embedding(eqx.Module):
    frequencies: tuple[jax.Array, jax.Array]
    mlp: MLP

    def __init__(self, ours: PairEmbedding):
        each = (ours.features_y, ours.features_xi)
        self.frequencies = tuple(one.unit * one.frequencies for one in each)
        self.mlp = MLP(ours.mlp)

    def __call__(self, y: jax.Array, xi: jax.Array) -> jax.Array:
        features = []
        for value, frequencies in zip((y, xi), self.frequencies, strict=True):
            angles = value @ jax.lax.stop_gradient(frequencies)
            features += [jnp.cos(angles), jnp.sin(angles)]
        return self.mlp(jnp.concatenate(features))


class Block(eqx.Module):
    norm_attention: eqx.nn.LayerNorm
    attention: eqx.nn.MultiheadAttention
    norm_mlp: eqx.nn.LayerNorm
    mlp: MLP

    def __init__(self, ours: Any):
        self.norm_attention, self.norm_mlp = norm(ours.norm_attention), norm(ours.norm_mlp)
        theirs, width = ours.attention, ours.attention.to_key.shape[0]
        biases = {f"use_{name}_bias": True for name in ("query", "value", "output")}
        attention = eqx.nn.MultiheadAttention(theirs.heads, width, **biases, key=KEY)
        self.attention = eqx.tree_at(
            lambda a: (a.query_proj, a.key_proj.weight, a.value_proj, a.output_proj),
            attention,
            (
                linear(theirs.to_query),
                theirs.to_key.T,
                linear(theirs.to_value),
                linear(theirs.to_output),
            ),
        )
        self.mlp = MLP(ours.mlp)

    def __call__(self, x: jax.Array) -> jax.Array:
        normed = jax.vmap(self.norm_attention)(x)
        x = x + self.attention(normed, normed, normed)
        return x + jax.vmap(self.mlp)(jax.vmap(self.norm_mlp)(x))


class Backbone(eqx.Module):
    embedding: Embedding
    global_token: jax.Array
    blocks: list[Block]
    norm: eqx.nn.LayerNorm
    positions: bool = eqx.field(static=True)

    def __init__(self, ours: TransformerBackbone):
        self.embedding, self.global_token = Embedding(ours.embedding), ours.global_token
        self.blocks = [Block(block) for block in ours.blocks]
        self.norm, self.positions = norm(ours.norm), ours.positions

    def __call__(self, ys: jax.Array, xis: jax.Array) -> tuple[jax.Array, jax.Array]:
        tokens = jax.vmap(self.embedding)(ys, xis)
        if self.positions:
            tokens = tokens + jnp.asarray(sinusoidal_positions(*tokens.shape), tokens.dtype)
        x = jnp.concatenate([self.global_token[None], tokens])
        for block in self.blocks:
            x = block(x)
        x = jax.vmap(self.norm)(x)
        return x[0], x[1:]


class Residual(eqx.Module):
    norm: eqx.nn.LayerNorm
    project: eqx.nn.Linear
    blocks: list[tuple[eqx.nn.LayerNorm, MLP]]
    norm_last: eqx.nn.LayerNorm
    output: eqx.nn.Linear

    def __init__(self, ours: Any):
        self.norm, self.project, self.output = (
            norm(ours.norm),
            linear(ours.project),
            linear(ours.output),
        )
        self.blocks = [(norm(block.norm), MLP(block.mlp)) for block in ours.blocks]
        self.norm_last = norm(ours.norm_last)

    def __call__(self, v: jax.Array) -> jax.Array:
        x = self.project(self.norm(v))
        for norm_block, mlp in self.blocks:
            x = x + mlp(norm_block(x))
        return self.output(self.norm_last(x))


class Head(eqx.Module):
    embedding: Embedding
    network: Residual
    window: bool = eqx.field(static=True)
    positions: bool = eqx.field(static=True)

    def __init__(self, ours: Any):
        self.embedding, self.network = Embedding(ours.embedding), Residual(ours.network)
        self.window, self.positions = ours.window, ours.positions

    def __call__(self, encoding: Any, ys: jax.Array, xis: jax.Array) -> jax.Array:
        summary, steps = encoding
        e = jax.vmap(self.embedding)(ys, xis)
        parts = [jnp.broadcast_to(summary, e.shape), e, steps]
        if self.window:
            none = jnp.zeros_like(e[:1])
            parts += [jnp.concatenate([none, e[:-1]]), jnp.concatenate([e[1:], none])]
        if self.positions:
            parts += [jnp.asarray(sinusoidal_positions(*e.shape), e.dtype)]
        return jax.vmap(self.network)(jnp.concatenate(parts, axis=-1))


class StraightforwardScore(Score):
    standardise: Standardiser
    backbone: Backbone
    heads: tuple[Head, Head]
    widen: eqx.nn.Linear | None
    norm: eqx.nn.LayerNorm
    projection: jax.Array
    noise: jax.Array

    def __init__(self, ours: ConservativeScore):
        network = ours.network
        self.standardise, self.backbone = network.standardise, Backbone(network.backbone)
        self.heads = Head(network.head_y), Head(network.head_xi)
        self.widen = None if ours.pooling.widen is None else linear(ours.pooling.widen)
        self.norm, self.projection = norm(ours.pooling.norm), ours.pooling.projection
        self.noise = ours.noise

    def potential(self, ys: jax.Array, xis: jax.Array) -> jax.Array:
        ys, xis = self.standardise.y(ys), self.standardise.xi(xis)
        encoding = self.backbone(ys, xis)
        x = jnp.concatenate([head(encoding, ys, xis) for head in self.heads], axis=-1)
        x = x if self.widen is None else jax.nn.gelu(jax.vmap(self.widen)(x))
        return (jax.vmap(self.norm)(x) @ self.projection).sum()

    def __call__(self, ys: jax.Array, xis: jax.Array) -> ScoreValue:
        y, xi = jax.grad(self.potential, argnums=(0, 1))(ys, xis)
        noise = jax.lax.stop_gradient(self.noise)
        return ScoreValue(y / noise, xi / noise)

    @property
    def nle(self) -> int:
        return 0


class StraightforwardPosterior(PosteriorDensity):
    standardise: Standardiser
    backbone: Backbone
    to_weights: MLP
    to_components: list[MLP]
    blocks: int = eqx.field(static=True)

    def __init__(self, ours: MixturePosterior):
        self.standardise, self.backbone = ours.standardise, Backbone(ours.backbone)
        self.to_weights, self.blocks = MLP(ours.to_weights), ours.blocks
        count = ours.to_weights.layers[-1].bias.size
        each = [jax.tree.map(lambda leaf, i=i: leaf[i], ours.to_components) for i in range(count)]
        self.to_components = [MLP(one) for one in each]

    def log_prob(self, z: jax.Array, ys: jax.Array, xis: jax.Array) -> jax.Array:
        summary, _ = self.backbone(self.standardise.y(ys), self.standardise.xi(xis))
        each = jnp.stack([head(summary) for head in self.to_components])
        means, log_scales = jnp.split(each, 2, axis=-1)
        mixture = DiagonalMixture(jax.nn.log_softmax(self.to_weights(summary)), means, log_scales)
        return mixture.log_prob(canonical(z, self.blocks)) - math.lgamma(self.blocks + 1)


def straightforward(ours: Any) -> Any:
    """The same network of Equinox's layers."""
    made = StraightforwardScore if isinstance(ours, Score) else StraightforwardPosterior
    return made(ours)
