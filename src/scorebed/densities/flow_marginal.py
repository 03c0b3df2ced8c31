"""VarMarg: a normalising flow in place of the marginal likelihood p(y_{1:T} | ξ_{1:T}) (paper,
appendix "Baselines").

The paper's flow models outcomes and designs jointly, and the density of the sampler's designs is
divided out:

    log q(y | ξ) = log q(y, u) − log q(u),   ξ = constrain(u)

(the Jacobian of `constrain` is in both terms and cancels). Only designs of that sampler, drawn
before any data, may train it: the rollouts of a policy have another density, which is unknown.
Where the sampler has no density either, a flow of y alone, given u, does the same work. All of
flowjax that scorebed uses is in this file, and imported when a flow is made."""

import abc
import math
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, Scalar

from scorebed._jit import jit_once
from scorebed.errors import NoDensityError, require
from scorebed.keys import named
from scorebed.rollout import pilot_runs
from scorebed.samplers.base import DesignSampler
from scorebed.tasks.base import Task


class MarginalDensity(eqx.Module):
    """q(y_{1:T} | ξ_{1:T}), an approximation of the marginal likelihood. It costs no NLE."""

    # Where the designs of its training come from.
    sampler: eqx.AbstractVar[DesignSampler]

    @abc.abstractmethod
    def log_prob(self, ys: Float[Array, "T dy"], xis: Float[Array, "T dx"]) -> Scalar:
        """log q(y_{1:T} | ξ_{1:T}), differentiable in both."""

    @abc.abstractmethod
    def objective(self, ys: Float[Array, "T dy"], xis: Float[Array, "T dx"]) -> Scalar:
        """What maximum likelihood raises on experiments of the sampler: `log_prob` up to what no
        parameter can change.
        """


class FlowSizes(NamedTuple):
    """Layers, and width and depth of each layer's network; bins of its splines, which are the
    identity beyond ±interval. Defaults are the paper's.
    """

    layers: int = 5
    width: int = 80
    depth: int = 2
    bins: int = 8
    interval: float = 4.0


PAPER_SIZES = FlowSizes()


class FlowCoordinates(eqx.Module):
    """Outcomes and unconstrained designs of order one: one mean and one scale per step and
    coordinate, never trained.

    Per step, because the states of a dynamical system start at a known point: those of the first
    step vary by a hundredth of what the last ones do, and beyond its interval a spline can bend
    nothing."""

    mean_y: Float[Array, "T dy"]
    scale_y: Float[Array, "T dy"]
    mean_u: Float[Array, "T dx"]
    scale_u: Float[Array, "T dx"]

    def y(self, ys: Float[Array, "T dy"]) -> Float[Array, "T dy"]:
        """Outcomes of order one."""
        return (ys - jax.lax.stop_gradient(self.mean_y)) / jax.lax.stop_gradient(self.scale_y)

    def u(self, us: Float[Array, "T dx"]) -> Float[Array, "T dx"]:
        """Unconstrained designs of order one."""
        return (us - jax.lax.stop_gradient(self.mean_u)) / jax.lax.stop_gradient(self.scale_u)

    @property
    def log_volume_y(self) -> Scalar:
        """log |∂y / ∂(standardised y)|."""
        return jax.lax.stop_gradient(jnp.log(self.scale_y).sum())

    @property
    def log_volume_u(self) -> Scalar:
        """log |∂u / ∂(standardised u)|."""
        return jax.lax.stop_gradient(jnp.log(self.scale_u).sum())


def flow_coordinates(task: Task, sampler: DesignSampler, *, key: PRNGKeyArray) -> FlowCoordinates:
    """Statistics of a pilot of 1,024 experiments. Simulations only: no likelihood is evaluated."""

    runs = pilot_runs(task, sampler, key=named(key, "pilot"))
    ys, us = runs.ys, jax.vmap(task.designs.unconstrain)(runs.xis)
    tiny = jnp.finfo(ys.dtype).tiny
    return FlowCoordinates(
        ys.mean(0), jnp.maximum(ys.std(0), tiny), us.mean(0), jnp.maximum(us.std(0), tiny)
    )


class JointFlow(MarginalDensity):
    """The paper's: a flow of (y, u) together, over the density of the sampler's designs.

    It integrates to one over y only as far as the flow's marginal in u is the sampler's, so that
    `log_prob` is good to the error of *both*; far from the sampler's designs it is the difference
    of two tails. Raises `NoDensityError` for a sampler without one."""

    sampler: DesignSampler
    coordinates: FlowCoordinates
    flow: Any

    def __init__(
        self,
        task: Task,
        sampler: DesignSampler,
        coordinates: FlowCoordinates,
        sizes: FlowSizes = PAPER_SIZES,
        *,
        key: PRNGKeyArray,
    ):
        _require_sampler(task, sampler)
        # Traced only: a sampler without a density refuses here, not in the middle of training.
        jax.eval_shape(sampler.log_prob_unconstrained, coordinates.mean_u)
        size = task.horizon * (task.outcome_dim + task.designs.dim)
        self.sampler, self.coordinates = sampler, coordinates
        self.flow = _spline_flow(size, None, sizes, key=key)

    def log_prob(self, ys: Float[Array, "T dy"], xis: Float[Array, "T dx"]) -> Scalar:
        us = self.sampler.space.unconstrain(xis)
        return self._joint(ys, us) - self.sampler.log_prob_unconstrained(us)

    def objective(self, ys: Float[Array, "T dy"], xis: Float[Array, "T dx"]) -> Scalar:
        return self._joint(ys, self.sampler.space.unconstrain(xis))

    def _joint(self, ys: Float[Array, "T dy"], us: Float[Array, "T dx"]) -> Scalar:
        """log q(y, u). Step by step and the design first, as the experiment goes: so does the first
        layer condition.
        """
        at = self.coordinates
        x = jnp.concatenate([at.u(us), at.y(ys)], axis=1).reshape(-1)
        log_q: Scalar = self.flow.log_prob(x)
        return log_q - at.log_volume_y - at.log_volume_u


