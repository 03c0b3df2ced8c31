"""`scorebed evaluate RUN`: bounds of a trained policy, of any size."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from scorebed.cli._output import Json, print_json, print_text


def evaluate(
    run: Annotated[Path, Parameter(help="The folder of the run.")],
    /,
    *,
    outer: Annotated[str, Parameter(help="Number of trajectories, N.")] = "2048",
    inner: Annotated[str, Parameter(help="Number of contrastive parameters, M.")] = "1000000",
    seed: Annotated[str, Parameter(help="Seed of the draws; those of training are never used again.")] = "0",
    as_json: Json = False,
) -> None:
    """Bounds of the policy of a run, on fresh draws. Nothing in the run changes."""
    import time

    import jax.random as jr

    from scorebed.bounds import eig_bounds
    from scorebed.cli._numbers import whole
    from scorebed.cli._progress import Bars
    from scorebed.keys import named
    from scorebed.runs.load import load
    from scorebed.runs.training import BOUND_FIELDS

    sizes = {"outer": whole("--outer", outer, 2), "inner": whole("--inner", inner, 1)}
    key = named(jr.key(whole("--seed", seed, 0)), "evaluate")
    loaded, bars, begun = load(run), Bars(), time.monotonic()
    bars.begin("bounds", 0, 0)
    found = eig_bounds(
        loaded.task, loaded.policy, **sizes, on_group=lambda done, total: bars.update(done, "", total), key=key
    )
    bars.close()
    if as_json:
        described = {name: loaded.record[name] for name in ("task", "method", "preset", "policies", "seed", "nle")}
        values = {name: getattr(found, name) for name in BOUND_FIELDS}
        seconds = {"evaluate": round(time.monotonic() - begun, 2)}
        print_json({"run": str(run), **described, **values, "nle_evaluation": found.nle, "seconds": seconds})
    else:
        print_text(str(found))
