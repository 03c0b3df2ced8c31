"""Sentences about an experiment: what is different from training and what that means, what was
limited, what refining has found.
"""

import math
from collections.abc import Sequence

from scorebed.policies.base import Policy
from scorebed.runs.record import BoundsRecord
from scorebed.session.events import (
    ExperimentState,
    Limits,
    ProposedDesign,
    RefinedBy,
    Refinement,
    Remaining,
    Vector,
)
from scorebed.session.posterior import IMPROBABLE
from scorebed.session.what_if import departures, expectation
from scorebed.tasks.base import Task
from scorebed.tasks.nuisance import has_nuisance, of_interest
from scorebed.tasks.spaces import Quantity


def circumstances(
    bounds: BoundsRecord, state: ExperimentState, policy: Policy, task: Task
) -> tuple[str, ...]:
    """What is different from the experiments that `policy` was trained on, and what that means."""
    found = []
    if state.limits is not None:
        found.append(
            f"Designs are limited to {limits_in_words(state.limits, task.designs.quantities)}. "
            "Where the policy wants others, the nearest is proposed."
        )
    refinement = state.refinement
    refined = refinement is not None and refinement.horizon == state.horizon
    if state.horizon != task.horizon and not refined:
        found.append(horizon_sentence(policy, state.horizon, task.horizon))
    if refinement is not None:
        found.append(_refinement_sentence(refinement))
    if math.isfinite(bounds.lower) and expectation(bounds, state, task.horizon) is None:
        why = departures(state, task.horizon) or ["an earlier step was corrected"]
        found.append(f"The run's bounds do not say what to expect by the end: {', '.join(why)}.")
    return tuple(found)


def horizon_sentence(policy: Policy, horizon: int, trained: int) -> str:
    """What a policy that was trained for `trained` steps does in an experiment of `horizon`."""
    words = policy.short_of_training if horizon < trained else policy.beyond_training
    usual = "the policy was trained for" if policy.trainable else "the run is about"
    return f"This experiment has {horizon} steps; {usual} {trained}. {words}".rstrip()


def scope_sentence(task: Task, bounds: BoundsRecord, state: ExperimentState) -> str | None:
    """What the information of an experiment is about, where the run's bounds are about something
    else.
    """
    if not has_nuisance(task):
        return None
    names = [task.prior.quantities[i].name for i in of_interest(task)]
    listed = ", ".join(names[:-1]) + (" and " if names[1:] else "") + names[-1]
    expected = None if state.refinement is not None else expectation(bounds, state, task.horizon)
    if expected is None:
        return (
            "The information is about all parameters; the policy was trained to learn "
            f"{listed} alone."
        )
    return (
        f"The information is about all parameters; the {expected.lower:.3g} to "
        f"{expected.upper:.3g} nats that the run expects by the end are about {listed} alone."
    )


def refine_sentence(
    *,
    kept: bool,
    by: str,
    steps: int,
    seconds: float,
    before: Remaining | None,
    after: Remaining,
    gain: float,
    gain_se: float,
) -> str:
    """What refining has found."""
    if not steps:
        return f"Not refined: {seconds:.0f} s went into compiling. Give it more time."
    how = f"{steps} policy steps by {_in_words(by)} in {seconds:.0f} s"
    if before is None:
        return (
            f"Refined ({how}): the remaining steps promise {after.lower:.3f} ± {after.se:.3f} nats."
        )
    both = f"{before.lower:.3f} nats before, {after.lower:.3f} after, {gain:+.3f} ± {gain_se:.3f}"
    if kept:
        return f"Refined ({how}): the remaining steps promise more information: {both}."
    return f"Left as it was ({how}): no better policy was found for the remaining steps: {both}."


def wanted_sentence(proposal: ProposedDesign, quantities: Sequence[Quantity]) -> str | None:
    """What the policy asked for, where the limits do not allow it."""
    if proposal.wanted is None:
        return None
    each = zip(quantities, proposal.wanted, proposal.design, strict=True)
    changed = [(q, wanted, used) for q, wanted, used in each if wanted != used]
    wanted = ", ".join(f"{q.name} {q.show(value)} {q.unit}".rstrip() for q, value, _ in changed)
    used = ", ".join(f"{q.show(value)} {q.unit}".rstrip() for q, _, value in changed)
    return f"The policy wanted {wanted}; limited to {used}."


def improbable(task: Task, y: Vector) -> str:
    """What is said of an outcome that nobody would expect."""
    each = zip(task.outcomes, y, strict=True)
    named = ", ".join(f"{q.name} {q.show(value)} {q.unit}".rstrip() for q, value in each)
    return (
        f"{named} is improbable: by what is known, less than one outcome in "
        f"{1 / IMPROBABLE:,.0f} is as far off."
    )


def limits_in_words(limits: Limits, quantities: Sequence[Quantity]) -> str:
    """covariate 0 to 1.5, depth at most 3 m."""

    def one(quantity: Quantity, low: float | None, high: float | None) -> str:
        if low is None or high is None:
            span = f"at least {low:g}" if low is not None else f"at most {high:g}"
        else:
            span = f"{low:g}" if low == high else f"{low:g} to {high:g}"
        return f"{quantity.name} {span} {quantity.unit}".rstrip()

    each = zip(quantities, limits.low, limits.high, strict=True)
    return ", ".join(one(q, low, high) for q, low, high in each if (low, high) != (None, None))


def _refinement_sentence(refinement: Refinement) -> str:
    found = (
        f"Refined at step {refinement.step} by {_in_words(refinement.by)}, {refinement.steps} "
        f"policy steps in {refinement.seconds:.0f} s: the remaining steps then promised "
        f"{refinement.after.lower:.2f} nats"
    )
    if refinement.before is None:
        return f"{found}; the former policy had no designs for them."
    return f"{found}, and {refinement.before.lower:.2f} before."


def _in_words(by: str) -> str:
    """What trained the policy."""
    return "the trained score" if by == RefinedBy.SCORE else "PCE"