class ConditionalFlow(MarginalDensity):
    """A flow of y given u, for any sampler; it integrates to one over y, whatever the designs."""

    sampler: DesignSampler
    coordinates: FlowCoordinates
    flow: Any

    def __init__(
        self,
        task: Task,
        sampler: DesignSampler,
        coordinates: FlowCoordinates,
        sizes: FlowSizes = PAPER_SIZES,
        *,
        key: PRNGKeyArray,
    ):
        _require_sampler(task, sampler)
        size, given = task.horizon * task.outcome_dim, task.horizon * task.designs.dim
        self.sampler, self.coordinates = sampler, coordinates
        self.flow = _spline_flow(size, given, sizes, key=key)

    def log_prob(self, ys: Float[Array, "T dy"], xis: Float[Array, "T dx"]) -> Scalar:
        at = self.coordinates
        us = self.sampler.space.unconstrain(xis)
        log_q: Scalar = self.flow.log_prob(at.y(ys).reshape(-1), at.u(us).reshape(-1))
        return log_q - at.log_volume_y

    def objective(self, ys: Float[Array, "T dy"], xis: Float[Array, "T dx"]) -> Scalar:
        return self.log_prob(ys, xis)


def marginal_flow(
    task: Task, sampler: DesignSampler, sizes: FlowSizes = PAPER_SIZES, *, key: PRNGKeyArray
) -> MarginalDensity:
    """An untrained flow: a `JointFlow` where the sampler has a density, a `ConditionalFlow` where
    it has none.
    """
    coordinates: FlowCoordinates = jit_once(lambda k: flow_coordinates(task, sampler, key=k))(
        named(key, "coordinates")
    )
    try:
        return JointFlow(task, sampler, coordinates, sizes, key=named(key, "flow"))
    except NoDensityError:
        return ConditionalFlow(task, sampler, coordinates, sizes, key=named(key, "flow"))


def _spline_flow(size: int, given: int | None, sizes: FlowSizes, *, key: PRNGKeyArray) -> Any:
    """A masked autoregressive flow with rational-quadratic splines over N(0, I). Not for use inside
    of a compiled function.
    """
    from flowjax.bijections import MaskedAutoregressive, RationalQuadraticSpline
    from flowjax.distributions import StandardNormal
    from flowjax.flows import masked_autoregressive_flow
    from flowjax.utils import get_ravelled_pytree_constructor

    layers, width, depth, bins, interval = sizes
    require(
        min(layers, width, depth, bins - 1) >= 1 and 0 < interval < math.inf,
        "the sizes of a flow",
        got=sizes,
        expected="whole numbers from 1, two bins and a positive interval",
        fix="leave them out for the paper's.",
    )
    # A float, since an integer interval would meet floats in the library, which strict promotion
    # refuses. The library counts the knots between bins.
    # These are numbers in a program too, for the layers keep them.
    with jax.ensure_compile_time_eval():
        spline = RationalQuadraticSpline(knots=bins - 1, interval=float(interval))
        constructor, _ = get_ravelled_pytree_constructor(spline, eqx.is_inexact_array)

    def make(key: PRNGKeyArray) -> Any:
        return masked_autoregressive_flow(
            key,
            base_dist=StandardNormal((size,)),
            transformer=spline,
            cond_dim=given,
            flow_layers=layers,
            nn_width=width,
            nn_depth=depth,
        )

    # Compiling the whole is several times faster than running it operation by operation. But every
    # layer keeps a function around the initial values of its spline, which must be numbers, not
    # values of that compilation: it is made again outside of it.
    def is_layer(node: Any) -> bool:
        return isinstance(node, MaskedAutoregressive)

    def repair(node: Any) -> Any:
        return (
            eqx.tree_at(lambda l: l.transformer_constructor, node, constructor)
            if is_layer(node)
            else node
        )

    return jax.tree.map(repair, jit_once(make)(key), is_leaf=is_layer)


def _require_sampler(task: Task, sampler: DesignSampler) -> None:
    require(
        sampler.horizon == task.horizon and sampler.space == task.designs,
        "the design sampler of a flow",
        got=f"{sampler.horizon} steps of {', '.join(map(str, sampler.space.quantities))}",
        expected=f"{task.horizon} steps of {', '.join(map(str, task.designs.quantities))}",
        fix="make the sampler with the horizon and the designs of the task.",
    )
