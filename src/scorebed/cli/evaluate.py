"""`scorebed evaluate RUN`: bounds of a trained policy, of any size."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from scorebed.cli._numbers import Count, FromTwo, FromZero
from scorebed.cli._output import Json, print_json, print_text
from scorebed.cli._parts import RunParts

if TYPE_CHECKING:
    from jaxtyping import PRNGKeyArray

    from scorebed.bounds.base import Bound
    from scorebed.policies.base import Policy
    from scorebed.runs.load import Run
    from scorebed.tasks.base import Task


def evaluate(
    run: Annotated[Path, Parameter(help="The folder of the run.")],
    /,
    *,
    bound: Annotated[
        str,
        Parameter(
            help="contrastive: draws of the prior; importance: draws of a posterior fitted to "
            "each trajectory; smc: particles annealed to it from both sides, for more than four "
            "exchangeable sources; tight: whichever of these is tight for the task; or "
            "FILE.py:NAME."
        ),
    ] = "contrastive",
    outer: Annotated[
        FromTwo | None,
        Parameter(help="Number of trajectories, N. By default 2048 for contrastive, else 256."),
    ] = None,
    inner: Annotated[
        Count | None,
        Parameter(
            help="Number of inner draws, M. By default 1000000, 4096 by importance; 64 particles "
            "by smc."
        ),
    ] = None,
    levels: Annotated[
        Count | None,
        Parameter(help="Levels of --bound smc, 512 by default. More of them make it tighter."),
    ] = None,
    seed: Annotated[
        FromZero, Parameter(help="Seed of the draws; those of training are never used again.")
    ] = 0,
    parts: RunParts = RunParts(),  # noqa: B008 (cyclopts reads the default, nothing changes it)
    as_json: Json = False,
) -> None:
    """Bounds of the policy of a run, on fresh draws. Nothing in the run changes."""
    import time

    import jax.random as jr

    from scorebed.bounds.base import SATURATED
    from scorebed.bounds.contrastive import Contrastive
    from scorebed.cli._progress import Bars
    from scorebed.keys import named
    from scorebed.runs.evaluation import about, tighter
    from scorebed.runs.load import load
    from scorebed.runs.record import BOUND_FIELDS

    asked = _named_bound(bound)
    key = named(jr.key(seed), "evaluate")
    loaded, bars, begun = load(run, **parts.read()._asdict()), Bars(), time.monotonic()
    chosen = _with_levels(_for_run(asked, bound, loaded), levels)
    bars.begin("bounds", 0, 0)
    found = chosen(
        loaded.task,
        loaded.policy,
        outer=outer,
        inner=inner,
        on_group=lambda done, total: bars.update(done, "", total),
        key=key,
    )
    bars.close()
    cost = _cost(loaded.task, loaded.policy, found.outer, key=key)
    if as_json:
        described = {
            name: getattr(loaded.record, name)
            for name in ("task", "method", "preset", "policies", "seed", "nle")
        }
        values = {name: getattr(found, name) for name in BOUND_FIELDS} | cost
        seconds = {"evaluate": round(time.monotonic() - begun, 2)}
        of = about(loaded.task) | {"bound": chosen.name}
        print_json(
            {
                "run": str(run),
                **described,
                **of,
                **values,
                "nle_evaluation": found.nle,
                "seconds": seconds,
            }
        )
        return
    print_text(str(found))
    loose = found.saturated > SATURATED and chosen.name == Contrastive.name
    if loose and (command := tighter(loaded.record.values(), str(run))):
        print_text(f"tighter bounds: {command}")
    if cost:
        print_text(
            f"designs cost {cost['cost']:.4g} ± {cost['cost_se']:.2g} on average, "
            f"{cost['cost_nats']:.3f} nats"
        )


def _named_bound(name: str) -> "Bound":
    """The bound that --bound names, built in or from a file."""
    from scorebed.bounds import make_bound
    from scorebed.cli._parts import part
    from scorebed.runs.user_parts import BOUND

    part(BOUND, name)
    return make_bound(name)


def _for_run(asked: "Bound", name: str, run: "Run") -> "Bound":
    """The bound for the task of a run; without a density there is one only, with the sizes that the
    run is configured for.
    """
    from scorebed.bounds.contrastive import Contrastive
    from scorebed.bounds.posterior import PosteriorBound
    from scorebed.errors import require
    from scorebed.runs.evaluation import reported_bound

    if run.task.has_density:
        return asked.for_task(run.task)
    require(
        asked.name in (Contrastive.name, PosteriorBound.name),
        f"--bound {name}",
        got="a model without a density",
        expected="its only bound",
        fix="leave --bound out.",
    )
    return reported_bound(run.config, run.task)


def _with_levels(bound: "Bound", levels: int | None) -> "Bound":
    """The bound with as many levels, if any are asked for."""
    import dataclasses

    from scorebed.errors import require

    if levels is None:
        return bound
    require(
        "levels" in {field.name for field in dataclasses.fields(bound)},
        "--levels",
        got=f"--bound {bound.name}",
        expected="--bound smc, which has levels",
        fix="leave --levels out.",
    )
    changed: dict[str, Any] = {"levels": levels}
    return dataclasses.replace(bound, **changed)


def _cost(task: "Task", policy: "Policy", outer: int, *, key: "PRNGKeyArray") -> dict[str, float]:
    from scorebed.bounds.design_cost import expected_cost

    if task.cost is None:
        return {}
    found = expected_cost(task, policy, outer=outer, key=key)
    return {"cost": found.mean, "cost_se": found.se, "cost_nats": found.nats}
