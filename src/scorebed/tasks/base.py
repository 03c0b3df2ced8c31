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
import itertools
import math
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple, TypeAlias, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Scalar

from scorebed._lapack import compute_in_place
from scorebed.errors import InvalidValueError, NoDensityError
from scorebed.tasks.constraints import Constraint, FeasibleRange, feasible_range
from scorebed.tasks.cost import DesignCost
from scorebed.tasks.priors import Prior
from scorebed.tasks.sketch import Sketch, default_sketch
from scorebed.tasks.spaces import Quantity, Space

compute_in_place()  # before anything that has a task is compiled

State: TypeAlias = Any  # a PyTree of arrays; None where there is no state

LARGEST_ORDERED = 4  # exchangeable blocks: a density can sum over all K! = 24 orders of them


class BlockGuess(NamedTuple):
    """Where one exchangeable block of z may lie, given a history: C Gaussian balls in its d
    coordinates.
    """

    centres: Float[Array, "C d"]
    scales: Float[Array, " C"]


class Task(eqx.Module):
    """An experiment of `horizon` steps: prior, designs, outcomes and likelihood.

    A task of your own inherits from `IID`, `Markov` or `History`, and from `Gaussian` if its
    outcomes are a mean plus noise, or from `Implicit` if it has no density. Its attributes may be
    those of its class. `log_prob` costs exactly 1 NLE.

    Attributes:
        horizon: number of steps, T.
        prior: the prior of θ; see `parameters` and `from_samples`.
        designs: the design space; see `ranges` and `unbounded`.
        outcomes: the quantities that a step measures; see `measured`.
        additive_noise: whether y = mean(θ, state, ξ) + constant · noise. It is checked.
        constraint: what ties designs together, if anything; see `ordered` and `steps_at_most`.
        cost: what a design costs, if anything; see `priced`.
        interest: names of the parameters that the experiment is about; all if empty.
        exchangeable: number of equal blocks of θ that can be exchanged, such as sources.
        extra_noise: noise of a step beyond one number per outcome, of an `Implicit` task.

    Methods:
        initial: the state before the first step.
        outcome: y as a differentiable function of standard normal noise.
        log_prob: log p(y | θ, state, ξ).
        advance: the state after a step.
        sketch: what a drawing of an experiment needs; by default from the structure.
        guess_block: where an exchangeable block may lie, given a history; by default unknown.

    Example:
        >>> pendulum = sb.make_task("pendulum")
        >>> isinstance(pendulum, sb.Task), pendulum.horizon, pendulum.outcome_dim
        (True, 50, 2)
    """

    horizon: eqx.AbstractVar[int]
    prior: eqx.AbstractVar[Prior]
    designs: eqx.AbstractVar[Space]
    outcomes: eqx.AbstractVar[tuple[Quantity, ...]]
    # Whether log p(y | θ, ξ) stays the same as ξ changes and y follows through its
    # reparameterisation: y = mean(θ, state, ξ) + constant · noise. The likelihood term of the EIG
    # gradient is then zero for every sample. A claim to verify, not to trust.
    additive_noise: eqx.AbstractVar[bool]
    # What ties designs together, and what they cost. Neither is part of the likelihood: policies
    # and samplers obey the one, policies are trained against the other.
    constraint: ClassVar[Constraint | None] = None
    cost: ClassVar[DesignCost | None] = None
    # The names of the parameters that the experiment is about; the others are a nuisance
    # (`nuisance.py`). None named: all.
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
    # The number of equal blocks of θ, one after another, that can be exchanged without changing
    # prior or likelihood: sources, peaks, components. A wrong number makes bounds wide, not wrong.
    # It is 1 for the rest of an experiment, whose prior knows one block from the other, and where
    # some parameters are given with the design.
    exchangeable: ClassVar[int] = 1
    # The structure: whether the pairs (ξ_t, y_t) can be exchanged (`IID`), or the transitions
    # (y_{t−1}, ξ_t, y_t) can (`Markov`).
    exchangeable_steps: ClassVar[bool] = False
    exchangeable_transitions: ClassVar[bool] = False

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
    def states_follow_data(self) -> bool:
        """Whether `states_before` gives the states of a history without θ: no likelihood then
        needs a loop over time.
        """
        return self.exchangeable_steps or self.exchangeable_transitions

    @property
    def can_order_blocks(self) -> bool:
        """Whether the exchangeable blocks are so few that a density can sum over all orders."""
        return self.exchangeable <= LARGEST_ORDERED

    @property
    def narrow_posterior(self) -> bool:
        """Whether a good experiment leaves a posterior so narrow that particles which start from
        the prior miss it: designs can close in on each of several blocks.
        """
        return self.exchangeable > 1

    @property
    def tight_bound(self) -> str | None:
        """The name in `bounds.BOUNDS` of the bound that is tight for this task; None without a
        density, where the distance to the EIG cannot be measured.
        """
        from scorebed.tasks.nuisance import has_nuisance  # which imports this module

        if not self.has_density:
            return None
        if has_nuisance(self):
            return "contrastive"
        return "importance" if self.can_order_blocks else "smc"

    @property
    def outcome_dim(self) -> int:
        """Number of outcome coordinates, dy."""
        return len(self.outcomes)

    @property
    def discrete_outcomes(self) -> bool:
        """Whether every outcome takes one of finitely many values: answers, categories, counts."""
        return all(quantity.values for quantity in self.outcomes)

    @property
    def outcome_count(self) -> int:
        """Number of different outcomes of a step, |Y|; 0 unless `discrete_outcomes`."""
        return math.prod(len(quantity.values) for quantity in self.outcomes)

    def all_outcomes(self) -> Float[np.ndarray, "Y dy"]:
        """Every outcome of a step; the last coordinate varies fastest."""
        return np.asarray(list(itertools.product(*(each.values for each in self.outcomes))))

    def outcome_index(self, y: Float[Array, " dy"]) -> Int[Array, ""]:
        """The row of `all_outcomes` that y is, or the nearest one."""
        found = jnp.zeros((), jnp.int32)
        for i, quantity in enumerate(self.outcomes):
            values = jnp.asarray(quantity.values, y.dtype)
            found = found * len(values) + jnp.abs(values - y[i]).argmin().astype(jnp.int32)
        return found

    def log_probs(
        self, theta: Float[Array, " k"], state: State, xi: Float[Array, " dx"]
    ) -> Float[Array, " Y"]:
        """log p(y | θ, state, ξ) of every outcome of a step, where these are finitely many. It is
        one evaluation of the model: 1 NLE.
        """
        return jax.vmap(self.log_prob, in_axes=(0, None, None, None))(
            jnp.asarray(self.all_outcomes(), xi.dtype), theta, state, xi
        )

    @property
    def noise_dim(self) -> int:
        """Standard normal numbers that make the outcome of a step, dn: one per coordinate, or
        more.
        """
        return self.outcome_dim + self.extra_noise

    def typical_noise(self) -> Float[Array, " dy"]:
        """The standard deviation of each outcome around its mean, at the centre of prior and
        design space; ones where the task does not say. It sets the size of a network's first
        outputs, not what is learned.
        """
        return jnp.ones(self.outcome_dim)

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

    def states_before(self, ys: Float[Array, "T dy"]) -> State:
        """The state before every step, from the outcomes alone; refused unless
        `states_follow_data`.
        """
        del ys
        raise _states_need_theta(self, "states from the data", "use `initial` and `advance`.")

    def state_before(self, ys: Float[Array, "T dy"], t: Int[Array, ""]) -> State:
        """The state before step t, counted from 0; rows of `ys` from t on may hold anything."""
        del ys, t
        raise _states_need_theta(self, "states from the data", "use `initial` and `advance`.")

    def guess_block(self, ys: Float[Array, "T dy"], xis: Float[Array, "T dx"]) -> BlockGuess | None:
        """Where in z any one of the exchangeable blocks may lie, judged without the others; None
        leaves it at the prior. A guess only steers SMC bounds: a bad one makes them wide, not
        wrong. No NLE.
        """
        del ys, xis
        return None


