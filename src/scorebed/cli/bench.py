"""`scorebed bench NAME`: methods side by side (compare), and what a preset reaches on every task
(laptop).
"""

import dataclasses
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

from cyclopts import Parameter

from scorebed.cli._many import HERE, ManyOptions
from scorebed.cli._numbers import Count, FromZero, Positive
from scorebed.cli._output import LEFT, RIGHT, Json, print_json, print_table, print_text
from scorebed.presets import BENCH_PRESET, DEFAULT_PRESET

if TYPE_CHECKING:
    from scorebed.cli._progress import Bars
    from scorebed.runs.spending import Spending


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
        Parameter(
            name="--set", negative="", help="A single value for all runs that use it, as key=value."
        ),
    ] = [],  # noqa: B006 (cyclopts reads the default, nothing changes it)
    many: ManyOptions = HERE,
    as_json: Json = False,
) -> None:
    """Many runs and one table: bounds, likelihood evaluations and seconds."""
    from scorebed.errors import UnknownNameError
    from scorebed.runs.config import refuse_contradictions

    if name not in BENCHES:
        raise UnknownNameError("bench", name, BENCHES)
    refuse_contradictions(set_, {"task": task, "method": methods})
    options = Options(task, methods, budget, minutes, preset, seed, seeds, out, set_, many, as_json)
    BENCHES[name](options)


class Options(NamedTuple):
    """What `bench` was asked for."""

    task: str
    methods: str
    budget: int | None
    minutes: float | None
    preset: str | None
    seed: int
    seeds: int
    out: Path | None
    overrides: list[str]
    many: ManyOptions
    as_json: bool

    def command(self, folder: Path) -> list[str]:
        """The command of a comparison again, for a script."""
        given = {
            "--task": self.task,
            "--methods": self.methods,
            "--budget": self.budget,
            "--minutes": self.minutes,
            "--preset": self.preset,
            "--seed": self.seed,
            "--out": folder,
        }
        words = [w for name, x in given.items() if x is not None for w in (name, str(x))]
        return ["bench", "compare", *words, *(w for x in self.overrides for w in ("--set", x))]


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


def compare(options: Options) -> None:
    """Methods side by side, on equal terms."""
    from scorebed.bench import compare as bench
    from scorebed.cluster.pool import PiecesFailedError
    from scorebed.plots.comparison import draw_comparison
    from scorebed.runs.durable import make_folder
    from scorebed.runs.user_parts import whole_path
    from scorebed.tasks import make_task

    task, out, many = options.task, options.out, options.many
    terms = _terms(options.budget, options.minutes)
    preset = options.preset or DEFAULT_PRESET
    overrides = [f"seed={options.seed}", *options.overrides]
    picked = bench.chosen(options.methods, task, make_task(task), preset)
    words = f"{terms.budget:.0e}".replace("+", "") if terms.budget else f"{terms.minutes:g}min"
    folder = out if out is not None else Path("runs") / f"compare-{task}-{words}"
    _require_own_time(terms, many)
    if many.slurm:
        make_folder(folder)
        many.write_script(folder / "array.sh", options.command(folder), as_json=options.as_json)
        return
    how: dict[str, Any] = {"preset": preset, "overrides": overrides}
    failed: dict[str, str] = {}
    with _shown(folder) as bars:
        with many.pool() as pool:
            if pool is not None:
                picked = tuple(whole_path(method) for method in picked)
                failed = bench.share_methods(
                    task, picked, terms, folder, pool, **how, progress=bars
                )
        picked = tuple(method for method in picked if method not in failed)
        entries = bench.compare(task, picked, terms, folder, **how, progress=bars)
    if not entries:
        raise PiecesFailedError(failed)
    against: Literal["nle", "seconds"] = "nle" if terms.budget else "seconds"
    figure = draw_comparison(entries, f"{task}: {terms} each", against=against)
    figure.savefig(folder / "compare.png", dpi=130)
    (folder / "compare.md").write_text(bench.table(entries))
    if options.as_json:
        print_json(
            {
                "task": task,
                "terms": terms._asdict(),
                "methods": {e.method: e.record.values() for e in entries},
            }
        )
    else:
        first, *others = bench.COLUMNS
        columns = {first: LEFT} | dict.fromkeys(others, RIGHT)
        print_table(columns, [entry.row() for entry in entries])
        for line in bench.remarks(entries):
            print_text(line)
        print_text(f"table and picture: {folder}/compare.md, {folder}/compare.png")
    if failed:
        raise PiecesFailedError(failed)


def _require_own_time(terms: "Spending", many: ManyOptions) -> None:
    """Minutes are a machine's: methods that share one would not get theirs."""
    from scorebed.errors import require

    require(
        terms.minutes is None or many.workers == 1 or many.slurm,
        "--minutes",
        got="--workers, which share this machine",
        expected="a machine for every method",
        fix="use --budget, or --dask with one worker on each machine.",
    )


def laptop(options: Options) -> None:
    """What a preset reaches, task by task."""
    from scorebed.bench import laptop as bench
    from scorebed.errors import UnknownNameError, require
    from scorebed.plots.comparison import draw_bench
    from scorebed.presets import PRESETS
    from scorebed.tasks import TASKS

    require(
        options.many == HERE,
        "--workers, --dask and --slurm",
        got="bench laptop",
        expected="bench compare",
        fix="leave them out.",
    )
    preset, out = options.preset or BENCH_PRESET, options.out
    picked = _listed(options.methods, bench.BY_SCORE)
    for each in picked:
        if each not in bench.BY_SCORE:
            raise UnknownNameError("method of this bench", each, bench.BY_SCORE)
    if preset not in PRESETS:
        raise UnknownNameError("preset", preset, PRESETS)
    tasks = _listed(options.task, tuple(bench.published()))
    for each in tasks:
        if each not in TASKS:
            raise UnknownNameError("task", each, TASKS)
    folder = out if out is not None else Path("runs") / f"bench-{preset}"
    with _shown(folder) as bars:
        reached = bench.laptop(
            tasks,
            folder,
            preset=preset,
            seeds=options.seeds,
            methods=picked,
            overrides=options.overrides,
            progress=bars,
        )
    (folder / "table.md").write_text(bench.table(reached))
    figure = draw_bench(reached, bench.published(), f"Preset {preset}")
    figure.savefig(folder / "table.png", dpi=130)
    if options.as_json:
        rows = [
            each._asdict()
            | {"records": [r.values() for r in each.records]}
            | {"ahead": {name: dataclasses.asdict(other) for name, other in each.ahead.items()}}
            for each in reached
        ]
        print_json({"preset": preset, "tasks": rows})
        return
    print_table(
        dict.fromkeys(bench.COLUMNS[:3], LEFT) | dict.fromkeys(bench.COLUMNS[3:], RIGHT),
        [each.row() for each in reached],
    )
    print_text(f"table and picture: {folder}/table.md, {folder}/table.png")


BENCHES = {run.__name__: run for run in (compare, laptop)}


def _listed(names: str, all_: tuple[str, ...]) -> tuple[str, ...]:
    """Names with commas between them, or all."""
    return all_ if names == "all" else tuple(each.strip() for each in names.split(","))


@contextmanager
def _shown(folder: Path) -> "Iterator[Bars]":
    """Progress bars, and on Ctrl-C how to go on."""
    from scorebed.cli._progress import Bars

    bars = Bars()
    try:
        yield bars
    except KeyboardInterrupt:
        bars.close()
        sys.stderr.write(
            f"stopped; the state is kept in {folder}. Continue with the same command.\n"
        )
        raise
