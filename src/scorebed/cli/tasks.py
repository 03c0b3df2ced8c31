"""`scorebed tasks`: the built-in tasks and their dimensions."""

from typing import TYPE_CHECKING, Any

from scorebed.cli._output import LEFT, RIGHT, TEXT, Json, print_json, print_table

if TYPE_CHECKING:
    from scorebed.tasks.base import Task
    from scorebed.tasks.spaces import Space


def tasks(*, as_json: Json = False) -> None:
    """The built-in tasks and their dimensions."""
    from scorebed.tasks import TASKS, make_task

    rows = [_document(name, make_task(name)) for name in TASKS]
    if as_json:
        print_json({"tasks": rows})
        return
    print_table(
        dict.fromkeys(("task", "structure"), LEFT)
        | dict.fromkeys(("T", "dim θ", "dim ξ", "dim y"), RIGHT)
        | {"designs ξ": TEXT},
        [_cells(row) for row in rows],
    )


def _document(name: str, task: "Task") -> dict[str, Any]:
    return {
        "name": name,
        "structure": task.structure,
        "horizon": task.horizon,
        "parameter_dim": task.prior.dim,
        "design_dim": task.designs.dim,
        "outcome_dim": task.outcome_dim,
        "parameters": [{"name": q.name, "unit": q.unit} for q in task.prior.quantities],
        "designs": _designs(task.designs),
        "outcomes": [{"name": q.name, "unit": q.unit} for q in task.outcomes],
    }


def _designs(space: "Space") -> list[dict[str, Any]]:
    """Names, units and limits; the limits of an unbounded design are null."""
    none = (None,) * space.dim
    low, high = space.limits if space.bounded else (none, none)
    return [
        {"name": q.name, "unit": q.unit, "low": a, "high": b}
        for q, a, b in zip(space.quantities, low, high, strict=True)
    ]


def _cells(row: dict[str, Any]) -> list[str]:
    sizes = [str(row[name]) for name in ("horizon", "parameter_dim", "design_dim", "outcome_dim")]
    return [
        row["name"],
        row["structure"],
        *sizes,
        ", ".join(_design(design) for design in row["designs"]),
    ]


def _design(design: dict[str, Any]) -> str:
    unit = f" [{design['unit']}]" if design["unit"] else ""
    limits = "" if design["low"] is None else f" {design['low']:g} to {design['high']:g}"
    return f"{design['name']}{unit}{limits}"
