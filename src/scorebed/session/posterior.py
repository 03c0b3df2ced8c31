"""What the data say so far: p(θ | h_t) by particles after each measurement, and the outcomes to
expect from it.

Particles start as draws of the prior and are carried from measurement to measurement by tempered
SMC (`inference/smc.py`), each step from the one before. A step's random key follows from the
experiment's seed and the step's number, so that the posterior is a function of the data alone, no
matter who computes it or after how many interruptions.

The information gained is the KL divergence from prior to posterior,

    KL = E_{p(θ | h_t)}[log p(y_{1:t} | ξ_{1:t}, θ)] − log p(y_{1:t} | ξ_{1:t}),

with the mean over particles and the evidence of the SMC. Its mean over experiments is the EIG; in a
single one it may fall.

Cost: N t (1 + levels · moves) + N t NLE for measurement t; a surprise costs N² NLE. Tasks with a
history (neither independent nor Markov) start from the prior at each measurement, and compile for
each length.

When wrong: see `inference/smc.py`. `Posterior.warning` says when the particles themselves show it.
"""

import contextlib
import dataclasses
import functools
import math
import threading
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, Scalar

from scorebed.errors import NoDensityError, ScorebedError
from scorebed.inference.blocks import exchangeable_blocks
from scorebed.inference.relabelling import relabelled
from scorebed.inference.smc import SMCPosterior, tempered_smc, update_smc
from scorebed.keys import named
from scorebed.rollout import log_likelihoods, step_log_likelihoods
from scorebed.session.events import ProposedDesign, StepRecord, Vector
from scorebed.session.measurements import AlongHistory, Pair, array, padded, pairs_of, stacked
from scorebed.tasks.base import State, Task
from scorebed.tasks.continued import state_after
from scorebed.tasks.nuisance import of_interest
from scorebed.tasks.spaces import Quantity

PARTICLES = 2048
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
IMPROBABLE = 1e-3  # outcomes with a smaller tail probability are asked back
# Below these the particles hardly moved, or one level threw most of them away.
LEAST_ACCEPTANCE, LEAST_SHARE = 0.02, 0.05
NO_DENSITY = (
    "No posterior is in view, because the model has no density; designs are proposed and "
    "outcomes stored as usual."
)


@dataclasses.dataclass(frozen=True)
class MarginalSummary:
    """One parameter or outcome in its unit: mean, standard deviation, and the quantiles at
    `QUANTILES`.

    `nuisance` if it is a parameter that the experiment is not about.
    """

    quantity: Quantity
    mean: float
    sd: float
    quantiles: Vector
    nuisance: bool = False
    shares: tuple[tuple[str, float], ...] = ()
    """The probability of each value, by its name, of a quantity whose values have names."""


@dataclasses.dataclass(frozen=True, eq=False)
class Posterior:
    """p(θ | h_t) after `measured` outcomes: N particles of equal weight, and how well they were
    made.

    `ess` is the smallest effective sample size of the last update's levels, `acceptance` the share
    of its moves that were accepted (both as for a perfect sample before the first measurement).
    `information` is in nats, and about all parameters; `interest` are the columns of `theta` that
    the experiment is about, all of them if None. Blocks that can be exchanged, such as sources, are
    in a common order in all particles (`inference/relabelling.py`)."""

    measured: int
    quantities: tuple[Quantity, ...]
    theta: np.ndarray
    log_evidence: float
    information: float
    ess: float
    acceptance: float
    interest: tuple[int, ...] | None = None
    left_out: tuple[int, ...] = ()
    """The numbers of measurements that no parameters can have made, in single precision at least:
    the posterior is that of the others.
    """

    @functools.cached_property
    def marginals(self) -> tuple[MarginalSummary, ...]:
        """The named parameters one by one, in the order of `shown`."""
        each = _marginals(self.quantities, self.theta)
        return tuple(
            dataclasses.replace(each[i], nuisance=not self._matters(i)) for i in self.shown
        )

    @property
    def shown(self) -> list[int]:
        """The columns of `theta` in the order in which they are shown: what the experiment is about
        comes first.
        """
        return sorted(range(len(self.quantities)), key=lambda i: not self._matters(i))

    def _matters(self, column: int) -> bool:
        return self.interest is None or column in self.interest

    @property
    def warning(self) -> str | None:
        """A sentence if an outcome is left out, or the particles are not to be trusted."""
        if self.left_out:
            numbers = ", ".join(map(str, self.left_out))
            return (
                f"The outcome of measurement {numbers} is left out of the posterior: no parameters "
                "can have made it. Check it and its unit, and correct or undo it."
            )
        if self.acceptance < LEAST_ACCEPTANCE or self.ess < LEAST_SHARE * len(self.theta):
            return (
                f"The posterior is rough: {self.acceptance:.0%} of the moves were accepted, and "
                f"at one point it rested on {self.ess:.0f} of {len(self.theta)} particles. "
                "An outcome may not fit the model."
            )
        return None


class _Link(NamedTuple):
    """A posterior, and its particles as the next one needs them."""

    z: Float[Array, "N k"]
    theta: Float[Array, "N k"]
    posterior: Posterior


