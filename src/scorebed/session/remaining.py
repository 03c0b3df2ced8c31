"""The remaining steps as an experiment in themselves, and where their designs may lie.

**The remaining steps.** With the task that is left (`tasks/continued.py`), the posterior so far as
a prior, a policy that goes on from its memory and a score restricted to the steps to come,
everything that can be asked of a task and a policy can be asked in the middle of an experiment. The
gradient of what is still to be learned needs the score of the whole history, restricted to future
steps,

    ∇_{future} log p(y_{t+1:T} | ξ_{t+1:T}, h_t) = ∇_{future} log p(y_{1:T} | ξ_{1:T}),

so a score that was trained for T steps serves as long as there will be T measurements.

**Feasible designs.** Limits of the experiment and the constraint of the task together leave

    a = max(a_t, low),   b = min(b_t, high − (later steps) · gap)

with [a_t, b_t] what the constraint leaves after the last design (`tasks/constraints.py`), and space
kept for the later steps of coordinates in rising order. The nearest design in there is proposed.
Moved to the limits alone, the second of two sampling times past the upper one would repeat the
first. If one step has a feasible design, so has every later one: designs in between keep to the
same rule."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.scipy.special import ndtr
from jaxtyping import Array, Float, Int, PRNGKeyArray, Scalar

from scorebed.errors import InvalidValueError, NoDensityError, ScorebedError
from scorebed.policies.base import Memory, Policy
from scorebed.scores.base import Score, ScoreValue
from scorebed.session.events import ExperimentState, Limits, RefinedBy, Vector
from scorebed.session.measurements import array, pairs_of, stacked
from scorebed.tasks.base import Task
from scorebed.tasks.constraints import FeasibleRange
from scorebed.tasks.continued import Continued, continued
from scorebed.tasks.priors import Prior
from scorebed.tasks.spaces import Quantity

ROUNDING = 1e-5  # relative error of a design in single precision


# ---- the remaining steps


class PosteriorParticles(Prior):
    """Equally weighted draws in place of a distribution. It tells apart at most N values, so no
    EIG exceeds log N.
    """

    theta: Float[Array, "N k"]
    quantities: tuple[Quantity, ...] = eqx.field(static=True)

    def from_latent(self, z: Float[Array, " k"]) -> Float[Array, " k"]:
        """The first coordinate alone picks the particle."""
        n = len(self.theta)
        return self.theta[jnp.minimum(n * ndtr(z[0]), n - 1).astype(int)]

    def log_prob(self, theta: Float[Array, " k"]) -> Scalar:
        del theta
        raise NoDensityError(
            "the density of a posterior, got particles, expected a density. Fix: none; draw from "
            "it."
        )


class LimitArrays(eqx.Module):
    """Limits of the designs as arrays, infinite where there are none."""

    low: Float[Array, " dx"]
    high: Float[Array, " dx"]

    @classmethod
    def of(cls, limits: Limits | None, dim: int) -> "LimitArrays":
        none = (None,) * dim
        low, high = (none, none) if limits is None else (limits.low, limits.high)
        lowest = jnp.asarray([-jnp.inf if value is None else value for value in low])
        return cls(lowest, jnp.asarray([jnp.inf if value is None else value for value in high]))


class ContinuingPolicy(Policy):
    """A policy that has seen a history already, within limits.

    What it asks for outside of the limits is moved to them, but the gradient is that of the design
    which is used: at a limit it still says whether the policy should ask for less."""

    policy: Policy
    ys: Float[Array, "t dy"]
    xis: Float[Array, "t dx"]
    bounds: LimitArrays

    def sample_noise(self, horizon: int, *, key: PRNGKeyArray) -> Float[Array, "T n"]:
        return self.policy.sample_noise(horizon, key=key)

    def init(self) -> Memory:
        def step(memory: Memory, data: tuple[Array, Array]) -> tuple[Memory, None]:
            xi, y = data
            return self.policy.update(memory, xi, y), None

        return jax.lax.scan(step, self.policy.init(), (self.xis, self.ys))[0]

    def design(self, memory: Memory, noise: Float[Array, " n"]) -> Float[Array, " dx"]:
        wanted = self.policy.design(memory, noise)
        allowed = jnp.clip(wanted, self.bounds.low, self.bounds.high)
        return wanted + jax.lax.stop_gradient(allowed - wanted)

    def preferences(self, memory: Memory, noise: Float[Array, " n"]) -> Float[Array, " f"]:
        return self.policy.preferences(memory, noise)

    def update(self, memory: Memory, xi: Float[Array, " dx"], y: Float[Array, " dy"]) -> Memory:
        return self.policy.update(memory, xi, y)


class FutureScore(Score):
    """The score of a whole history, at the steps to come."""

    whole: Score
    ys: Float[Array, "t dy"]
    xis: Float[Array, "t dx"]

    def __call__(self, ys: Float[Array, "n dy"], xis: Float[Array, "n dx"]) -> ScoreValue:
        value = self.whole(jnp.concatenate([self.ys, ys]), jnp.concatenate([self.xis, xis]))
        return ScoreValue(value.y[len(self.ys) :], value.xi[len(self.xis) :])

    @property
    def nle(self) -> int:
        return self.whole.nle


class RemainingExperiment(NamedTuple):
    """The remaining steps as a task, and the policy that goes on. `lacking` if the policy had no
    designs for some of the steps, and those here were drawn at random; `measurements` is how many
    there will be in all.
    """

    task: Continued
    policy: ContinuingPolicy
    lacking: bool
    measurements: int

    def require_designs(self) -> None:
        """Refuse a policy that had no designs for some of the remaining steps."""
        require_designs(self.lacking)

    def score_for(self, score: Score | None, by: str | None) -> Score | None:
        """The score to refine with, None for PCE; `by` insists on one of them."""
        trained = self.task.base.horizon
        if by is not None and by not in list(RefinedBy):
            raise InvalidValueError(
                "the way to refine",
                got=f"'{by}'",
                expected=" or ".join(RefinedBy),
                fix="leave it out to have it chosen.",
            )
        fits = score is not None and self.measurements == trained
        if by == RefinedBy.SCORE and not fits:
            other = f"an experiment of {self.measurements} measurements"
            raise InvalidValueError(
                "refining by the score",
                got="a run without one" if score is None else other,
                expected=f"a score, and the {trained} measurements that it was trained for",
                fix=f"refine by {RefinedBy.PCE}.",
            )
        if score is None or not fits or by == RefinedBy.PCE:
            return None
        return FutureScore(score, self.policy.ys, self.policy.xis)


def require_designs(lacking: bool) -> None:
    """Refuse to say what remains under a policy that has no designs for some of the steps."""
    if lacking:
        raise ScorebedError(
            "what remains, got a policy without designs for all steps, expected one for each. "
            "Fix: refine first."
        )


def remaining_experiment(
    task: Task, policy: Policy, state: ExperimentState, theta: np.ndarray
) -> RemainingExperiment:
    """What remains at `state`, given particles of the posterior there; before any measurement the
    prior itself serves.
    """
    pairs, total = pairs_of(state.records), state.measurements
    ys, xis = stacked(pairs, task)
    full = policy.extended(max(state.horizon, task.horizon), key=jr.key(len(pairs)))
    confined = confine(full, feasible_designs(task, state))
    limits = LimitArrays.of(state.limits, task.designs.dim)
    prior = (
        PosteriorParticles(theta=array(theta), quantities=task.prior.quantities)
        if pairs
        else task.prior
    )
    rest = continued(
        task, prior, [xi for xi, _ in pairs], [y for _, y in pairs], steps=total - len(pairs)
    )
    lacking = policy.lacks_designs(total)
    return RemainingExperiment(rest, ContinuingPolicy(confined, ys, xis, limits), lacking, total)


# ---- feasible designs


class FeasibleDesigns(eqx.Module):
    """Where designs may lie under limits and a constraint, in an experiment with so many
    measurements in all.
    """

    range: FeasibleRange = eqx.field(static=True)
    limits: Limits = eqx.field(static=True)
    measurements: int = eqx.field(static=True)

    def interval(
        self, previous: Float[Array, " dx"], step: Int[Array, ""]
    ) -> tuple[Float[Array, " dx"], Float[Array, " dx"]]:
        """[a, b] of the measurement number `step`, counted from 0; empty (a > b) where there is no
        such design.
        """
        a, b = self.range.interval(previous, step)
        low, high = (
            jnp.asarray([none if value is None else value for value in side], previous.dtype)
            for side, none in ((self.limits.low, -jnp.inf), (self.limits.high, jnp.inf))
        )
        kept = jnp.asarray(
            [limit.gap if limit.rising else 0.0 for limit in self.range.limits], previous.dtype
        )
        later = jnp.maximum(self.measurements - 1 - step, 0).astype(previous.dtype)
        return jnp.maximum(a, low), jnp.minimum(b, high - later * kept)


class ConfinedPolicy(Policy):
    """A policy under a constraint, kept to feasible designs. Its gradient at a limit is that of the
    design which is used, as in `ContinuingPolicy`.
    """

    inside: Policy
    feasible: FeasibleDesigns

    def sample_noise(self, horizon: int, *, key: PRNGKeyArray) -> Float[Array, "T n"]:
        return self.inside.sample_noise(horizon, key=key)

    def init(self) -> Memory:
        return self.inside.init()

    def design(self, memory: Memory, noise: Float[Array, " n"]) -> Float[Array, " dx"]:
        wanted = self.inside.design(memory, noise)
        allowed = jnp.clip(
            wanted, *self.feasible.interval(memory.previous.astype(wanted.dtype), memory.step)
        )
        return wanted + jax.lax.stop_gradient(allowed - wanted)

    def update(self, memory: Memory, xi: Float[Array, " dx"], y: Float[Array, " dy"]) -> Memory:
        return self.inside.update(memory, xi, y)


def confine(policy: Policy, feasible: FeasibleDesigns | None) -> Policy:
    """A policy that keeps to feasible designs, if a constraint is wrapped around it; `released`
    gives it back.
    """
    if feasible is None or policy.unwrapped is policy:
        return policy
    return ConfinedPolicy(policy, feasible)


def released(policy: Policy) -> Policy:
    """The policy that was confined, or any other as it is."""
    return policy.inside if isinstance(policy, ConfinedPolicy) else policy


def feasible_designs(task: Task, state: ExperimentState) -> FeasibleDesigns | None:
    """None where there are no limits, or no constraint in addition to them."""
    if task.feasible is None or state.limits is None:
        return None
    return FeasibleDesigns(task.feasible, state.limits, state.measurements)


def nearest_feasible(task: Task, state: ExperimentState, wanted: Vector) -> Vector:
    """The design to propose where the policy wants `wanted`; `ScorebedError` where limits and
    constraint leave none.
    """
    feasible = feasible_designs(task, state)
    if feasible is None:
        return state.allowed(wanted)
    low, high = _ends(feasible, state)
    if _empty(low, high):
        raise ScorebedError(
            f"the design of step {state.step}, got limits that leave none "
            f"({feasible.range.words()}), expected one. "
            "Fix: widen the limits or lift them; or finish."
        )
    # What is inside already stays as it is, to the last digit.
    each = zip(wanted, low.tolist(), high.tolist(), strict=True)
    return tuple(value if a <= value <= b else a if value < a else b for value, a, b in each)


def require_feasible(task: Task, state: ExperimentState, limits: Limits | None) -> None:
    """Refuse limits that leave no design for some step to come. The pending design stays if the
    limits allow it.
    """
    if task.feasible is None or limits is None:
        return
    feasible = FeasibleDesigns(task.feasible, limits, state.measurements)
    pending = None if state.proposal is None else state.proposal.design
    kept = pending if pending is not None and limits.nearest(pending) == pending else None
    if kept is not None and state.step == state.horizon:
        return
    if _empty(*_ends(feasible, state, kept)):
        raise InvalidValueError(
            "the limits",
            got="some that leave no design for the steps to come",
            expected=f"a design for each, with {task.feasible.words()}",
            fix="allow more, or set fewer steps first.",
        )


def _ends(
    feasible: FeasibleDesigns, state: ExperimentState, after: Vector | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """[a, b] of the next measurement, or of the one after it if the next is at `after`."""
    used = [record.used for record in state.measured] + ([after] if after is not None else [])
    last = used[-1] if used else feasible.range.start()
    previous: Any = np.asarray(last, jnp.result_type(float))
    step: Any = np.asarray(len(used), np.int32)
    low, high = _interval(feasible, previous, step)
    return np.asarray(low, np.float64), np.asarray(high, np.float64)


@eqx.filter_jit
def _interval(
    feasible: FeasibleDesigns, previous: Float[Array, " dx"], step: Int[Array, ""]
) -> tuple[Array, Array]:
    return feasible.interval(previous, step)


def _empty(low: np.ndarray, high: np.ndarray) -> bool:
    return bool(np.any(low > high + ROUNDING * np.maximum(1.0, np.abs(high))))
