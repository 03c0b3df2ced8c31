"""`scorebed evaluate RUN`: bounds of a trained policy, of any size."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from scorebed.cli._many import HERE, ManyOptions
from scorebed.cli._numbers import Count, FromTwo, FromZero
from scorebed.cli._output import Json, print_json, print_text
from scorebed.cli._parts import RunParts

if TYPE_CHECKING:
    from jaxtyping import PRNGKeyArray

    from scorebed.bounds.base import Bound, Bounds
    from scorebed.cli._progress import Bars
    from scorebed.policies.base import Policy
    from scorebed.runs.load import Run
    from scorebed.runs.shared_bounds import AskedBound
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
    long: Annotated[
        bool, Parameter(negative="", help="Begin even if it takes more than a day.")
    ] = False,
    parts: RunParts = RunParts(),  # noqa: B008 (cyclopts reads the default, nothing changes it)
    many: ManyOptions = HERE,
    as_json: Json = False,
) -> None:
    """Bounds of the policy of a run, on fresh draws. Nothing in the run changes."""
    import time

    from scorebed.cli._progress import Bars
    from scorebed.runs.evaluation import about
    from scorebed.runs.load import load
    from scorebed.runs.record import BOUND_FIELDS, BoundsRecord
    from scorebed.runs.shared_bounds import AskedBound, shared_bounds

    asked = AskedBound(bound, levels, outer, inner, seed)
    asked.find()
    loaded, bars, begun = load(run, **parts.read()._asdict()), Bars(), time.monotonic()
    chosen = asked.for_run(loaded)
    if many.slurm:
        many.write_script(
            run / "evaluate.sh",
            _command(run, asked, parts),
            as_json=as_json,
            out=run / "evaluate.json",
        )
        return
    if not long:
        _require_day(chosen, loaded, asked, workers=many.workers)
    bars.begin("bounds", 0, 0)

    def on_group(done: int, total: int) -> None:
        bars.update(done, "", total)

    with many.pool() as pool:
        if pool is None:
            how: dict[str, Any] = {**asked.sizes, "on_group": on_group, "key": asked.key}
            found = chosen(loaded.task, loaded.policy, **how)
        else:
            found = shared_bounds(loaded, asked, pool, parts.names(), on_group=on_group)
    tight = _tight(loaded.task, loaded.policy, found, chosen, bars, key=asked.key)
    bars.close()
    cost = _cost(loaded.task, loaded.policy, found.outer, key=asked.key)
    if as_json:
        described = {
            name: getattr(loaded.record, name)
            for name in ("task", "method", "preset", "policies", "seed", "nle")
        }
        values = {name: getattr(found, name) for name in BOUND_FIELDS} | cost
        if tight is not None:
            kind = str(loaded.task.tight_bound)
            leading = BoundsRecord.of(found).with_tight(tight, kind).values().items()
            values |= {k: v for k, v in leading if k.startswith("tight_")}
        seconds = {"evaluate": round(time.monotonic() - begun, 2)}
        of = about(loaded.task) | {"bound": chosen.name}
        print_json(
            {
                "run": str(run),
                **described,
                **of,
                **values,
                "nle_evaluation": found.nle + (0 if tight is None else tight.nle),
                "seconds": seconds,
            }
        )
        return
    if tight is not None:
        print_text(f"{tight} (by {loaded.task.tight_bound}, N = {tight.outer:,})")
        print_text(f"contrastive bounds are loose here: {found}")
    else:
        print_text(str(found))
    if cost:
        print_text(
            f"designs cost {cost['cost']:.4g} ± {cost['cost_se']:.2g} on average, "
            f"{cost['cost_nats']:.3f} nats"
        )


def _require_day(chosen: "Bound", run: "Run", asked: "AskedBound", *, workers: int) -> None:
    """Refuse sizes that take more than a day, shared out among so many workers."""
    from scorebed.runs.estimate import bound_seconds, require_day

    usual = (getattr(chosen, "outer", 0), getattr(chosen, "inner", 0))
    sizes = (asked.outer or usual[0], asked.inner or usual[1])
    seconds = bound_seconds(chosen, run.task, run.policy, *sizes) / workers
    names = "--outer and --inner"
    require_day(names, seconds, fix="take smaller ones, or more --workers")


def _tight(
    task: "Task",
    policy: "Policy",
    found: "Bounds",
    chosen: "Bound",
    bars: "Bars",
    *,
    key: "PRNGKeyArray",
) -> "Bounds | None":
    """Tight bounds to lead with, where contrastive ones are loose; else None."""
    from scorebed.bounds import tight_bounds
    from scorebed.bounds.contrastive import Contrastive
    from scorebed.runs.evaluation import loose
    from scorebed.runs.record import BoundsRecord

    better = task.tight_bound not in (None, Contrastive.name)
    if chosen.name != Contrastive.name or not better or not loose(BoundsRecord.of(found)):
        return None
    bars.begin("tight bounds", 0, 0)
    return tight_bounds(
        task, policy, on_group=lambda done, total: bars.update(done, "", total), key=key
    )


def _command(run: Path, asked: "AskedBound", parts: RunParts) -> list[str]:
    """The same command, for a script."""
    given = {f"--{name}": value for name, value in asked._asdict().items() if value is not None}
    words = [word for name, value in given.items() for word in (name, str(value))]
    return ["evaluate", str(run), *words, *parts.words(), "--json"]


def _cost(task: "Task", policy: "Policy", outer: int, *, key: "PRNGKeyArray") -> dict[str, float]:
    from scorebed.bounds.design_cost import expected_cost

    if task.cost is None:
        return {}
    found = expected_cost(task, policy, outer=outer, key=key)
    return {"cost": found.mean, "cost_se": found.se, "cost_nats": found.nats}
