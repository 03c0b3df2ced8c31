"""The sections of a configuration: frozen dataclasses whose fields say what they mean. Nothing here
knows of arrays.
"""

import math
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict
from pydantic.dataclasses import dataclass
from pydantic_core import PydanticCustomError

from scorebed.runs.fields import (
    LARGEST,
    Count,
    Decay,
    Flag,
    NonNegative,
    Positive,
    Rate,
    WeightOrAuto,
    choice,
    whole,
)

SECTION = ConfigDict(extra="forbid", use_attribute_docstrings=True)


@dataclass(frozen=True, kw_only=True, config=SECTION)
class ScoreConfig:
    """Stage 1: the score network and its training."""

    kind: Annotated[
        Literal["particles", "laplace", "transformer", "transformer-direct"],
        choice("particles", "laplace", "transformer", "transformer-direct"),
    ]
    """Likelihood particles; posterior modes, which need no training; the paper's transformer,
    conservative or direct.
    """
    width: Count
    """Width of the network's hidden layers (the transformer's model dimension)."""
    particles: Count = 8
    """Number of amortised particles, or of starts from which modes are sought; for kinds
    'particles' and 'laplace'.
    """
    cloud: Count = 8
    """Number of points around each particle or mode, even; for kinds 'particles' and 'laplace'."""
    iterations: Count = 16
    """Iterations towards the modes; for kind 'laplace'."""
    blocks: Count = 4
    """Number of transformer blocks; for the transformers."""
    heads: Count = 8
    """Number of attention heads, which divides the width; for the transformers."""
    steps: Count
    """Number of training steps of one score network."""
    batch: Count
    """Number of simulated experiments per training step."""
    learning_rate: Positive
    """Peak learning rate of Adam."""
    floor_rate: NonNegative = 1e-5
    """Learning rate at the end of the cosine decay."""
    warmup_share: Decay = 0.001
    """Share of the steps over which the learning rate rises to its peak."""
    clip: Positive
    """Largest norm of a gradient; longer ones are shortened to it."""
    lambda_y: WeightOrAuto = "auto"
    """Weight of the y-residuals beside the ξ-residuals, or 'auto' for the ratio of their sizes."""
    weights: Annotated[Literal["none", "own", "learned"], choice("none", "own", "learned")] = "none"
    """Weights of the residuals by (y, ξ): none, one over the score's own squared size, or learned
    from the residuals.
    """
    bias_penalty: NonNegative = 0.0
    """Weight of the penalty on the score's mean given the designs; 0 for none."""
    ema: Decay = 0.0
    """Decay of the moving average of the parameters that is kept; 0 keeps the last ones."""
    joint_rate: Positive = 3e-4
    """Peak learning rate of a score that goes on learning beside its policy; for the method
    'jointscore'.
    """
    seeds: Count = 1
    """Number of score networks, trained from different seeds; policies are split among them."""


@dataclass(frozen=True, kw_only=True, config=SECTION)
class DensityConfig:
    """The density of a variational method, and its training: upfront, or beside a policy."""

    width: Count
    """Width of its network: of the conditioners of a flow, or the transformer's model dimension."""
    layers: Count
    """Number of layers of the flow ('varmarg'), or of transformer blocks ('varpost',
    'jointvarpost').
    """
    depth: Count = 2
    """Hidden layers of each conditioner of the flow."""
    bins: Annotated[int, whole(2, 1000)] = 8
    """Bins of each spline of the flow."""
    heads: Count = 8
    """Number of attention heads of the transformer, which divides the width."""
    components: Count = 10
    """Gaussians of the mixture posterior."""
    sigma: Positive = 10.0
    """Frequency scale of the transformer's Fourier features."""
    steps: Count
    """Number of training steps; for 'varmarg' and 'varpost'."""
    batch: Count
    """Number of simulated experiments per training step."""
    learning_rate: Positive = 1e-3
    """Peak learning rate of Adam."""
    floor_rate: NonNegative = 1e-6
    """Learning rate at the end of the cosine decay."""
    warmup_share: Decay = 0.001
    """Share of the steps over which the learning rate rises to its peak."""
    clip: Positive = 10.0
    """Largest norm of a gradient; longer ones are shortened to it."""
    ema: Decay = 0.0
    """Decay of the moving average of the parameters that is kept; 0 keeps the last ones."""


