"""Refine now: policy gradient steps on what is known, for the steps that remain, within a number of
seconds.

The remaining experiment (`remainder.py`) is trained on as any other: by the trained score where it
is exact, that is for as many measurements as it was trained for; otherwise by PCE, whose
contrastive parameters are particles of the posterior. The clock ends it, so the learning rate
cannot be planned: it falls like 1/√n from the start, and the parameters are averaged. The average
after a quarter of the time, after half of it and at the end are the candidates; one is chosen on
some draws and compared with the policy before on others.

When wrong: the particles stand for the posterior, so what remains is underestimated as it nears log
N, N their number; and a gain that is smaller than its standard error is not seen."""

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
from scorebed.estimators.pce import contrastive
from scorebed.keys import named
from scorebed.policies.base import Policy
from scorebed.rollout import draw_noise, log_likelihood, price, rollout
from scorebed.scores.base import Score
from scorebed.session.rest import Continuing
from scorebed.session.state import Remaining
from scorebed.tasks.base import Task
from scorebed.training.contrastive import pce_loss
from scorebed.training.fit import NonFiniteError, StepInfo, Stop, fit, gradient_of, start
from scorebed.training.policy import policy_loss, policy_optimiser

BY_SCORE, BY_PCE = "score", "pce"
BATCH, INNER = 64, 255  # trajectories of a step, and contrastive parameters of each
OUTER, EVALUATION_INNER, CHUNK = 512, 2047, 64  # of the estimates that decide
STEADY = 50.0  # steps after which the learning rate has begun to fall
EARLIER = (0.25, 0.5)  # shares of the time at which the policy is a candidate too
BLOCK = 10  # steps between two looks at the clock
AVERAGED = 0.98  # decay of the moving average
SURE = 2.0  # standard errors by which a policy must be better to be kept


class Outcome(NamedTuple):
    """A policy after refining, and what it gives by estimates on the same draws; `better` if beyond
    doubt.
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


def refine_policy(
    rest: Task,
    continuing: Continuing,
    score: Score | None,
    *,
    rate: float,
    seconds: float,
    clock: Callable[[], float] = time.monotonic,
    key: PRNGKeyArray,
) -> Outcome:
    """Train `continuing` on the remaining steps, by `score` if there is one. BATCH·(INNER + 1)·T
    NLE a step by PCE.

    The time of the estimates that follow is kept back. What cannot be interrupted is a compilation
    and a block of steps."""
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
    by = BY_PCE if score is None else BY_SCORE
    return Outcome(
        best.policy,
        by,
        steps,
        clock() - begun,
        _remaining(judged),
        _remaining(after),
        gain,
        gain_se,
    )


def estimate_remaining(rest: Task, continuing: Continuing, *, key: PRNGKeyArray) -> Remaining:
    """What the remaining steps give under a policy: sPCE and sNMC. OUTER·(EVALUATION_INNER + 1)·T
    NLE.
    """
    return _remaining(_values(rest, continuing, key))


def _train(
    rest: Task,
    continuing: Continuing,
    score: Score | None,
    *,
    rate: float,
    begun: float,
    end: float,
    clock: Callable[[], float],
    key: PRNGKeyArray,
) -> tuple[list[Continuing], int]:
    """Candidates, and the steps that were taken; none if the time is over already."""
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
        # The first block has a compilation in it, and says nothing about the next.
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


def _values(rest: Task, policy: Continuing, key: PRNGKeyArray) -> _Values:
    return _Values(*(np.asarray(each, np.float64) for each in _each(rest, policy, key)))


@eqx.filter_jit
def _each(rest: Task, policy: Policy, key: PRNGKeyArray) -> tuple[Float[Array, " N"], ...]:
    """sPCE and sNMC of trajectories that share no draws."""

    def one(key: PRNGKeyArray) -> tuple[Array, ...]:
        theta = rest.prior.sample(key=named(key, "theta"))
        run = rollout(rest, policy, theta, draw_noise(rest, policy, key=named(key, "noise")))
        own = log_likelihood(rest, theta, run.ys, run.xis)
        others = contrastive(rest, run, EVALUATION_INNER, key=named(key, "contrast"))
        lower = own - jnp.logaddexp(own, others) + math.log(EVALUATION_INNER + 1)
        return lower, own - others + math.log(EVALUATION_INNER), lower - price(rest, run.xis)

    return jax.lax.map(one, jr.split(key, OUTER), batch_size=CHUNK)


def _mean(values: np.ndarray) -> tuple[float, float]:
    """Mean and standard error."""
    return float(values.mean()), float(values.std(ddof=1) / math.sqrt(len(values)))


def _remaining(values: _Values) -> Remaining:
    """Without an upper bound where many trajectories are pressed against the ceiling (as in
    `bounds/contrastive.py`): what lies above it the particles cannot tell.
    """
    lower, se = _mean(values.lower)
    upper = float(values.upper.mean())
    pressed = np.mean(values.lower > math.log(EVALUATION_INNER + 1) - math.log(2))
    return Remaining(lower, upper if math.isfinite(upper) and pressed <= SATURATED else None, se)
