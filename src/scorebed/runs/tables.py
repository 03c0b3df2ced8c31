"""A finished run as pandas tables: its metrics, its likelihood evaluations, its bounds."""

from collections.abc import Mapping, Sequence
from typing import Any

from scorebed.errors import InvalidValueError
from scorebed.runs.record import BoundsRecord, Record


def metrics_table(metrics: Sequence[Mapping[str, Any]]) -> Any:
    """A row for every stage, step and policy; what a stage does not note is missing in its rows."""
    rows = []
    for record in metrics:
        curves = {k: v for k, v in record.items() if k not in ("stage", "step", "seconds")}
        count = max((len(v) for v in curves.values() if isinstance(v, list)), default=0)
        where = {"stage": record["stage"], "step": record["step"]}
        for number in range(count or 1):
            each = {k: v[number] if isinstance(v, list) else v for k, v in curves.items()}
            policy = number if count else None
            rows.append(where | {"policy": policy, "seconds": record["seconds"]} | each)
    columns = ["stage", "step", "policy", "seconds"]
    return _table(rows, columns).astype({"step": "int64", "policy": "Int64", "seconds": "float64"})


def ledger_table(record: Record) -> Any:
    """A row for every stage of training, and one for each of the other books."""
    rows = [("training", stage, nle) for stage, nle in record.nle_stages.items()]
    others = {
        "selection": record.nle_selection,
        "evaluation": record.nle_evaluation,
        "references": record.nle_references,
    }
    rows += [(book, None, nle) for book, nle in others.items() if nle is not None]
    return _table(rows, ["book", "stage", "nle"])


def bounds_table(record: Record) -> Any:
    """A row for the policy of every repeat, and for each kind of designs it is compared with."""
    run = {"run": record.run, "task": record.task, "method": record.method, "seed": record.seed}
    repeats = [each.bounds for each in record.repeats or ()] or [record.bounds]
    rows = [_row(run, record.policy, number, bounds) for number, bounds in enumerate(repeats)]
    rows += [_row(run, name, None, bounds) for name, bounds in record.references.items()]
    return _table(rows, [*run, "designs", "repeat"]).astype({"repeat": "Int64"})


def _row(
    run: Mapping[str, Any], designs: str, repeat: int | None, bounds: BoundsRecord
) -> dict[str, Any]:
    numbers = bounds.values()
    numbers.pop("designs", None)  # in words
    return {**run, "designs": designs, "repeat": repeat, **numbers}


def _table(rows: Sequence[Any], first: Sequence[str]) -> Any:
    """Rows as a table whose first columns are these, also if there are no rows."""
    try:
        import pandas as pd
    except ModuleNotFoundError as missing:
        raise InvalidValueError(
            "a table of a run",
            got=f"no package '{missing.name}'",
            expected="pandas",
            fix="pip install 'scorebed[pandas]'.",
        ) from missing
    if rows and isinstance(rows[0], Mapping):
        names = [*first, *dict.fromkeys(k for row in rows for k in row if k not in first)]
    else:
        names = list(first)
    return pd.DataFrame(rows, columns=names)