SomeTask = TypeVar("SomeTask", bound=Task)


def require_data_states(task: SomeTask, purpose: str, *, fix: str) -> SomeTask:
    """The task, refused unless its states follow from the data."""
    if not task.states_follow_data:
        raise _states_need_theta(task, purpose, fix)
    return task


def _states_need_theta(task: Task, purpose: str, fix: str) -> InvalidValueError:
    return InvalidValueError(
        f"a task for {purpose}",
        got=type(task).__name__,
        expected="independent steps or Markov transitions",
        fix=fix,
    )


def frozen(task: SomeTask) -> SomeTask:
    """The task with a stop-gradient on its arrays: a network that holds a task does not train
    it.
    """
    return jax.tree.map(
        lambda leaf: jax.lax.stop_gradient(leaf) if eqx.is_inexact_array(leaf) else leaf, task
    )


class IID(Task):
    """A task whose steps are independent given θ: there is no state, and the pairs (ξ_t, y_t) are
    exchangeable.

    Attributes:
        horizon: number of steps, T.
        prior: the prior of θ.
        designs: the design space.
        outcomes: the quantities that a step measures.
        additive_noise: whether y = mean(θ, ξ) + constant · noise.

    Methods:
        outcome: y as a differentiable function of standard normal noise.
        log_prob: log p(y | θ, ξ).

    Example:
        >>> import numpyro.distributions as dist
        >>> class Decay(sb.IID, sb.Gaussian):
        ...     horizon = 4
        ...     prior = sb.parameters({"rate [1/h]": dist.LogNormal(-1.0, 0.5)})
        ...     designs = sb.ranges({"time [h]": (0.0, 24.0)})
        ...     outcomes = sb.measured("concentration [mg/l]")
        ...     additive_noise = True
        ...
        ...     def mean(self, theta, state, xi):
        ...         return jnp.stack([10 * jnp.exp(-theta[0] * xi[0])])
        ...
        ...     def scale(self, theta, state, xi):
        ...         return [0.5]
        >>> decay = Decay()
        >>> decay.exchangeable_steps
        True
    """

    structure: ClassVar[str] = "iid"
    exchangeable_steps: ClassVar[bool] = True

    def states_before(self, ys: Float[Array, "T dy"]) -> None:
        del ys

    def state_before(self, ys: Float[Array, "T dy"], t: Int[Array, ""]) -> None:
        del ys, t

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
    """A task whose state is the previous outcome: the transitions (y_{t−1}, ξ_t, y_t) are
    exchangeable. The first state is given by `start`.

    Attributes:
        horizon: number of steps, T.
        prior: the prior of θ.
        designs: the design space.
        outcomes: the quantities that a step measures.
        additive_noise: whether y = mean(θ, state, ξ) + constant · noise.

    Methods:
        start: the state y_0 before the first step.
        outcome: y as a differentiable function of standard normal noise.
        log_prob: log p(y | θ, state, ξ).

    Example:
        >>> class Tank(sb.Markov, sb.Gaussian):
        ...     horizon = 4
        ...     prior = sb.parameters({"leak": dist.Uniform(0.1, 0.9)})
        ...     designs = sb.ranges({"inflow [l]": (0.0, 1.0)})
        ...     outcomes = sb.measured("level [l]")
        ...     additive_noise = True
        ...
        ...     def start(self):
        ...         return jnp.zeros(1)
        ...
        ...     def mean(self, theta, state, xi):
        ...         return jnp.stack([(1 - theta[0]) * state[0] + xi[0]])
        ...
        ...     def scale(self, theta, state, xi):
        ...         return [0.1]
        >>> Tank().states_before(jnp.ones((4, 1)))[:, 0]
        Array([0., 1., 1., 1.], dtype=float32)
    """

    structure: ClassVar[str] = "markov"
    exchangeable_transitions: ClassVar[bool] = True

    @abc.abstractmethod
    def start(self) -> Float[Array, " dy"]:
        """y_0."""

    def states_before(self, ys: Float[Array, "T dy"]) -> Float[Array, "T dy"]:
        return jnp.concatenate([self.start()[None].astype(ys.dtype), ys[:-1]])

    def state_before(self, ys: Float[Array, "T dy"], t: Int[Array, ""]) -> Float[Array, " dy"]:
        return jnp.where(t > 0, ys[t - 1], self.start().astype(ys.dtype))

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
    """A task of any other structure: the state is a PyTree that follows from θ and the data by
    `initial` and `advance`.

    Attributes:
        horizon: number of steps, T.
        prior: the prior of θ.
        designs: the design space.
        outcomes: the quantities that a step measures.
        additive_noise: whether y = mean(θ, state, ξ) + constant · noise.

    Methods:
        initial: the state before the first step.
        advance: the state after a step.
        outcome: y as a differentiable function of standard normal noise.
        log_prob: log p(y | θ, state, ξ).

    Example:
        >>> class Dosing(sb.History, sb.Gaussian):
        ...     horizon = 4
        ...     prior = sb.parameters({"clearance": dist.LogNormal(0.0, 0.4)})
        ...     designs = sb.ranges({"dose [mg]": (0.0, 50.0)})
        ...     outcomes = sb.measured("concentration [mg/l]")
        ...     additive_noise = True
        ...
        ...     def initial(self, theta):
        ...         return jnp.zeros(())
        ...
        ...     def advance(self, theta, state, xi, y):
        ...         return (state + xi[0]) * jnp.exp(-theta[0])
        ...
        ...     def mean(self, theta, state, xi):
        ...         return jnp.stack([self.advance(theta, state, xi, None)])
        ...
        ...     def scale(self, theta, state, xi):
        ...         return [0.2]
        >>> Dosing().states_follow_data
        False
    """


