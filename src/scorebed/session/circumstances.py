"""What changed circumstances mean, in sentences: tighter limits, another number of steps than was
trained for, a refined policy.

And what may still be expected by the end. The bounds in a run's record are means over experiments
with the trained policy, as many measurements as it was trained for, and no limits; where that no
longer holds they are not shown. After `refine` there is something better. With KL_t known so far
and the remaining steps' EIG given h_t,

    E[KL_T | h_t] = KL_t + EIG(remaining steps | h_t)

exactly, so bounds of the latter, taken when the policy was refined, give bounds of what to expect
in this very experiment."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from scorebed.baselines.myopic import Myopic
from scorebed.errors import InvalidValueError
from scorebed.policies.attention import AttentionPolicy
from scorebed.policies.base import Policy
from scorebed.policies.constrained import Constrained, ConstrainedStochastic
from scorebed.policies.dad import DAD
from scorebed.policies.modes import Modes
from scorebed.policies.plan import Plan
from scorebed.policies.random import Predetermined
from scorebed.policies.static import Static
from scorebed.session.state import REFINED, Limits, Proposal, Refinement, Remaining, State
from scorebed.tasks.base import Task
from scorebed.tasks.nuisance import has_nuisance, of_interest, refuse_nuisance
from scorebed.tasks.spaces import Quantity


@dataclasses.dataclass(frozen=True)
class Expectation:
    """Bounds of the information that an experiment gives by its end, in nats: as the run measured
    them over many, or as they were found for this one when its policy was refined.
    """

    lower: float
    upper: float


@dataclasses.dataclass(frozen=True)
class Refined:
    """What `refine` found: the remaining information before and after, on the same draws, and
    whether the policy was kept.

    `gain` is the difference, less what the designs cost where they cost something; `before` is None
    where the policy before had no designs for the remaining steps."""

    kept: bool
    by: str
    steps: int
    seconds: float
    before: Remaining | None
    after: Remaining
    gain: float
    gain_se: float

    @property
    def sentence(self) -> str:
        """It in words."""
        how = f"{self.steps} policy steps by {in_words(self.by)} in {self.seconds:.0f} s"
        if not self.steps:
            return f"Not refined: {self.seconds:.0f} s went into compiling. Give it more time."
        if self.before is None:
            return (
                f"Refined ({how}): the remaining steps promise {self.after.lower:.3f} ± "
                f"{self.after.se:.3f} nats."
            )
        both = (
            f"{self.before.lower:.3f} nats before, {self.after.lower:.3f} after, "
            f"{self.gain:+.3f} ± {self.gain_se:.3f}"
        )
        if self.kept:
            return f"Refined ({how}): the remaining steps promise more information: {both}."
        return (
            f"Left as it was ({how}): no better policy was found for the remaining steps: {both}."
        )


def in_words(by: str) -> str:
    """What trained the policy."""
    return "the trained score" if by == "score" else "PCE"


def expectation(record: Mapping[str, Any], known: State, trained: int) -> Expectation | None:
    """What may be expected by the end; None where nothing is known that applies."""
    refinement = known.refinement
    if refinement is not None:
        since = known.records[refinement.step - 1 :]
        latest = bool(known.changes) and known.changes[-1].kind == REFINED
        if (
            not latest
            or refinement.outdated
            or refinement.after.upper is None
            or any(r.skipped for r in since)
        ):
            return None
        gained, after = refinement.information, refinement.after
        return Expectation(gained + after.lower, gained + refinement.after.upper)
    lower, upper = record.get("lower"), record.get("upper")
    if lower is None or upper is None or _departures(known, trained):
        return None
    return Expectation(lower, upper)


def scope_sentence(task: Task, record: Mapping[str, Any], known: State) -> str | None:
    """What the information of an experiment is about, where the run's bounds are about something
    else.
    """
    if not has_nuisance(task):
        return None
    names = [task.prior.quantities[i].name for i in of_interest(task)]
    told = ", ".join(names[:-1]) + (" and " if names[1:] else "") + names[-1]
    expected = None if known.refinement is not None else expectation(record, known, task.horizon)
    if expected is None:
        return (
            f"The information is about all parameters; the policy was trained to learn {told} "
            f"alone."
        )
    return (
        f"The information is about all parameters; the {expected.lower:.3g} to "
        f"{expected.upper:.3g} nats that the run expects by "
        f"the end are about {told} alone."
    )


def sentences(
    record: Mapping[str, Any],
    known: State,
    policy: Policy,
    quantities: Sequence[Quantity],
    trained: int,
) -> tuple[str, ...]:
    """What is different from the experiments for which `policy` was trained, and what that
    means.
    """
    found = []
    if known.limits is not None:
        found.append(
            f"Designs are limited to {limits_in_words(known.limits, quantities)}. Where the "
            f"policy wants others, the nearest "
            "is proposed."
        )
    refinement = known.refinement
    if known.horizon != trained and (refinement is None or refinement.horizon != known.horizon):
        found.append(horizon_sentence(policy, known.horizon, trained))
    if refinement is not None:
        found.append(refined_sentence(refinement))
    if record.get("lower") is not None and expectation(record, known, trained) is None:
        why = _departures(known, trained) or ["an earlier step was corrected"]
        found.append(f"The run's bounds do not say what to expect by the end: {', '.join(why)}.")
    return tuple(found)


def _departures(known: State, trained: int) -> list[str]:
    """In what an experiment differs from those that the run's bounds are about."""
    skipped = sum(record.skipped for record in known.records)
    return [
        reason
        for reason, holds in (
            ("designs are limited", known.limits is not None),
            (f"they are for {trained} steps", known.horizon != trained),
            (f"{skipped} step{'s were' if skipped > 1 else ' was'} skipped", skipped > 0),
            ("the policy was refined", known.refinement is not None),
        )
        if holds
    ]


