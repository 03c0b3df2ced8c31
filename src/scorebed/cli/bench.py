"""`scorebed bench compare`: methods side by side at one budget, or in one time."""

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from scorebed.cli._output import LEFT, RIGHT, Json, print_json, print_table, print_text

BENCHES = ("compare",)


def bench(
    name: Annotated[str, Parameter(help="compare.")],
    /,
    *,
    task: Annotated[str, Parameter(help="A built-in task; `scorebed tasks` lists them.")],
    methods: Annotated[str, Parameter(help="all, or names with commas between them: score,pce,random.")] = "all",
    budget: Annotated[str | None, Parameter(help="Likelihood evaluations that every method may spend.")] = None,
    minutes: Annotated[str | None, Parameter(help="Minutes of training for every method, instead of a budget.")] = None,
    preset: Annotated[
        str, Parameter(help="quick, laptop or paper: all sizes that budget or minutes leave open.")
    ] = "quick",
    seed: Annotated[str, Parameter(help="Seed of all random numbers.")] = "0",
    out: Annotated[Path | None, Parameter(help="Folder of the runs; one that exists is gone on with.")] = None,
    set_: Annotated[
        list[str], Parameter(name="--set", negative="", help="A single value for all methods, as key=value.")
    ] = [],  # noqa: B006 (cyclopts reads the default, nothing changes it)
    as_json: Json = False,
) -> None:
    """Train methods on equal terms: one table of bounds, likelihood evaluations and seconds, and EIG against NLE as a picture."""
    from scorebed.bench.compare import COLUMNS, chosen, compare, draw, remarks, table
    from scorebed.cli._numbers import positive, whole
    from scorebed.cli._progress import Bars
    from scorebed.errors import UnknownNameError, require
    from scorebed.runs.terms import Terms
    from scorebed.tasks import make_task

    if name not in BENCHES:
        raise UnknownNameError("bench", name, BENCHES)
    require((budget is None) != (minutes is None), "--budget and --minutes", got="both" if budget else "neither",
            expected="one of them", fix="give --budget NLE or --minutes X.")  # fmt: skip
    terms = Terms(
        None if budget is None else whole("--budget", budget, 1),
        None if minutes is None else positive("--minutes", minutes),
    )
    picked = chosen(methods, make_task(task))
    words = f"{terms.budget:.0e}".replace("+", "") if terms.budget else f"{terms.minutes:g}min"
    folder = out if out is not None else Path("runs") / f"compare-{task}-{words}"
    overrides = [f"seed={whole('--seed', seed, 0)}", *set_]
    bars = Bars()
    try:
        entries = compare(task, picked, terms, folder, preset=preset, overrides=overrides, progress=bars)
    except KeyboardInterrupt:
        bars.close()
        sys.stderr.write(f"stopped; the state is kept in {folder}. Go on with the same command.\n")
        raise
    draw(entries, f"{task}: {terms} each").savefig(folder / "compare.png", dpi=130)
    (folder / "compare.md").write_text(table(entries))
    if as_json:
        print_json({"task": task, "terms": terms._asdict(), "methods": {e.method: dict(e.record) for e in entries}})
        return
    print_table({COLUMNS[0]: LEFT} | dict.fromkeys(COLUMNS[1:], RIGHT), [entry.row() for entry in entries])
    for line in remarks(entries):
        print_text(line)
    print_text(f"table and picture: {folder}/compare.md, {folder}/compare.png")
