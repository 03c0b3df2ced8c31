"""Refine now: policy gradient steps on what is known, for the remaining steps, within a number of
seconds.

The remaining experiment (`remaining.py`) is trained on like any other: by the trained score where
it is exact, that is for as many measurements as it was trained for; otherwise by PCE, with
particles of the posterior as contrastive parameters. The clock ends training, so the learning rate
cannot be scheduled: it falls like 1/√n from the start, and the parameters are averaged. The
averages after a quarter of the time, after half of it and at the end are the candidates; one is
chosen on some draws and compared with the former policy on others.

When wrong: particles stand for the posterior, so what remains is underestimated near log N, N their
number; and a gain smaller than its standard error is not seen."""

import dataclasses
import math
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from scorebed.bounds.contrastive import SATURATED
from scorebed.errors import InvalidValueError
from scorebed.estimators.pce import contrastive
from scorebed.keys import named
from scorebed.policies.base import Policy
from scorebed.rollout import draw_noise, log_likelihood, price, rollout
from scorebed.runs.load import Run
from scorebed.scores.base import Score
from scorebed.session.events import RefinedBy, Remaining
from scorebed.session.messages import refine_sentence
from scorebed.session.remaining import ContinuingPolicy, RemainingExperiment, released
from scorebed.tasks.base import Task
from scorebed.tasks.nuisance import refuse_nuisance
from scorebed.training.contrastive import pce_loss
from scorebed.training.fit import NonFiniteError, StepInfo, Stop, fit, gradient_of, start
from scorebed.training.policy import policy_loss, policy_optimiser

# Presets that train for hours have learning rates too small to show within seconds; a method of the
# user's may name none.
LEAST_RATE = 1e-3
BATCH, INNER = 64, 255  # trajectories of a step, and contrastive parameters of each
OUTER, EVALUATION_INNER, CHUNK = 512, 2047, 64  # of the estimates that decide
STEADY = 50.0  # steps after which the learning rate has begun to fall
EARLIER = (0.25, 0.5)  # shares of the time at which the policy is a candidate too
BLOCK = 10  # steps between two looks at the clock
AVERAGED = 0.98  # decay of the moving average
SURE = 2.0  # standard errors by which a policy must be better to be kept


class RefinedPolicy(NamedTuple):
    """A policy after refining, with estimates of what the remaining steps give before and after, on
    the same draws.
    """

    policy: Policy
    by: str
    steps: int
    seconds: float
    before: Remaining
    after: Remaining
    gain: float
    gain_se: float
    """Of what the remaining steps give, less what their designs cost, and its standard error."""

    @property
    def better(self) -> bool:
        """Whether it gives more, by `SURE` standard errors of the difference."""
        return self.steps > 0 and self.gain > SURE * self.gain_se