class KnownHistory(eqx.Module):
    """A history, padded where the task allows it, and how much of it was observed."""

    ys: Float[Array, "t dy"]
    xis: Float[Array, "t dx"]
    observed: Int[Array, ""]


class Beliefs:
    """The posteriors of one experiment, each kept with the data that made it, so that only what
    changed is computed again.

    Threads may share it. Every method takes the records to condition on.
    """

    def __init__(self, task: Task, *, seed: int, particles: int = PARTICLES):
        self.task, self.particles = task, particles
        self._key = named(jr.key(seed), "posterior")
        self._turn = threading.Lock()
        self._steps: AlongHistory[_Link] = AlongHistory(self._prior, self._grow)

    def posterior(self, records: Sequence[StepRecord]) -> Posterior:
        """p(θ | measured steps of `records`); `ScorebedError` where no particle can have made them,
        or the model has no density.
        """
        return self._along(records)[-1].posterior

    def information(self, records: Sequence[StepRecord]) -> list[float]:
        """Nats gained after no measurement, after one, and so on."""
        return [link.posterior.information for link in self._along(records)]

    def predict(self, records: Sequence[StepRecord], xi: Vector) -> tuple[MarginalSummary, ...]:
        """The next outcome at design ξ, coordinate by coordinate: its predictive distribution given
        `records`.
        """
        outcomes = self.outcomes(records, xi)
        return _marginals(self.task.outcomes, outcomes)

    def outcomes(self, records: Sequence[StepRecord], xi: Vector) -> np.ndarray:
        """One possible next outcome at design ξ per particle."""
        theta, known, key = self._next(records)
        return np.asarray(_outcomes(self.task, theta, known, array(xi), key), np.float64)

    def surprise(self, records: Sequence[StepRecord], xi: Vector, y: Vector) -> float:
        """The probability that an outcome at ξ has a predictive density as small as that of `y`, or
        smaller.

        Below `IMPROBABLE` something is likely to be wrong with the entry, the instrument or the
        model. The smallest value that N particles can give is 1/(N + 1). Before the first
        measurement this is the prior predictive."""
        theta, known, key = self._next(records)
        return float(_tail(self.task, theta, known, array(xi), array(y), key))

    def warming(self, design: Vector) -> Iterator[str]:
        """Compile what the first measurements will need, on beliefs that are thrown away; says what
        comes next, part by part.
        """
        zeros = (0.0,) * self.task.outcome_dim
        first = StepRecord(1, ProposedDesign(0, 1, design, ""), design, zeros, "", 0)
        scratch = Beliefs(self.task, seed=0, particles=self.particles)
        with contextlib.suppress(ScorebedError):  # outcomes that are all zero may be impossible
            yield "what to expect"
            scratch.predict([], design)
            yield "what is improbable"
            scratch.surprise([], design, zeros)
            yield "the posterior"
            scratch.posterior([first])

    def _along(self, records: Sequence[StepRecord]) -> list[_Link]:
        if not self.task.has_density:
            raise NoDensityError(NO_DENSITY)
        with self._turn:
            return self._steps.values(pairs_of(records))

    def _next(self, records: Sequence[StepRecord]) -> tuple[Array, KnownHistory, PRNGKeyArray]:
        """What the outcome after `records` follows from: particles, history and a key."""
        pairs = pairs_of(records)
        shape = padded if self.task.states_follow_data else stacked
        known = KnownHistory(*shape(pairs, self.task), jnp.asarray(len(pairs)))
        return self._along(records)[-1].theta, known, named(self._key, "predict", len(pairs))

    def _prior(self) -> _Link:
        z, theta = _draw(self.task, self.particles, named(self._key, "prior"))
        drawn = np.asarray(theta, np.float64)
        sure = (0.0, 0.0, float(self.particles), 1.0, of_interest(self.task))
        return _Link(z, theta, Posterior(0, self.task.prior.quantities, drawn, *sure))

    def _grow(self, before: _Link, pairs: Sequence[Pair]) -> _Link:
        left_out = before.posterior.left_out
        key = named(self._key, "update", len(pairs))
        pairs = [pair for number, pair in enumerate(pairs, start=1) if number not in left_out]
        t = len(pairs)
        if self.task.states_follow_data:
            ys, xis = padded(pairs, self.task)
            found, likelihood = _update(self.task, before.z, ys, xis, jnp.asarray(t), key)
            log_evidence = before.posterior.log_evidence + float(found.log_evidence)
        else:
            ys, xis = stacked(pairs, self.task)
            found, likelihood = _from_scratch(self.task, ys, xis, self.particles, key)
            log_evidence = float(found.log_evidence)
        information = float(likelihood) - log_evidence
        theta = np.asarray(found.theta, np.float64)
        if not (math.isfinite(information) and np.isfinite(theta).all()):
            if self.task.exchangeable_steps:  # the other steps do not depend on this one
                without = (*left_out, t + len(left_out))
                return before._replace(
                    posterior=dataclasses.replace(before.posterior, left_out=without)
                )
            raise ScorebedError(
                f"the posterior after measurement {t}, got no parameters that can have made the "
                "data, expected some. "
                "Fix: check the last outcome and its unit, and correct or undo it; designs are "
                "proposed all the same."
            )
        levels = ~np.isnan(np.asarray(found.ladder))
        posterior = Posterior(
            t,
            self.task.prior.quantities,
            relabelled(theta, exchangeable_blocks(self.task)),
            log_evidence,
            information,
            float(np.asarray(found.ladder_ess)[levels].min()),
            float(np.asarray(found.acceptance)[levels].mean()),
            of_interest(self.task),
            left_out,
        )
        return _Link(found.z, found.theta, posterior)


