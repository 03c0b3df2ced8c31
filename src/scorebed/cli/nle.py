"""`scorebed nle TABLE`: the budget arithmetic of the paper, exact."""

import dataclasses
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from scorebed.cli._output import LEFT, RIGHT, TEXT, Json, print_json, print_table, print_text
from scorebed.presets.budgets import TABLES, Row, Table

if TYPE_CHECKING:
    Name = str
else:
    Name = Literal[tuple(TABLES)]


def nle(
    table: Annotated[Name, Parameter(help="Which of the paper's configuration tables.")],
    /,
    *,
    as_json: Json = False,
) -> None:
    """The budget arithmetic of the paper: its configurations, with totals computed exactly.

    One NLE is one evaluation of the likelihood of one step of the experiment.

    With --json each row also says what is paid upfront and per policy.
    """
    chosen = TABLES[table]
    if as_json:
        rows = [_document(row) for row in chosen.rows]
        print_json(
            {
                "table": table,
                "title": chosen.title,
                "budget": chosen.budget,
                "rows": rows,
                "notes": chosen.notes,
            }
        )
    else:
        _print(chosen)


def _document(row: Row) -> dict[str, Any]:
    sizes = dataclasses.asdict(row.cost)
    return {"methods": list(row.methods), "remark": row.remark, **sizes, **row.cost.bill()}


def _print(table: Table) -> None:
    print_text(table.title + ("" if table.budget is None else f" (budget {table.budget:,} NLE)"))
    rows = [dataclasses.asdict(row.cost) | _totals(row) for row in table.rows]
    labels = [
        ", ".join(row.methods) + (f" ({row.remark})" if row.remark else "") for row in table.rows
    ]
    if len(rows) == 1:
        print_table(
            {"": LEFT, labels[0]: RIGHT}, [(name, _cell(value)) for name, value in rows[0].items()]
        )
    else:
        _print_rows(labels, rows)
    for note in table.notes:
        print_text(note)


def _print_rows(labels: list[str], rows: list[dict[str, Any]]) -> None:
    """As in the paper: sizes that all rows share are above the table, the others in it."""
    values = {name: [row[name] for row in rows if name in row] for row in rows for name in row}
    totals = [name for name in values if name.startswith("nle")]
    shared = {
        name: found[0]
        for name, found in values.items()
        if len(set(found)) == 1 and name not in totals
    }
    print_text("Shared: " + ", ".join(f"{name} = {_cell(value)}" for name, value in shared.items()))
    names = [name for name in values if name not in shared and name not in totals] + totals
    print_table(
        {"method": TEXT} | dict.fromkeys(names, RIGHT),
        [
            [label, *(_cell(row.get(name)) for name in names)]
            for label, row in zip(labels, rows, strict=True)
        ],
    )


def _totals(row: Row) -> dict[str, int | float]:
    return {name: amount for name, amount in row.cost.bill().items() if name.startswith("nle")}


def _cell(value: int | float | None) -> str:
    """Whole numbers in full; expected costs to the nearest one."""
    if value is None:
        return "—"
    return (
        f"{value:,}"
        if isinstance(value, int)
        else f"{value:,.0f}"
        if value >= 1000
        else f"{value:g}"
    )