@dataclass(frozen=True, kw_only=True, config=SECTION)
class PolicyConfig:
    """Stage 2: the training of a policy."""

    steps: Count
    """Number of training steps of one policy."""
    batch: Count
    """Number of simulated experiments per training step."""
    learning_rate: Positive
    """First learning rate of Adam."""
    schedule: Annotated[
        Literal["cosine", "exponential", "constant"], choice("cosine", "exponential", "constant")
    ]
    """How the learning rate changes over the steps."""
    decay_rate: Rate = 0.98
    """Factor on the learning rate after every `decay_every` steps; for the exponential schedule."""
    decay_every: Count = 1000
    """Steps between two decays; for the exponential schedule."""
    final_rate: NonNegative = 0.0
    """Learning rate at the last step; for the cosine schedule."""
    beta1: Decay = 0.9
    """Adam's decay of the gradient's mean."""
    beta2: Decay = 0.999
    """Adam's decay of the gradient's square."""
    clip: Positive = 1.0
    """Largest norm of a gradient; longer ones are shortened to it."""
    inner: Count = 15
    """Contrastive parameters of every trajectory, M; for the methods 'pce', 'nmc' and 'static'."""
    base: Count = 1
    """Contrastive parameters at the lowest level, M0; for the method 'mlmc'."""
    levels: Annotated[int, whole(0, 30)] = 12
    """The highest level, of M0·2^levels contrastive parameters; for the method 'mlmc'."""
    tau: Positive = 1.1
    """Rate at which levels become rare, 2^(−τ l); for the method 'mlmc'."""
    limit: NonNegative = 0.0
    """Largest gradient of one trajectory, in medians over its batch; 0 for no limit, and the
    unbiased mean.
    """
    noise_rate: Positive = 1.0
    """Factor on the learning rate of a policy's own noise; for the recurrent policy."""
    ema: Decay = 0.0
    """Decay of the moving average of the parameters that is kept; 0 keeps the last ones."""
    keep: Annotated[Literal["best", "last"], choice("best", "last")] = "best"
    """The policy that is kept: the best by the estimates while training, or the last one."""
    monitor_every: Count
    """Steps between two estimates of the bound while training."""
    monitor: Annotated[
        Literal["contrastive", "importance"], choice("contrastive", "importance")
    ] = "contrastive"
    """Kind of those estimates, and of those that choose among restarts: draws of the prior, or
    Gaussians at posterior modes.
    """
    monitor_inner: Count
    """Draws of those estimates for every trajectory."""
    halvings: Annotated[int, whole(0, 30)] = 0
    """Times that the worse half of the restarts, by those estimates, is stopped on the way; 0 for
    never.
    """
    patience: Annotated[int, whole(0, LARGEST)] = 0
    """Steps without a better estimate after which training ends; 0 for all steps."""


@dataclass(frozen=True, kw_only=True, config=SECTION)
class IOSMCConfig:
    """Nested particles of IO-SMC²; its iterations, batches of trajectories and rates are those of
    stage 2.
    """

    trajectories: Annotated[int, whole(2, LARGEST)]
    """Trajectories of a sweep, N, the reference among them."""
    particles: Annotated[int, whole(2, LARGEST)]
    """Parameters that every trajectory carries, M."""
    moves: Annotated[int, whole(0, 1000)] = 3
    """Metropolis steps of degenerate particles, R."""
    tempering: NonNegative = 1.0
    """How much informative trajectories are preferred."""
    penalty: NonNegative = 0.0
    """Price of a changing design, in nats per squared unit."""


@dataclass(frozen=True, kw_only=True, config=SECTION)
class EvaluationConfig:
    """The bounds on the EIG that a run reports, and those by which it chooses among policies."""

    outer: Count
    """Number of experiments, N, of the reported bounds."""
    inner: Count
    """Number of contrastive parameters, M, of the reported bounds."""
    select_outer: Count
    """Number of experiments of the bounds that choose the best policy, on draws of their own."""
    select_inner: Count
    """Number of contrastive parameters of the bounds that choose the best policy."""
    references: Flag = True
    """Whether random designs and trained static ones are bounded beside the policy."""


Row = tuple[float, ...]


def _numbers(value: Any, depth: int) -> Any:
    """Nested lists of finite numbers as tuples."""
    if depth == 0:
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or not math.isfinite(value)
        ):
            raise PydanticCustomError(
                "value", "{expected}", {"expected": "lists of finite numbers"}
            )
        return float(value)
    if not isinstance(value, list | tuple):
        raise PydanticCustomError("value", "{expected}", {"expected": "lists of finite numbers"})
    return tuple(_numbers(part, depth - 1) for part in value)


_Numbers = Annotated[Row, BeforeValidator(lambda value: _numbers(value, 1))]
_Rows = Annotated[tuple[Row, ...], BeforeValidator(lambda value: _numbers(value, 2))]
_Matrices = Annotated[
    tuple[tuple[Row, ...], ...], BeforeValidator(lambda value: _numbers(value, 3))
]


@dataclass(frozen=True, kw_only=True, config=SECTION)
class HistoryConfig:
    """Steps that were over before the run, and what is known since: a Gaussian mixture in the
    latent coordinates of the prior.
    """

    designs: _Rows = ()
    """The designs of the steps that are over, one row each; none for a whole experiment."""
    outcomes: _Rows = ()
    """Their outcomes."""
    weights: _Numbers = ()
    """Weights of the mixture that the prior has become."""
    means: _Rows = ()
    """Means of its components."""
    factors: _Matrices = ()
    """Lower triangular factors of the components' covariances."""
