"""Units carried out by the workers of a pool: one piece each, under the same locks as ever."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from scorebed.cluster.pool import Pool
from scorebed.paper.items import chosen_items
from scorebed.paper.study import Study
from scorebed.paper.units import Unit, carry_out, diverged, finished
from scorebed.runs.durable import make_folder
from scorebed.runs.stage import Progress


def share_units(
    item: str, units: Sequence[Unit], study: Study, pool: Pool, *, progress: Progress
) -> dict[str, str]:
    """Carry units of an item out by the workers of a pool; why some of them failed. A unit that
    diverges has not failed: it leaves a record that says so.
    """
    for folder in (study.runs_folder, study.records_folder):
        make_folder(folder)
    known = {**finished(units, study), **diverged(units, study)}
    pieces = {
        unit.name: (item, unit.name, _plain(study)) for unit in units if unit.name not in known
    }
    done: list[str] = []

    def on_done(name: str) -> None:
        done.append(name)
        progress.update(len(done), name)

    progress.begin(f"rows by {pool.workers} workers", len(pieces), 0)
    failed = pool.run(carry_out_unit, pieces, on_done=on_done).failed
    progress.end(f"{len(done)} of {len(pieces)} rows")
    return failed


def carry_out_unit(item: str, name: str, study: Mapping[str, Any]) -> None:
    """One unit, on a worker: it leaves a record. One that another process has in hand is waited
    for.
    """
    given = _study(study)
    units = {unit.name: unit for each in chosen_items(item) for unit in each.units(given)}
    carry_out([units[name]], given, progress=Progress())


def _plain(study: Study) -> dict[str, Any]:
    values = dataclasses.asdict(study)
    paths = {name: str(each) for name, each in values.items() if isinstance(each, Path)}
    return {**values, **paths, "overrides": list(study.overrides)}


def _study(values: Mapping[str, Any]) -> Study:
    records = values["records"]
    folders = {"out": Path(values["out"]), "records": None if records is None else Path(records)}
    return Study(**{**values, **folders, "overrides": tuple(values["overrides"])})
