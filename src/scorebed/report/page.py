"""The page of a report: the contents of a run's folder in a template.

    bounds and references → training curves → experiments of the policy → diagnosis of the score
    → NLE → seconds → settings → versions

A run that is not finished has a report too: each section shows what there is, or says what is
missing."""

import base64
import datetime
from pathlib import Path

import jinja2

from scorebed.report.pictures import bound_pictures, experiments_picture, loss_pictures
from scorebed.report.reading import json_object, section
from scorebed.report.repeats import across_repeats, ledger_rows, repeats_rows, trained_with
from scorebed.report.tables import (
    NOTHING,
    bounds_rows,
    count,
    diagnosis_rows,
    flat,
    seconds_rows,
    settings_rows,
    warnings,
)
from scorebed.runs.durable import replace_file
from scorebed.runs.evaluation import in_words, tight_in_words
from scorebed.runs.folder import ENV, METRICS, RunFolder
from scorebed.runs.load import open_config
from scorebed.runs.user_parts import BUILT_IN, UserParts

REPORT, RECORD = "report.html", "record.json"
DIAGNOSIS, DIAGNOSIS_PICTURE = "diagnosis.json", "diagnosis.png"


def write_report(run_path: Path | str, *, parts: UserParts = BUILT_IN) -> Path:
    """Write the report of a run, `report.html` in its folder, over one that is there.

    The file is replaced atomically and nothing else is touched, so a run that another process is
    using may be reported on. Needs the extra `plots`.

    Arguments:
        run_path: the folder of the run.
        parts: the user's parts of the run; without a task of theirs the report shows no
            experiments.

    Returns:
        The path of the report.

    Raises:
        RunFolderError: if the folder is not a run, or cannot be written.
        InvalidValueError: if a part of the user's is missing, or a file of the run is damaged.

    Example:
        >>> sb.write_report("runs/linear-gaussian-score-1").name
        'report.html'
    """
    folder = RunFolder.open(Path(run_path))
    path = folder.path / REPORT
    replace_file(path, render(folder, parts).encode("utf-8", "replace"))
    return path


def render(folder: RunFolder, parts: UserParts = BUILT_IN) -> str:
    """The page. Equal folders give equal pages."""
    config, metrics = open_config(folder, parts), folder.read_metrics()
    record = json_object(folder, RECORD)
    env = json_object(folder, ENV)
    diagnosis = json_object(folder, DIAGNOSIS)
    experiments, no_experiments = experiments_picture(folder, config, parts.task)
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("scorebed"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(REPORT).render(
        run=folder.path.resolve().name,
        resume=f"scorebed resume {folder.path}",
        diagnose=f"scorebed diagnose {folder.path}",
        config=config,
        finished=record is not None,
        date=_date(folder) if record is not None else "",
        bounds=bounds_rows(record or {}, config),
        kind_of_bounds=in_words(record or {}),
        tight=tight_in_words(record or {}),
        across_repeats=across_repeats(record or {}, config),
        repeats=repeats_rows(record or {}),
        trained_with=trained_with(record or {}),
        warnings=warnings(record or {}, str(folder.path)),
        metrics_file=METRICS,
        losses=loss_pictures(metrics),
        lowers=bound_pictures(metrics, folder, config),
        experiments=experiments,
        no_experiments=no_experiments,
        diagnosis=None if diagnosis is None else diagnosis_rows(diagnosis),
        verdict=str((diagnosis or {}).get("verdict", NOTHING)),
        diagnosis_png=_base64(folder.path / DIAGNOSIS_PICTURE),
        ledger=[(stage, count(spent)) for stage, spent in section(record, "nle_stages").items()],
        nle=count((record or {}).get("nle")),
        other_ledgers=ledger_rows(record or {}),
        seconds=seconds_rows(record, metrics),
        settings=settings_rows(config),
        versions=list(flat(env or {}).items()),
    )


def _date(folder: RunFolder) -> str:
    written = (folder.path / RECORD).stat().st_mtime
    return datetime.datetime.fromtimestamp(written, datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")


def _base64(path: Path) -> str:
    """A file as base64, for a data URI; empty if there is none."""
    return base64.b64encode(path.read_bytes()).decode("ascii") if path.exists() else ""