def horizon_sentence(policy: Policy, horizon: int, trained: int) -> str:
    """What a policy that was trained for `trained` steps does in an experiment of `horizon`."""
    if isinstance(policy, Constrained | ConstrainedStochastic):
        policy = policy.inside
    if isinstance(policy, Myopic):
        return (
            f"This experiment has {horizon} steps. The myopic designer looks one step ahead "
            f"and needs no number of them."
        )
    if horizon < trained:
        if isinstance(policy, Static | Plan):
            return (
                f"This experiment ends after {horizon} steps; its designs were chosen together "
                f"with {trained - horizon} more, "
                "which are now left out. Refining chooses the remaining ones for this end."
            )
        if isinstance(policy, Predetermined):
            return (
                f"This experiment ends after {horizon} steps: of the {trained} designs that "
                f"were drawn the first are used."
            )
        return (
            f"This experiment ends after {horizon} steps, and the policy does not know it: it "
            f"was trained for {trained}, and may "
            "put off what it would have done later. Refining makes it plan for this end."
        )
    if isinstance(policy, Static | Plan):
        return (
            f"This experiment has {horizon} steps, and the policy no designs beyond its "
            f"{trained}: refine before then."
        )
    if isinstance(policy, Predetermined):
        return (
            f"This experiment has {horizon} steps: designs after step {trained} are drawn "
            f"anew, as the first were."
        )
    if isinstance(policy, DAD):
        how = (
            f"It adds up what it has seen, and after {trained} measurements the sum is larger "
            f"than any in training"
        )
    elif isinstance(policy, AttentionPolicy):
        how = (
            f"It averages over what it has seen, and after {trained} measurements over more "
            f"than it ever did in training"
        )
    else:
        how = f"Its memory runs on after the {trained} steps of its training"
    return (
        f"This experiment has {horizon} steps, and the policy was trained for {trained}. {how}: "
        f"designs there are extrapolation. "
        "Refining trains it for this end."
    )


def require_plannable(policy: Policy, horizon: int, trained: int) -> None:
    """Refuse a length that a policy has no memory or no room for."""
    if isinstance(policy, Constrained | ConstrainedStochastic) and horizon > trained:
        raise InvalidValueError(
            "the number of steps",
            got=horizon,
            expected=f"at most {trained}: the task ties the designs of so many steps together",
            fix="use a task with a longer horizon.",
        )
    if isinstance(policy, Myopic | Modes) and horizon > trained:
        raise InvalidValueError(
            "the number of steps",
            got=horizon,
            expected=f"at most {trained}: this policy keeps a history of that length",
            fix="use a task with a longer horizon.",
        )


def require_refinable(task: Task, policy: Policy) -> None:
    """Refuse what has no parameters to train, what is not about all parameters of the model, and
    what has no posterior.
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
    if isinstance(policy, Predetermined | Myopic):
        raise InvalidValueError(
            "refining a policy",
            got="designs that no training made",
            expected="a policy that was trained",
            fix="use the run of another method.",
        )


def refined_sentence(refinement: Refinement) -> str:
    """What refining has brought."""
    told = (
        f"Refined at step {refinement.step} by {in_words(refinement.by)}, {refinement.steps} "
        f"policy steps in "
        f"{refinement.seconds:.0f} s: the remaining steps then promised "
        f"{refinement.after.lower:.2f} nats"
    )
    if refinement.before is None:
        return f"{told}; the policy before had no designs for them."
    return f"{told}, and {refinement.before.lower:.2f} before."


def wanted_sentence(proposal: Proposal, quantities: Sequence[Quantity]) -> str | None:
    """What the policy would have had, where the limits do not allow it."""
    if proposal.wanted is None:
        return None
    each = zip(quantities, proposal.wanted, proposal.design, strict=True)
    changed = [(q, wanted, used) for q, wanted, used in each if wanted != used]
    wanted = ", ".join(f"{q.name} {value:.6g} {q.unit}".rstrip() for q, value, _ in changed)
    used = ", ".join(f"{value:.6g} {q.unit}".rstrip() for q, _, value in changed)
    return f"The policy wanted {wanted}; limited to {used}."


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
