"""`scorebed evaluate RUN`: bounds of a trained policy, of any size."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from scorebed.cli._output import Json, print_json, print_text
from scorebed.cli._task import TaskOption, own_task

# Kind of bound → trajectories and inner draws, if not given. A fitted proposal makes few draws worth many of the prior.
SIZES = {"contrastive": ("2048", "1000000"), "importance": ("256", "4096")}


def evaluate(
    run: Annotated[Path, Parameter(help="The folder of the run.")],
    /,
    *,
    bound: Annotated[
        str,
        Parameter(help="contrastive: draws of the prior; importance: draws of a posterior fitted to each trajectory."),
    ] = "contrastive",
    outer: Annotated[
        str | None, Parameter(help="Number of trajectories, N. By default 2048, or 256 of importance bounds.")
    ] = None,
    inner: Annotated[
        str | None, Parameter(help="Number of inner draws, M. By default 1000000, or 4096 of importance bounds.")
    ] = None,
    seed: Annotated[str, Parameter(help="Seed of the draws; those of training are never used again.")] = "0",
    task: TaskOption = None,
    as_json: Json = False,
) -> None:
    """Bounds of the policy of a run, on fresh draws. Nothing in the run changes."""
    import time

    import jax.random as jr

    from scorebed.bounds import eig_bounds
    from scorebed.bounds_importance import importance_bounds
    from scorebed.cli._numbers import whole
    from scorebed.cli._progress import Bars
    from scorebed.errors import UnknownNameError
    from scorebed.keys import named
    from scorebed.runs.load import load
    from scorebed.runs.training import BOUND_FIELDS

    if bound not in SIZES:
        raise UnknownNameError("bound", bound, SIZES)
    usual_outer, usual_inner = SIZES[bound]
    sizes = {"outer": whole("--outer", outer or usual_outer, 2), "inner": whole("--inner", inner or usual_inner, 1)}
    key = named(jr.key(whole("--seed", seed, 0)), "evaluate")
    bounds_of = {"contrastive": eig_bounds, "importance": importance_bounds}[bound]
    loaded, bars, begun = load(run, task=own_task(task)), Bars(), time.monotonic()
    bars.begin("bounds", 0, 0)
    found = bounds_of(
        loaded.task, loaded.policy, **sizes, on_group=lambda done, total: bars.update(done, "", total), key=key
    )
    bars.close()
    if as_json:
        described = {name: loaded.record[name] for name in ("task", "method", "preset", "policies", "seed", "nle")}
        values = {name: getattr(found, name) for name in BOUND_FIELDS}
        seconds = {"evaluate": round(time.monotonic() - begun, 2)}
        print_json(
            {"run": str(run), **described, "bound": bound, **values, "nle_evaluation": found.nle, "seconds": seconds}
        )
    else:
        print_text(str(found))