@eqx.filter_jit
def _draw(
    task: Task, particles: int, key: PRNGKeyArray
) -> tuple[Float[Array, "N k"], Float[Array, "N k"]]:
    # One long row of numbers, which compiles faster than one with a short last axis.
    z = jr.normal(key, (task.prior.dim * particles,)).reshape(-1, particles).T
    return z, jax.vmap(task.prior.from_latent)(z)


@eqx.filter_jit
def _update(
    task: Task,
    z: Float[Array, "N k"],
    ys: Float[Array, "T dy"],
    xis: Float[Array, "T dx"],
    observed: Int[Array, ""],
    key: PRNGKeyArray,
) -> tuple[SMCPosterior, Scalar]:
    """The posterior one measurement on, and the mean log-likelihood of all measurements under
    it.
    """
    found = update_smc(task, z, ys, xis, known=observed - 1, observed=observed, key=key)
    each = step_log_likelihoods(task, found.theta, ys, xis).mean(1)
    return found, jnp.where(jnp.arange(len(ys)) < observed, each, 0).sum()


@eqx.filter_jit
def _from_scratch(
    task: Task,
    ys: Float[Array, "t dy"],
    xis: Float[Array, "t dx"],
    particles: int,
    key: PRNGKeyArray,
) -> tuple[SMCPosterior, Scalar]:
    found = tempered_smc(task, ys, xis, particles=particles, key=key)
    return found, log_likelihoods(task, found.theta, ys, xis).mean()


def state_of(
    task: Task, theta: Float[Array, "N k"], known: KnownHistory
) -> tuple[State, int | None]:
    """The state before the next step, and its axis of particles: None where they share it."""
    if task.states_follow_data:
        return task.state_before(known.ys, known.observed), None
    return jax.vmap(lambda theta: state_after(task, theta, known.ys, known.xis))(theta), 0


def _possible(
    task: Task,
    theta: Float[Array, "N k"],
    state: State,
    axis: int | None,
    xi: Float[Array, " dx"],
    key: PRNGKeyArray,
) -> Float[Array, "N dy"]:
    noise = jr.normal(key, (len(theta) * task.noise_dim,), xi.dtype).reshape(len(theta), -1)
    return jax.vmap(task.outcome, in_axes=(0, axis, None, 0))(theta, state, xi, noise)


@eqx.filter_jit
def _outcomes(
    task: Task,
    theta: Float[Array, "N k"],
    known: KnownHistory,
    xi: Float[Array, " dx"],
    key: PRNGKeyArray,
) -> Float[Array, "N dy"]:
    return _possible(task, theta, *state_of(task, theta, known), xi, key)


@eqx.filter_jit
def _tail(
    task: Task,
    theta: Float[Array, "N k"],
    known: KnownHistory,
    xi: Float[Array, " dx"],
    y: Float[Array, " dy"],
    key: PRNGKeyArray,
) -> Scalar:
    state, axis = state_of(task, theta, known)
    columns = theta.T  # particles innermost, as in `rollout.log_likelihoods`

    def density(y: Float[Array, " dy"]) -> Scalar:
        return jax.nn.logsumexp(
            jax.vmap(task.log_prob, in_axes=(None, 1, axis, None))(y, columns, state, xi)
        )

    others = jax.lax.map(density, _possible(task, theta, state, axis, xi, key))
    # A density of NaN, for an outcome too large for the model's arithmetic, counts as the smallest.
    return ((others <= density(y)).sum() + 1).astype(others.dtype) / (len(theta) + 1)


def _marginals(quantities: Sequence[Quantity], values: np.ndarray) -> tuple[MarginalSummary, ...]:
    mean, sd = values.mean(0), values.std(0, ddof=1)
    return tuple(
        MarginalSummary(q, float(m), float(s), _quantiles(q, each), shares=_shares(q, each))
        for q, m, s, each in zip(quantities, mean, sd, values.T, strict=True)
    )


def _quantiles(quantity: Quantity, values: np.ndarray) -> Vector:
    """Of a quantity with few values, one of these."""
    if quantity.values:
        return tuple(map(float, np.quantile(values, QUANTILES, method="inverted_cdf")))
    return tuple(map(float, np.quantile(values, QUANTILES)))


def _shares(quantity: Quantity, values: np.ndarray) -> tuple[tuple[str, float], ...]:
    named = zip(quantity.labels, quantity.values, strict=False)
    return tuple((label, float((values == value).mean())) for label, value in named)
