"""Network layers. All act on the last axis of their input, so that a batch, mapped or given, is one
matrix product.
"""

from scorebed.nets.attention import MultiHeadAttention, RunningAttention, TransformerBlock
from scorebed.nets.fourier import FourierFeatures
from scorebed.nets.gru import GRU, GRUCell
from scorebed.nets.linear import LayerNorm, Linear, uniform
from scorebed.nets.mlp import MLP, gelu
from scorebed.nets.residual import ResidualNetwork

__all__ = [
    "GRU",
    "MLP",
    "FourierFeatures",
    "GRUCell",
    "LayerNorm",
    "Linear",
    "MultiHeadAttention",
    "ResidualNetwork",
    "RunningAttention",
    "TransformerBlock",
    "gelu",
    "uniform",
]
