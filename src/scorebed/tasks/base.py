"""The model of an experiment: prior p(θ), designs ξ, and a likelihood p(y | θ, state, ξ), written
for one experiment.

A task is a final class that names its structure (`IID`, `Markov` or `History`: which history the
likelihood sees) and, when its outcomes are Gaussian around a mean, `Gaussian`, which supplies
`outcome` and `log_prob`. Batching is the caller's `vmap`; no task loops over time.

Small fixed axes (coordinates, sources, state components) are best written out as scalars and put
together by one `jnp.stack` at the end, as the equations are written: a scalar per sample vectorises
over the batch, array arithmetic on a short trailing axis does not, and costs a factor of ten on the
double link (`benchmarks/likelihood_kernels.py`)."""

import abc
import math
from collections.abc import Sequence
from typing import Any, ClassVar, TypeAlias, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Scalar

from scorebed.errors import NoDensityError
from scorebed.tasks.constraints import Constraint, FeasibleRange, feasible_range
from scorebed.tasks.cost import DesignCost
from scorebed.tasks.priors import Prior
from scorebed.tasks.sketch import Sketch, default_sketch
from scorebed.tasks.spaces import Quantity, Space

State: TypeAlias = Any  # a PyTree of arrays; None where there is no state


class Task(eqx.Module):
    """An experiment of `horizon` steps. `log_prob` costs exactly 1 NLE."""

    horizon: eqx.AbstractVar[int]
    prior: eqx.AbstractVar[Prior]
    designs: eqx.AbstractVar[Space]
    outcomes: eqx.AbstractVar[tuple[Quantity, ...]]
    # True if log p(y | θ, ξ) does not change when y follows its own reparameterisation: y = mean(θ,
    # state, ξ) + constant · noise. The likelihood term of the EIG gradient is then zero for every
    # sample. A claim to verify, not to trust.
    additive_noise: eqx.AbstractVar[bool]
    # What ties designs together, and what they cost. Neither is part of the likelihood: policies
    # and samplers obey the one, policies are trained against the other.
    constraint: ClassVar[Constraint | None] = None
    cost: ClassVar[DesignCost | None] = None
    # The names of the parameters that the experiment is about; the others are a nuisance
    # (`interest.py`). None named: all.
    interest: ClassVar[tuple[str, ...]] = ()
    # Noise of a step beyond one number per outcome; only a model without a density can have any.
    extra_noise: ClassVar[int] = 0
    # Whether posteriors were seen to be sums of few Gaussians, one at each mode.
    few_modes: ClassVar[bool] = False
    # The file of `presets/` with its sizes, without .toml; empty: that of its structure.
    preset_file: ClassVar[str] = ""
    # Which history the likelihood sees: "iid", "markov" or "history".
    structure: ClassVar[str] = "history"
    # Scores are trained on independent Gaussian designs whose scale is drawn from this range, in
    # units of the design space; None: on the designs that suit the space (`samplers/paper.py`).
    design_scales: ClassVar[tuple[float, float] | None] = None

    @property
    def has_density(self) -> bool:
        """Whether `log_prob` can be evaluated."""
        return not isinstance(self, Implicit)

    @property
    def feasible(self) -> FeasibleRange | None:
        """Where each design may lie, given the one before; None without a constraint."""
        return feasible_range(self.designs, self.horizon, self.constraint)

    def sketch(self) -> Sketch:
        """What a drawing of an experiment needs to know; by default from the structure."""
        return default_sketch(self)

    @property
    def outcome_dim(self) -> int:
        """Number of outcome coordinates, dy."""
        return len(self.outcomes)

    @property
    def noise_dim(self) -> int:
        """Number of standard normal numbers that make the outcome of a step, dn: as many as it has
        coordinates, or more.
        """
        return self.outcome_dim + self.extra_noise

    @abc.abstractmethod
    def initial(self, theta: Float[Array, " k"]) -> State:
        """The state before the first step."""

    @abc.abstractmethod
    def outcome(
        self,
        theta: Float[Array, " k"],
        state: State,
        xi: Float[Array, " dx"],
        noise: Float[Array, " dn"],
    ) -> Float[Array, " dy"]:
        """y as a differentiable function of standard normal noise."""

    @abc.abstractmethod
    def log_prob(
        self,
        y: Float[Array, " dy"],
        theta: Float[Array, " k"],
        state: State,
        xi: Float[Array, " dx"],
    ) -> Scalar:
        """log p(y | θ, state, ξ), normalised. 1 NLE."""

    @abc.abstractmethod
    def advance(
        self,
        theta: Float[Array, " k"],
        state: State,
        xi: Float[Array, " dx"],
        y: Float[Array, " dy"],
    ) -> State:
        """The state after a step."""


