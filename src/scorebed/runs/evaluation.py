"""The bounds that a run reports: contrastive ones, or a trained posterior's where the model has no
density.
"""

from collections.abc import Mapping
from typing import Any

from scorebed.bounds import Tight, usual_bound
from scorebed.bounds.base import Bound
from scorebed.bounds.contrastive import SATURATED, Contrastive
from scorebed.bounds.posterior import PosteriorBound
from scorebed.errors import InvalidValueError
from scorebed.methods._densities import density_optimiser, fresh_posterior
from scorebed.runs.config import RunConfig
from scorebed.runs.user_parts import is_from_file
from scorebed.samplers.paper import paper_sampler
from scorebed.tasks.base import Task
from scorebed.tasks.nuisance import has_nuisance, of_interest

CONTRASTIVE, POSTERIOR = Contrastive.name, PosteriorBound.name


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


def bound_nle(bound: Bound, task: Task, outer: int, inner: int) -> int:
    """Likelihood evaluations of a bound whose cost is known before."""
    cost = bound.nle(task, outer, inner)
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


def tighter(record: Mapping[str, Any], path: str) -> str:
    """The command for bounds of a run that no such ceiling holds down; nothing where there are
    none.
    """
    if "interest" in record or record.get("bound") == POSTERIOR:
        return ""
    name = str(record.get("task"))
    task = f" --task {name}" if is_from_file(name) else ""
    return f"scorebed evaluate {path}{task} --bound {Tight.name}"
