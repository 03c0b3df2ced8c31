"""`scorebed bench NAME`: methods side by side (compare), and what a preset reaches on every task
(laptop).
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from scorebed.cli._numbers import Count, FromZero, Positive
from scorebed.cli._output import LEFT, RIGHT, Json, print_json, print_table, print_text

if TYPE_CHECKING:
    from scorebed.cli._progress import Bars
    from scorebed.runs.spending import Spending

BENCHES = ("compare", "laptop")


def bench(
    name: Annotated[
        str,
        Parameter(
            help="compare: methods side by side; laptop: what a preset reaches on every task."
        ),
    ],
    /,
    *,
    task: Annotated[
        str,
        Parameter(help="The task of compare; for laptop names with commas between them, or all."),
    ],
    methods: Annotated[
        str,
        Parameter(
            help="all, or names with commas between them; laptop has score and jointscore; "
            "compare also takes FILE.py:NAME."
        ),
    ] = "all",
    budget: Annotated[
        Count | None, Parameter(help="Of compare: likelihood evaluations for every method.")
    ] = None,
    minutes: Annotated[
        Positive | None, Parameter(help="Of compare: minutes of training for every method.")
    ] = None,
    preset: Annotated[
        str | None, Parameter(help="quick, laptop or paper; compare takes quick.")
    ] = None,
    seed: Annotated[FromZero, Parameter(help="Of compare: seed of all random numbers.")] = 0,
    seeds: Annotated[
        Count,
        Parameter(
            help="Of laptop: number of seeds; those that the folder has already are shown too."
        ),
    ] = 1,
    out: Annotated[
        Path | None, Parameter(help="Folder of the runs; one that exists is gone on with.")
    ] = None,
    set_: Annotated[
        list[str],
        Parameter(name="--set", negative="", help="A single value for all runs, as key=value."),
    ] = [],  # noqa: B006 (cyclopts reads the default, nothing changes it)
    as_json: Json = False,
) -> None:
    """Many runs and one table: bounds, likelihood evaluations and seconds."""
    from scorebed.errors import UnknownNameError

    if name not in BENCHES:
        raise UnknownNameError("bench", name, BENCHES)
    if name == "laptop":
        _laptop(task, methods, preset or "laptop", seeds, out, set_, as_json)
    else:
        overrides = [f"seed={seed}", *set_]
        _compare(task, methods, _terms(budget, minutes), preset or "quick", out, overrides, as_json)


def _terms(budget: int | None, minutes: float | None) -> "Spending":
    from scorebed.errors import require
    from scorebed.runs.spending import Spending

    require(
        (budget is None) != (minutes is None),
        "--budget and --minutes",
        got="both" if budget else "neither",
        expected="one of them",
        fix="give --budget NLE or --minutes X.",
    )
    return Spending(budget, minutes)


def _compare(
    task: str,
    methods: str,
    terms: "Spending",
    preset: str,
    out: Path | None,
    overrides: list[str],
    as_json: bool,
) -> None:
    from scorebed.bench.compare import COLUMNS, chosen, compare, remarks, table
    from scorebed.plots.comparison import draw_comparison
    from scorebed.tasks import make_task

    picked = chosen(methods, task, make_task(task), preset)
    words = f"{terms.budget:.0e}".replace("+", "") if terms.budget else f"{terms.minutes:g}min"
    folder = out if out is not None else Path("runs") / f"compare-{task}-{words}"
    with _shown(folder) as bars:
        entries = compare(
            task, picked, terms, folder, preset=preset, overrides=overrides, progress=bars
        )
    against: Literal["nle", "seconds"] = "nle" if terms.budget else "seconds"
    figure = draw_comparison(entries, f"{task}: {terms} each", against=against)
    figure.savefig(folder / "compare.png", dpi=130)
    (folder / "compare.md").write_text(table(entries))
    if as_json:
        print_json(
            {
                "task": task,
                "terms": terms._asdict(),
                "methods": {e.method: e.record.values() for e in entries},
            }
        )
        return
    print_table(
        {COLUMNS[0]: LEFT} | dict.fromkeys(COLUMNS[1:], RIGHT), [entry.row() for entry in entries]
    )
    for line in remarks(entries):
        print_text(line)
    print_text(f"table and picture: {folder}/compare.md, {folder}/compare.png")


def _laptop(
    task: str,
    methods: str,
    preset: str,
    seeds: int,
    out: Path | None,
    overrides: list[str],
    as_json: bool,
) -> None:
    from scorebed.bench.laptop import BY_SCORE, COLUMNS, laptop, published, table
    from scorebed.errors import UnknownNameError
    from scorebed.plots.comparison import draw_bench
    from scorebed.presets import PRESETS
    from scorebed.tasks import TASKS

    picked = BY_SCORE if methods == "all" else tuple(each.strip() for each in methods.split(","))
    for each in picked:
        if each not in BY_SCORE:
            raise UnknownNameError("method of this bench", each, BY_SCORE)
    if preset not in PRESETS:
        raise UnknownNameError("preset", preset, PRESETS)
    tasks = tuple(published()) if task == "all" else tuple(each.strip() for each in task.split(","))
    for each in tasks:
        if each not in TASKS:
            raise UnknownNameError("task", each, TASKS)
    folder = out if out is not None else Path("runs") / f"bench-{preset}"
    with _shown(folder) as bars:
        reached = laptop(
            tasks,
            folder,
            preset=preset,
            seeds=seeds,
            methods=picked,
            overrides=overrides,
            progress=bars,
        )
    (folder / "table.md").write_text(table(reached))
    draw_bench(reached, published(), f"Preset {preset}").savefig(folder / "table.png", dpi=130)
    if as_json:
        rows = [
            each._asdict() | {"records": [r.values() for r in each.records]} for each in reached
        ]
        print_json({"preset": preset, "tasks": rows})
        return
    print_table(
        dict.fromkeys(COLUMNS[:3], LEFT) | dict.fromkeys(COLUMNS[3:], RIGHT),
        [each.row() for each in reached],
    )
    print_text(f"table and picture: {folder}/table.md, {folder}/table.png")


@contextmanager
def _shown(folder: Path) -> "Iterator[Bars]":
    """Progress bars, and on Ctrl-C how to go on."""
    from scorebed.cli._progress import Bars

    bars = Bars()
    try:
        yield bars
    except KeyboardInterrupt:
        bars.close()
        sys.stderr.write(f"stopped; the state is kept in {folder}. Go on with the same command.\n")
        raise
