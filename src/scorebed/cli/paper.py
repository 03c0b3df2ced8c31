"""`scorebed paper ITEM`: a table or figure of the paper, re-run at a share of its budget."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from scorebed.cli._many import HERE, ManyOptions
from scorebed.cli._numbers import Count, FromZero, Positive
from scorebed.cli._output import LEFT, RIGHT, TEXT, Json, print_json, print_table, print_text
from scorebed.paper.data import item_names, read
from scorebed.paper.study import POLICIES, USUAL_POLICIES, USUAL_REPEATS, Study

if TYPE_CHECKING:
    from scorebed.cli._progress import Bars
    from scorebed.paper.item import PaperItem
    from scorebed.paper.units import Unit

    ItemName = str
    Whose = str
else:
    ItemName = Literal[(*item_names(), read("items")["all"])]
    Whose = Literal[POLICIES]

OUT = Path("runs/paper")


def paper(
    item: Annotated[ItemName, Parameter(help="Which table or figure, or all of them.")],
    /,
    *,
    scale: Annotated[
        Positive | None,
        Parameter(
            help="S, the share of the paper's budget of likelihood evaluations: 1 is the paper "
            "itself, 0.01 a hundredth of it."
        ),
    ] = None,
    hours: Annotated[
        Positive | None,
        Parameter(help="Hours of training on this machine: S is found by timing a few steps."),
    ] = None,
    policies: Annotated[
        Whose, Parameter(help="The paper's policies, or what preset laptop takes.")
    ] = USUAL_POLICIES,
    repeats: Annotated[
        Count, Parameter(help="Repeats of every row, over which standard errors are.")
    ] = USUAL_REPEATS,
    rows: Annotated[
        list[str],
        Parameter(
            consume_multiple=True,
            negative="",
            help="Rows to run, by name; * stands for anything. All if left out.",
        ),
    ] = [],  # noqa: B006 (cyclopts reads the default, nothing changes it)
    seed: Annotated[FromZero, Parameter(help="Seed of all random numbers.")] = 0,
    out: Annotated[
        Path, Parameter(help="Folder of runs and pages; what is in it is gone on with.")
    ] = OUT,
    records: Annotated[
        Path | None, Parameter(help="Folder of records; OUT/records if left out.")
    ] = None,
    set_: Annotated[
        list[str],
        Parameter(
            name="--set",
            negative="",
            help="A single value of all rows that have it, as key=value, over the scale's.",
        ),
    ] = [],  # noqa: B006
    dry_run: Annotated[
        bool,
        Parameter(
            name="--dry-run", negative="", help="Say what would be run, with its sizes and NLE."
        ),
    ] = False,
    render_only: Annotated[
        bool,
        Parameter(name="--render-only", negative="", help="Run nothing: pages from the records."),
    ] = False,
    page: Annotated[
        Path | None,
        Parameter(help="A Markdown file to put items into, where it has <!-- ITEM --> for them."),
    ] = None,
    many: ManyOptions = HERE,
    as_json: Json = False,
) -> None:
    """A table or figure of the paper, re-run at any scale, beside what the paper prints.

    It is written as Markdown, CSV, PNG and one HTML page, from the rows that there are.

    A row that is finished leaves a record and is not run again; one that was interrupted goes on.
    Several processes with the same command share the rows; --workers and --dask start them.
    """
    from scorebed.cluster.pool import PiecesFailedError
    from scorebed.paper.items import chosen_items
    from scorebed.paper.shared import share_units
    from scorebed.paper.units import carry_out

    if not render_only or scale is not None:
        _require_one(scale, hours)
    if many.dask is not None:  # in whatever folder its workers are
        out, records = out.resolve(), None if records is None else records.resolve()
    given = Study(
        out=out,
        scale=1.0 if scale is None else scale,
        policies=policies,
        repeats=repeats,
        seed=seed,
        overrides=tuple(set_),
        records=records,
    )
    items = chosen_items(item)
    units = _chosen_units(items, given, rows)
    seconds: dict[str, float] = {}
    if hours is not None:
        given, seconds = _within(hours, units, given)
    if dry_run:
        _show_plan(units, given, seconds, as_json=as_json)
        return
    if many.slurm:
        _write_script(item, given, rows, many, as_json=as_json)
        return
    failed: dict[str, str] = {}
    if not render_only:
        with _shown(out) as bars:
            with many.pool() as pool:
                if pool is not None:
                    failed = share_units(item, units, given, pool, progress=bars)
            carry_out([u for u in units if u.name not in failed], given, progress=bars)
    as_kept = render_only and scale is None
    written = [_written(each, given, page, as_kept=as_kept) for each in items]
    pages = [each for each in written if each is not None]
    if as_json:
        print_json({"settings": given.settings(), "items": pages})
    else:
        for each in pages:
            _show_page(each)
    if failed:
        raise PiecesFailedError(failed)


def _write_script(
    item: str, study: Study, rows: Sequence[str], many: ManyOptions, *, as_json: bool
) -> None:
    """The same command, for a SLURM array."""
    import shlex

    from scorebed.runs.durable import make_folder

    command = [*shlex.split(study.command(item))[1:], "--out", str(study.out)]
    command += ["--records", str(study.records)] if study.records is not None else []
    command += ["--rows", *rows] if rows else []
    make_folder(study.out)
    many.write_script(study.out / "array.sh", command, as_json=as_json)


def _require_one(scale: float | None, hours: float | None) -> None:
    """How much to run has to be said, in one of two ways."""
    from scorebed.errors import require

    given = [name for name, value in {"--scale": scale, "--hours": hours}.items() if value]
    require(
        len(given) == 1,
        "--scale or --hours",
        got=" and ".join(given) or "neither",
        expected="one of them",
        fix="--scale 1 is the paper itself, --scale 0.01 a hundredth of it, --hours 2 what fits.",
    )
    require(
        scale is None or scale <= 1,
        "--scale",
        got=f"{scale}",
        expected="a share of the paper's budget, above 0 and up to 1",
        fix="--scale 1 is the paper itself.",
    )


def _within(hours: float, units: "Sequence[Unit]", study: Study) -> tuple[Study, dict[str, float]]:
    """The study at the scale that fits, and the seconds of every unit."""
    from dataclasses import replace

    from scorebed.paper.forecast import scale_for

    with _shown(study.out) as bars:
        scale, seconds = scale_for(units, study, hours, progress=bars)
    sys.stderr.write(f"--scale {scale:g}: {sum(seconds.values()) / 3600:.2g} hours forecast\n")
    return replace(study, scale=scale), seconds


def _chosen_units(items: "Sequence[PaperItem]", study: Study, rows: Sequence[str]) -> "list[Unit]":
    """The units of the items, each once, and of those the ones that are named."""
    from fnmatch import fnmatchcase

    from scorebed.errors import UnknownNameError

    units = {unit.name: unit for item in items for unit in item.units(study)}
    for pattern in rows:
        if not any(fnmatchcase(name, pattern) for name in units):
            raise UnknownNameError("row", pattern, tuple(units))
    return [
        unit
        for name, unit in units.items()
        if not rows or any(fnmatchcase(name, pattern) for pattern in rows)
    ]


def _show_plan(
    units: "Sequence[Unit]", study: Study, seconds: dict[str, float], *, as_json: bool
) -> None:
    """What would be run; the seconds where steps were timed."""
    from scorebed.paper.units import diverged, finished, record_name

    done = dict.fromkeys(finished(units, study), "finished")
    done |= dict.fromkeys(diverged(units, study), "diverged")
    plans = [(unit.name, record_name(unit, study), unit.estimate(study)) for unit in units]
    if as_json:
        print_json(
            {
                "settings": study.settings(),
                "rows": [
                    {
                        "row": record,
                        "finished": done.get(name) == "finished",
                        "diverged": done.get(name) == "diverged",
                        "nle": plan.nle,
                        "seconds": seconds.get(name),
                        "sizes": plan.words,
                    }
                    for name, record, plan in plans
                ],
            }
        )
        return
    print_table(
        {"row": LEFT, "": LEFT, "NLE": RIGHT, "seconds": RIGHT, "sizes": TEXT},
        [
            (
                record,
                done.get(name, ""),
                f"{plan.nle:,}",
                f"{seconds[name]:,.0f}" if name in seconds else "",
                plan.words,
            )
            for name, record, plan in plans
        ],
    )
    print_text(f"{sum(plan.nle for name, _, plan in plans if name not in done):,} NLE to go")


def _written(
    item: "PaperItem", study: Study, file: Path | None, *, as_kept: bool
) -> dict[str, Any] | None:
    """Write an item's page from the records that there are; None if they show nothing of it yet.
    `as_kept` takes the settings of the records.
    """
    from scorebed.paper.output import insert, write_page
    from scorebed.paper.units import finished, study_of_records

    units = item.units(study)
    study = study_of_records(units, study) if as_kept else study
    records = finished(item.units(study), study)
    if not records:
        return None
    page, stem, command = item.page(study, records), study.stem(item.name), study.command(item.name)
    if not page.data:  # a row of a table alone makes no figure
        return None
    files = write_page(page, stem, study, command=command)
    if file is not None and insert(page, stem, study, file, command=command):
        files.append(file)
    return {
        "item": item.name,
        "title": page.title,
        "rows": [dict(row) for row in page.data],
        "sections": [
            {
                "title": each.title,
                "notes": list(each.notes),
                "columns": list(each.table.columns) if each.table else [],
                "cells": [list(row) for row in each.table.rows] if each.table else [],
            }
            for each in page.sections
        ],
        "files": [str(path) for path in files],
    }


def _show_page(page: dict[str, Any]) -> None:
    print_text(page["title"])
    for section in page["sections"]:
        print_text(f"\n{section['title']}")
        if section["columns"]:
            first, *others = section["columns"]
            print_table({first: LEFT} | dict.fromkeys(others, RIGHT), section["cells"])
        for note in section["notes"]:
            print_text(note)
    print_text(f"\nfiles: {', '.join(page['files'])}")


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
