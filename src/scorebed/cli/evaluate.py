"""`scorebed evaluate RUN`: bounds of a trained policy, of any size."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from scorebed.cli._output import Json, print_json, print_text
from scorebed.cli._task import TaskOption, user_task

if TYPE_CHECKING:
    from jaxtyping import PRNGKeyArray

    from scorebed.policies.base import Policy
    from scorebed.tasks.base import Task

# Kind of bound → trajectories and inner draws, if not given. A fitted proposal makes few draws
# worth many of the prior.
SIZES = {"contrastive": ("2048", "1000000"), "importance": ("256", "4096"), "smc": ("256", "64")}


def evaluate(
    run: Annotated[Path, Parameter(help="The folder of the run.")],
    /,
    *,
    bound: Annotated[
        str,
        Parameter(
            help="contrastive: draws of the prior; importance: draws of a posterior fitted to "
            "each trajectory; smc: particles "
            "annealed to it from both sides, for more than four sources."
        ),
    ] = "contrastive",
    outer: Annotated[
        str | None,
        Parameter(
            help="Number of trajectories, N. By default 2048 of contrastive bounds, else 256."
        ),
    ] = None,
    inner: Annotated[
        str | None,
        Parameter(
            help="Number of inner draws, M. By default 1000000, 4096 by importance; 64 particles "
            "by smc."
        ),
    ] = None,
    levels: Annotated[
        str | None,
        Parameter(help="Levels of --bound smc, 512 by default. More of them make it tighter."),
    ] = None,
    seed: Annotated[
        str, Parameter(help="Seed of the draws; those of training are never used again.")
    ] = "0",
    task: TaskOption = None,
    as_json: Json = False,
) -> None:
    """Bounds of the policy of a run, on fresh draws. Nothing in the run changes."""
    import functools
    import time

    import jax.random as jr

    from scorebed.bounds.contrastive import SATURATED, eig_bounds
    from scorebed.bounds.importance import importance_bounds
    from scorebed.bounds.smc import smc_bounds
    from scorebed.cli._numbers import whole
    from scorebed.cli._progress import Bars
    from scorebed.errors import UnknownNameError, require
    from scorebed.keys import named
    from scorebed.runs.evaluation import POSTERIOR, about, policy_bounds, tighter
    from scorebed.runs.load import load
    from scorebed.runs.training import BOUND_FIELDS

    if bound not in SIZES:
        raise UnknownNameError("bound", bound, SIZES)
    usual_outer, usual_inner = SIZES[bound]
    sizes = {
        "outer": whole("--outer", outer or usual_outer, 2),
        "inner": whole("--inner", inner or usual_inner, 1),
    }
    if levels is not None:
        require(
            bound == "smc",
            "--levels",
            got=f"--bound {bound}",
            expected="--bound smc, which alone has levels",
            fix="leave --levels out.",
        )
        sizes["levels"] = whole("--levels", levels, 1)
    key = named(jr.key(whole("--seed", seed, 0)), "evaluate")
    loaded, bars, begun = load(run, task=user_task(task)), Bars(), time.monotonic()
    kinds: dict[str, Any] = {
        "contrastive": eig_bounds,
        "importance": importance_bounds,
        "smc": smc_bounds,
    }
    if not loaded.task.has_density:
        require(
            bound == "contrastive",
            f"--bound {bound}",
            got="a model without a density",
            expected="its only bound",
            fix="leave --bound out.",
        )
        bound, kinds = (
            POSTERIOR,
            {POSTERIOR: functools.partial(policy_bounds, density=loaded.config.density)},
        )
    bars.begin("bounds", 0, 0)
    found = kinds[bound](
        loaded.task,
        loaded.policy,
        **sizes,
        on_group=lambda done, total: bars.update(done, "", total),
        key=key,
    )
    bars.close()
    cost = _cost(loaded.task, loaded.policy, sizes["outer"], key=key)
    if as_json:
        described = {
            name: loaded.record[name]
            for name in ("task", "method", "preset", "policies", "seed", "nle")
        }
        values = {name: getattr(found, name) for name in BOUND_FIELDS} | cost
        seconds = {"evaluate": round(time.monotonic() - begun, 2)}
        of = about(loaded.task) | {"bound": bound}
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
    else:
        print_text(str(found))
        if (
            found.saturated > SATURATED
            and bound == "contrastive"
            and tighter(loaded.record, str(run))
        ):
            print_text(f"tighter bounds: {tighter(loaded.record, str(run))}")
        if cost:
            print_text(
                f"designs cost {cost['cost']:.4g} ± {cost['cost_se']:.2g} on average, "
                f"{cost['cost_nats']:.3f} nats"
            )


def _cost(task: "Task", policy: "Policy", outer: int, *, key: "PRNGKeyArray") -> dict[str, float]:
    from scorebed.bounds.design_cost import expected_cost

    if task.cost is None:
        return {}
    found = expected_cost(task, policy, outer=outer, key=key)
    return {"cost": found.mean, "cost_se": found.se, "cost_nats": found.nats}
