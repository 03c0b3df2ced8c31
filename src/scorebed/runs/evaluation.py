"""The bounds that a run reports: contrastive ones, or a trained posterior's where the model has no
density.
"""

import math
from collections.abc import Mapping
from typing import Any

from scorebed.bounds import Tight, usual_bound
from scorebed.bounds.base import Bound
from scorebed.bounds.contrastive import SATURATED, Contrastive
from scorebed.bounds.posterior import PosteriorBound
from scorebed.errors import InvalidValueError
from scorebed.methods._densities import density_optimiser, fresh_posterior
from scorebed.policies.base import Policy
from scorebed.runs.config import RunConfig
from scorebed.runs.record import BoundsRecord
from scorebed.runs.user_parts import is_from_file
from scorebed.samplers.paper import paper_sampler
from scorebed.tasks.base import Task
from scorebed.tasks.nuisance import has_nuisance, of_interest

CLEAR = 2.0  # standard errors of a difference that is told
CONTRASTIVE, POSTERIOR = Contrastive.name, PosteriorBound.name
WIDE = 0.1  # nats between a lower and an upper bound that are loose
LEADING = ("lower", "lower_se", "upper", "upper_se", "outer")


def reported_bound(config: RunConfig, task: Task) -> Bound:
    """The bound that a run reports: contrastive; without a density by a posterior, of the sizes in
    its section.
    """
    sizes = config.posterior
    if task.has_density:
        return usual_bound(task)
    if sizes is None:
        raise InvalidValueError(
            f"bounds of {type(task).__name__}, which has no density",
            got="no section [posterior]",
            expected="the sizes of a posterior to bound with",
            fix="choose a preset, or give them in the file.",
        )
    posterior = PosteriorBound(
        steps=sizes.steps,
        batch=sizes.batch,
        decay=sizes.ema,
        make=lambda task, *, key: fresh_posterior(sizes, task, paper_sampler(task), key=key),
        optimiser=lambda steps: density_optimiser(sizes, steps),
    )
    return usual_bound(task, posterior=posterior)


def loose(bounds: BoundsRecord) -> bool:
    """Whether reported bounds say too little: many trajectories are saturated, or the two are far
    apart.
    """
    return bounds.saturated > SATURATED or bounds.upper - bounds.lower > WIDE


def headline(values: Mapping[str, Any]) -> dict[str, Any]:
    """The bounds of a record that lead: the tight ones where there are any. With the keys `lower`,
    `upper`, their errors, `outer` and `bound`.
    """
    if values.get("tight_lower") is None:
        kind = {"bound": values["bound"]} if "bound" in values else {}
        return kind | {name: values.get(name) for name in LEADING}
    return {name: values.get(f"tight_{name}") for name in (*LEADING, "bound")}


def bound_nle(bound: Bound, task: Task, policy: Policy, outer: int, inner: int) -> int:
    """Likelihood evaluations of a bound whose cost is known before, those for the policy's designs
    among them.
    """
    cost = bound.nle_with(policy.design_nle, task, outer, inner)
    assert cost is not None, f"{bound.name} is not a bound that a run reports"
    return cost


def about(task: Task) -> dict[str, Any]:
    """What a record says of its bounds: their kind, and the parameters they are about if those are
    not all.
    """
    names = [task.prior.quantities[i].name for i in of_interest(task)]
    return {"bound": CONTRASTIVE if task.has_density else POSTERIOR} | (
        {"interest": names} if has_nuisance(task) else {}
    )


def in_words(record: Mapping[str, Any]) -> str:
    """What the bounds of a record are."""
    names = record.get("interest")
    which = (
        f" They are about {', '.join(map(str, names))} alone: the other parameters are a nuisance."
        if names
        else ""
    )
    if record.get("bound") == POSTERIOR:
        return (
            "Barber and Agakov's below, from N simulated experiments and a posterior trained for "
            "each kind of designs; "
            f"the model has no density, so that there is no upper bound.{which}"
        )
    return (
        f"sPCE below and sNMC above, from N simulated experiments and M contrastive "
        f"parameters.{which}"
    )


def tight_in_words(record: Mapping[str, Any]) -> str:
    """What the tight bounds of a record are, and the contrastive ones that they lead; nothing where
    there are none.
    """
    if record.get("tight_lower") is None:
        return ""
    sides = (f"{record[s]:.2f}" if record.get(s) is not None else "∞" for s in ("lower", "upper"))
    return (
        f"Tight bounds by {record['tight_bound']}, all designs in the same experiments. "
        f"Contrastive bounds are loose here: {' to '.join(sides)} nats of the policy with "
        f"N = {record['outer']:,} and M = {record['inner']:,}."
    )


def ceiling_sentence(values: Mapping[str, Any], whose: str, command: str = "") -> str:
    """One line about a saturated lower bound, and what to do; nothing about any other."""
    share, ceiling = values.get("saturated"), values.get("ceiling")
    if (
        not isinstance(share, int | float)
        or not isinstance(ceiling, int | float)
        or not share > SATURATED
    ):
        return ""
    return (
        f"{share:.0%} of the trajectories of {whose} are saturated: the lower bound cannot exceed "
        f"log(M+1) = {ceiling:.2f} nats; raise evaluation.inner"
        + (f", or: {command}" if command else ".")
    )


def advantage(values: Mapping[str, Any]) -> str:
    """By how much the policy is ahead of a reference on common draws, in nats; nothing where it was
    not compared.
    """
    difference, error = values.get("advantage"), values.get("advantage_se")
    if not isinstance(difference, int | float):
        return ""
    return f"{difference:+.3f}" + (
        f" ± {error:.3f}" if isinstance(error, int | float) and math.isfinite(error) else ""
    )


def undecided(record: Mapping[str, Any]) -> list[str]:
    """A sentence about every reference that the policy is not clearly ahead of: by less than two
    standard errors on common draws; by tight bounds where there are any.
    """
    untrained = record.get("trained") is False
    fix = "name a --policy that is trained" if untrained else "train longer"
    sentences = []
    references, tight = record.get("references") or {}, record.get("paired") or {}
    for name, values in {name: tight.get(name, references[name]) for name in references}.items():
        difference, error = values.get("advantage"), values.get("advantage_se")
        if not all(isinstance(x, int | float) and math.isfinite(x) for x in (difference, error)):
            continue
        if abs(difference) < CLEAR * error:
            sentences.append(
                f"Policy and {name} designs cannot be told apart: {advantage(values)} nats on "
                f"common draws; raise evaluation.outer or --minutes."
            )
        elif difference < 0:
            sentences.append(
                f"The policy is behind {name} designs, by {-difference:.3f} ± {error:.3f} nats on "
                f"common draws: {fix}, or use those designs."
            )
    return sentences


def tighter(record: Mapping[str, Any], path: str) -> str:
    """The command for bounds of a run that no such ceiling holds down; nothing where there are
    none.
    """
    if "interest" in record or record.get("bound") == POSTERIOR:
        return ""
    name = str(record.get("task"))
    task = f" --task {name}" if is_from_file(name) else ""
    return f"scorebed evaluate {path}{task} --bound {Tight.name}"