class Implicit(Task):
    """A task that can be simulated but has no density: `outcome` is all there is, and its noise may
    have more coordinates (`extra_noise`). It is inherited together with a structure.

    Attributes:
        horizon: number of steps, T.
        prior: the prior of θ.
        designs: the design space.
        outcomes: the quantities that a step measures.
        additive_noise: whether y = mean(θ, state, ξ) + constant · noise.
        extra_noise: noise of a step beyond one number per outcome.

    Methods:
        initial: the state before the first step; `IID` has none.
        advance: the state after a step; `IID` has none.
        outcome: y as a differentiable function of standard normal noise.

    Example:
        >>> class Bursts(sb.Implicit, sb.IID):
        ...     horizon = 2
        ...     prior = sb.parameters({"rate": dist.LogNormal(0.0, 0.5)})
        ...     designs = sb.ranges({"gain": (0.0, 1.0)})
        ...     outcomes = sb.measured("count")
        ...     additive_noise = False
        ...     extra_noise = 1
        ...
        ...     def outcome(self, theta, state, xi, noise):
        ...         return jnp.stack([theta[0] * xi[0] * jnp.exp(noise[0]) + noise[1]])
        >>> Bursts().has_density, Bursts().noise_dim
        (False, 2)
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
            "`log_prob`. Fix: use what needs none: --method score, varpost, jointvarpost or random."
        )


class Gaussian(Task):
    """A task with y = mean(θ, state, ξ) + scale(θ, state, ξ) · noise and independent coordinates:
    `outcome` and `log_prob` follow from these two. It is inherited together with a structure.

    Attributes:
        horizon: number of steps, T.
        prior: the prior of θ.
        designs: the design space.
        outcomes: the quantities that a step measures.
        additive_noise: whether the scale is constant.

    Methods:
        initial: the state before the first step; `IID` has none, `Markov` takes `start`.
        advance: the state after a step; `IID` and `Markov` have one.
        mean: the mean of the outcome, [dy].
        scale: the standard deviation of each outcome.

    Example:
        >>> decay.mean(jnp.zeros(1), None, jnp.ones(1))
        Array([10.], dtype=float32)
    """

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

    def typical_noise(self) -> Float[Array, " dy"]:
        theta = self.prior.from_latent(jnp.zeros(self.prior.dim))
        xi = self.designs.constrain(jnp.zeros(self.designs.dim))
        return jnp.stack([jnp.asarray(s) for s in self.scale(theta, self.initial(theta), xi)])

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