SomeTask = TypeVar("SomeTask", bound=Task)


def frozen(task: SomeTask) -> SomeTask:
    """The task without gradients in its arrays: they are the model's, not of the network that holds
    it, and are not trained.
    """
    return jax.tree.map(
        lambda leaf: jax.lax.stop_gradient(leaf) if eqx.is_inexact_array(leaf) else leaf, task
    )


class IID(Task):
    """Steps are independent given θ: there is no state, and (y_t, ξ_t) pairs are exchangeable."""

    structure: ClassVar[str] = "iid"

    def initial(self, theta: Float[Array, " k"]) -> None:
        del theta

    def advance(
        self,
        theta: Float[Array, " k"],
        state: None,
        xi: Float[Array, " dx"],
        y: Float[Array, " dy"],
    ) -> None:
        del theta, state, xi, y


class Markov(Task):
    """The state is the previous outcome: transitions (y_{t−1}, ξ_t, y_t) are exchangeable. The
    first state is known.
    """

    structure: ClassVar[str] = "markov"

    @abc.abstractmethod
    def start(self) -> Float[Array, " dy"]:
        """y_0."""

    def initial(self, theta: Float[Array, " k"]) -> Float[Array, " dy"]:
        del theta
        return self.start()

    def advance(
        self,
        theta: Float[Array, " k"],
        state: State,
        xi: Float[Array, " dx"],
        y: Float[Array, " dy"],
    ) -> Float[Array, " dy"]:
        del theta, state, xi
        return y


class History(Task):
    """Anything else: the state is any PyTree that follows from θ and the data by `initial` and
    `advance`.
    """


class Implicit(Task):
    """A model that can be simulated but has no density: `outcome` is all there is, of a noise that
    may have `extra_noise`.
    """

    def log_prob(
        self,
        y: Float[Array, " dy"],
        theta: Float[Array, " k"],
        state: State,
        xi: Float[Array, " dx"],
    ) -> Scalar:
        del y, theta, state, xi
        raise NoDensityError(
            f"the density of {type(self).__name__}, got a model without one (Implicit), expected "
            f"`log_prob`. "
            "Fix: use what needs none: --method score, varpost, jointvarpost or random."
        )


class Gaussian(Task):
    """y = mean(θ, state, ξ) + scale(θ, state, ξ) · noise, with independent coordinates."""

    @abc.abstractmethod
    def mean(
        self, theta: Float[Array, " k"], state: State, xi: Float[Array, " dx"]
    ) -> Float[Array, " dy"]:
        """Mean of the outcome."""

    @abc.abstractmethod
    def scale(
        self, theta: Float[Array, " k"], state: State, xi: Float[Array, " dx"]
    ) -> Sequence[float | Scalar]:
        """Standard deviation of each outcome coordinate."""

    def outcome(
        self,
        theta: Float[Array, " k"],
        state: State,
        xi: Float[Array, " dx"],
        noise: Float[Array, " dy"],
    ) -> Float[Array, " dy"]:
        scale = self.scale(theta, state, xi)
        return self.mean(theta, state, xi) + jnp.stack([s * noise[i] for i, s in enumerate(scale)])

    def log_prob(
        self,
        y: Float[Array, " dy"],
        theta: Float[Array, " k"],
        state: State,
        xi: Float[Array, " dx"],
    ) -> Scalar:
        mean = self.mean(theta, state, xi)
        scale = self.scale(theta, state, xi)
        # Coordinate by coordinate: the compiler then sees scalars, and keeps the contrastive axis
        # innermost.
        terms = [-0.5 * ((y[i] - mean[i]) / s) ** 2 - jnp.log(s) for i, s in enumerate(scale)]
        return sum(terms[1:], start=terms[0]) - 0.5 * math.log(2 * math.pi) * len(terms)
