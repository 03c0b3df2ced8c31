"""Several designs at once, for instruments that measure side by side.

The policy asks for one design at a time, and sees an outcome for each. For a design beside others
that are still being measured, their outcomes are imputed from the posterior predictive,

    θ* ~ p(θ | h_t),   y_j ~ p(y | θ*, ξ_j)   for the pending ξ_j,

one θ* for all of them. What the policy then sees is a draw from p(y_{1:j} | ξ_{1:j}), as the
histories of its training were; outcomes at their mean would be none that it has met. Nothing
imputed is stored, nor does the posterior know of it. The draws follow from the experiment's seed
and the measured steps, so that the same designs come after a crash.

When wrong: with as many at once as there are steps, designs are as good as those of a policy that
learns nothing on its way."""

from collections.abc import Callable
from typing import Any, TypeAlias

import equinox as eqx
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from scorebed.errors import require
from scorebed.keys import named
from scorebed.session.events import ExperimentState, ProposedDesign, Vector
from scorebed.session.journal import observed
from scorebed.session.measurements import array
from scorebed.session.posterior import Posterior
from scorebed.session.validation import Submission
from scorebed.tasks.base import Task

MOST_AT_ONCE = 64

Impute: TypeAlias = Callable[[ProposedDesign], Vector]


def check_count(task: Task, count: Any) -> int:
    """How many designs are asked for at once; more than one only where steps are independent."""
    whole = isinstance(count, int) and not isinstance(count, bool)
    require(
        whole and 1 <= count <= MOST_AT_ONCE,
        "how many designs are asked for at once",
        got=repr(count)[:40],
        expected=f"a whole number from 1 to {MOST_AT_ONCE}",
        fix="as many as there are instruments.",
    )
    reasons = {
        "steps that depend on those before": not task.exchangeable_steps,
        "designs that are tied to each other": task.feasible is not None,
        "a model without a density, and so no posterior": not task.has_density,
    }
    why = next((reason for reason, holds in reasons.items() if holds), None)
    require(
        count == 1 or why is None,
        "several designs at once",
        got=str(why),
        expected="independent steps, of which outcomes to come can be imputed",
        fix="measure one design after another.",
    )
    return int(count)


def imputed(state: ExperimentState, impute: Impute) -> ExperimentState:
    """The state once everything that is pending has given what `impute` says."""
    for proposal in state.pending:
        state = observed(state, Submission(impute(proposal), proposal=proposal.id))
    return state


def predictive_draws(task: Task, posterior: Posterior, *, seed: int) -> Impute:
    """Outcomes of one θ* of the posterior, one draw for each proposal."""
    key = named(jr.key(seed), "imputed", posterior.measured)
    chosen = int(jr.randint(named(key, "theta"), (), 0, len(posterior.theta)))
    theta = array(posterior.theta[chosen])

    def draw(proposal: ProposedDesign) -> Vector:
        y = _outcome(task, theta, array(proposal.design), named(key, "noise", proposal.id))
        return tuple(np.asarray(y, np.float64).tolist())

    return draw


@eqx.filter_jit
def _outcome(
    task: Task, theta: Float[Array, " k"], xi: Float[Array, " dx"], key: PRNGKeyArray
) -> Float[Array, " dy"]:
    return task.outcome(theta, None, xi, jr.normal(key, (task.noise_dim,), xi.dtype))
