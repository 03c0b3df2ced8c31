"""The bounds that a run reports: contrastive ones, or a trained posterior's where the model has no
density.
"""

from collections.abc import Callable, Mapping
from typing import Any

from jaxtyping import PRNGKeyArray

from scorebed.bounds.contrastive import SATURATED, Bounds, bounds_nle, eig_bounds
from scorebed.bounds.posterior import posterior_bound, posterior_bound_nle
from scorebed.errors import InvalidValueError
from scorebed.keys import named
from scorebed.methods._densities import PosteriorTraining, density_optimiser, fresh_posterior
from scorebed.policies.base import Policy
from scorebed.runs.user_task import is_user_task
from scorebed.samplers.paper import paper_sampler
from scorebed.tasks import TASKS, make_task
from scorebed.tasks.base import Task
from scorebed.tasks.nuisance import has_nuisance, of_interest

CONTRASTIVE, POSTERIOR = "contrastive", "posterior"


def policy_bounds(
    task: Task,
    policy: Policy,
    posterior: PosteriorTraining | None,
    *,
    outer: int,
    inner: int,
    on_group: Callable[[int, int], None] = lambda *_: None,
    key: PRNGKeyArray,
) -> Bounds:
    """Bounds of the EIG of a policy; without a density they come from a posterior of these sizes,
    trained for it.
    """
    if task.has_density:
        return eig_bounds(task, policy, outer=outer, inner=inner, on_group=on_group, key=key)
    posterior = _required(task, posterior)
    fresh = fresh_posterior(posterior, task, paper_sampler(task), key=named(key, "posterior"))
    return posterior_bound(
        task,
        policy,
        fresh,
        outer=outer,
        steps=posterior.steps,
        batch=posterior.batch,
        decay=posterior.ema,
        optimiser=density_optimiser(posterior, posterior.steps),
        on_step=on_group,
        key=key,
    )


def policy_bounds_nle(
    task: Task, posterior: PosteriorTraining | None, outer: int, inner: int
) -> int:
    """What they cost."""
    if task.has_density:
        return bounds_nle(task, outer, inner)
    posterior = _required(task, posterior)
    return posterior_bound_nle(task, outer, posterior.steps, posterior.batch)


def _required(task: Task, posterior: PosteriorTraining | None) -> PosteriorTraining:
    if posterior is None:
        raise InvalidValueError(
            f"bounds of {type(task).__name__}, which has no density",
            got="no section [posterior]",
            expected="the sizes of a posterior to bound with",
            fix="choose a preset, or give them in the file.",
        )
    return posterior


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
    """One line about a lower bound that says little but log(M+1), and what to do; nothing if it
    says more.
    """
    share, ceiling = values.get("saturated"), values.get("ceiling")
    if (
        not isinstance(share, int | float)
        or not isinstance(ceiling, int | float)
        or not share > SATURATED
    ):
        return ""
    return (
        f"{share:.0%} of the trajectories of {whose} are pressed against the ceiling log(M+1) = "
        f"{ceiling:.2f} nats: "
        "the lower bound is loose; raise evaluation.inner"
        + (f", or: {command}" if command else ".")
    )


def tighter(record: Mapping[str, Any], path: str) -> str:
    """The command for bounds of a run that no such ceiling holds down; nothing where there are
    none.
    """
    if "interest" in record or record.get("bound") == POSTERIOR:
        return ""
    name = str(record.get("task"))
    if is_user_task(name):
        return f"scorebed evaluate {path} --task {name} --bound importance"
    return (
        f"scorebed evaluate {path} --bound "
        f"{make_task(name).tight_bound if name in TASKS else 'importance'}"
    )