@dataclasses.dataclass(frozen=True)
class RefineResult:
    """What `Session.refine` found: the remaining information before and after, on the same draws,
    and whether the policy was kept.

    `gain` is the difference, less what the designs cost where they cost something; `before` is None
    where the former policy had no designs for the remaining steps."""

    kept: bool
    by: str
    steps: int
    seconds: float
    before: Remaining | None
    after: Remaining
    gain: float
    gain_se: float

    def event(self, policy_sha256: str, horizon: int, information: float) -> dict[str, Any]:
        """The data of the event that stores the policy."""
        names = ("by", "steps", "seconds", "before", "after")
        values = dataclasses.asdict(self)
        return {
            "policy": policy_sha256,
            "horizon": horizon,
            **{name: values[name] for name in names},
            "information": information,
        }

    @property
    def sentence(self) -> str:
        """The result in words."""
        return refine_sentence(
            **{field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        )


def require_refinable(task: Task, policy: Policy) -> None:
    """Refuse policies without parameters to train, tasks with nuisance parameters, and tasks
    without a posterior.
    """
    onwards = "go on with the policy as it was trained."
    refuse_nuisance(task, "refining a policy", onwards)
    if not task.has_density:
        raise InvalidValueError(
            "refining a policy",
            got="a model without a density",
            expected="a posterior to refine it on",
            fix=onwards,
        )
    if not policy.trainable:
        raise InvalidValueError(
            "refining a policy",
            got="designs that no training made",
            expected="a policy that was trained",
            fix="use the run of another method.",
        )


def usual_rate(run: Run) -> float:
    """The learning rate that the policy of a run was trained with, or the least."""
    training = run.config.trained_by.policy_settings
    return LEAST_RATE if training is None else max(training.learning_rate, LEAST_RATE)


def refine_remaining(
    rest: RemainingExperiment,
    score: Score | None,
    *,
    by: str | None,
    rate: float,
    seconds: float,
    begun: float,
    key: PRNGKeyArray,
) -> tuple[RefineResult, Policy]:
    """Refine the policy of the remaining experiment within `seconds` from `begun`, by the run's
    score if it applies. Gives the policy too, to be stored if it is to be kept.
    """
    found = refine_policy(
        rest.task,
        rest.policy,
        rest.score_for(score, by),
        rate=rate,
        seconds=seconds - (time.monotonic() - begun),
        key=key,
    )
    result = RefineResult(
        kept=found.better or (rest.lacking and found.steps > 0),
        by=found.by,
        steps=found.steps,
        seconds=time.monotonic() - begun,
        before=None if rest.lacking else found.before,
        after=found.after,
        gain=found.gain,
        gain_se=found.gain_se,
    )
    return result, released(found.policy)


def refine_policy(
    rest: Task,
    continuing: ContinuingPolicy,
    score: Score | None,
    *,
    rate: float,
    seconds: float,
    clock: Callable[[], float] = time.monotonic,
    key: PRNGKeyArray,
) -> RefinedPolicy:
    """Train `continuing` on the remaining steps, by `score` if there is one. BATCH·(INNER + 1)·T
    NLE a step by PCE.

    Time for the estimates that follow is set aside. Compilations and blocks of steps cannot be
    interrupted."""
    begun = clock()
    choosing, deciding = named(key, "choose"), named(key, "decide")
    former = _values(rest, continuing, choosing)
    compiled = clock()
    judged = _values(rest, continuing, deciding)
    estimate = clock() - compiled
    candidates, steps = _train(
        rest,
        continuing,
        score,
        rate=rate,
        begun=clock(),
        end=begun + seconds - (len(EARLIER) + 2) * estimate,
        clock=clock,
        key=key,
    )
    best = continuing
    if candidates:
        gains = [
            (_values(rest, candidate, choosing).net - former.net).mean() for candidate in candidates
        ]
        best = candidates[int(np.argmax(np.nan_to_num(gains, nan=-np.inf)))]
    after = _values(rest, best, deciding)
    gain, gain_se = _mean(after.net - judged.net)
    by = RefinedBy.PCE if score is None else RefinedBy.SCORE
    return RefinedPolicy(
        best.policy,
        by,
        steps,
        clock() - begun,
        _remaining(judged),
        _remaining(after),
        gain,
        gain_se,
    )


def estimate_remaining(rest: Task, continuing: ContinuingPolicy, *, key: PRNGKeyArray) -> Remaining:
    """What the remaining steps give under a policy: sPCE and sNMC. OUTER·(EVALUATION_INNER + 1)·T
    NLE.
    """
    return _remaining(_values(rest, continuing, key))


def _train(
    rest: Task,
    continuing: ContinuingPolicy,
    score: Score | None,
    *,
    rate: float,
    begun: float,
    end: float,
    clock: Callable[[], float],
    key: PRNGKeyArray,
) -> tuple[list[ContinuingPolicy], int]:
    """Candidates, and the number of steps taken; none if the time is up already."""
    if begun >= end:
        return [], 0
    # Of all arrays only those of the policy are trained: the history and the limits stay.
    nothing = jax.tree.map(lambda _: False, continuing)
    trained = eqx.tree_at(
        lambda c: c.policy, nothing, jax.tree.map(eqx.is_inexact_array, continuing.policy)
    )
    params, static_part = eqx.partition(continuing, trained)
    earlier: list[PyTree] = []
    last = begun

    def look(info: StepInfo) -> Any:
        nonlocal last
        now = clock()
        block, last = now - last, now
        if len(earlier) < len(EARLIER) and now >= begun + EARLIER[len(earlier)] * (end - begun):
            earlier.append(info.state.average)
        # The first block includes a compilation, and says nothing about the next.
        return Stop if now + (block if info.step > BLOCK else 0.0) >= end else None

    optimiser = policy_optimiser(lambda n: rate / jnp.sqrt(1 + n / STEADY))
    state = start(params, optimiser)
    loss = (
        pce_loss(static_part, rest, batch=BATCH, inner=INNER)
        if score is None
        else policy_loss(static_part, rest, score, batch=BATCH)
    )
    try:
        state = fit(
            gradient_of(loss),
            state,
            optimiser,
            steps=10**9,
            block=BLOCK,
            decay=AVERAGED,
            on_step=look,
            key=named(key, "train"),
        )
    except NonFiniteError as error:
        state = error.state
    found = [*earlier, state.average]
    return [eqx.combine(average, static_part) for average in found], int(state.step)


class _Values(NamedTuple):
    """Both bounds, trajectory by trajectory, and the lower one less what the designs cost."""

    lower: np.ndarray
    upper: np.ndarray
    net: np.ndarray


def _values(rest: Task, policy: ContinuingPolicy, key: PRNGKeyArray) -> _Values:
    return _Values(*(np.asarray(each, np.float64) for each in _each(rest, policy, key)))


@eqx.filter_jit
def _each(rest: Task, policy: Policy, key: PRNGKeyArray) -> tuple[Float[Array, " N"], ...]:
    """sPCE and sNMC of trajectories that share no draws."""

    def one(key: PRNGKeyArray) -> tuple[Array, ...]:
        theta = rest.prior.sample(key=named(key, "theta"))
        run = rollout(rest, policy, theta, draw_noise(rest, policy, key=named(key, "noise")))
        log_p0 = log_likelihood(rest, theta, run.ys, run.xis)
        others = contrastive(rest, run, EVALUATION_INNER, key=named(key, "contrast"))
        lower = log_p0 - jnp.logaddexp(log_p0, others) + math.log(EVALUATION_INNER + 1)
        return lower, log_p0 - others + math.log(EVALUATION_INNER), lower - price(rest, run.xis)

    return jax.lax.map(one, jr.split(key, OUTER), batch_size=CHUNK)


def _mean(values: np.ndarray) -> tuple[float, float]:
    """Mean and standard error."""
    return float(values.mean()), float(values.std(ddof=1) / math.sqrt(len(values)))


def _remaining(values: _Values) -> Remaining:
    """Without an upper bound where many trajectories are saturated (as in `bounds/contrastive.py`):
    the particles cannot tell what lies above log(M + 1).
    """
    lower, se = _mean(values.lower)
    upper = float(values.upper.mean())
    saturated = np.mean(values.lower > math.log(EVALUATION_INNER + 1) - math.log(2))
    return Remaining(lower, upper if math.isfinite(upper) and saturated <= SATURATED else None, se)
