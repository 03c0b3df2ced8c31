"""`scorebed report RUN`: the run as one HTML file."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from scorebed.cli._output import Json, print_json, print_text
from scorebed.cli._parts import RunParts


def report(
    run: Annotated[Path, Parameter(help="The folder of the run.")],
    /,
    *,
    parts: RunParts = RunParts(),  # noqa: B008 (cyclopts reads the default, nothing changes it)
    as_json: Json = False,
) -> None:
    """Write RUN/report.html: bounds, curves, experiments, cost and settings in one file."""
    from scorebed.report import write_report
    from scorebed.runs.load import open_run

    given = parts.read()
    if given.task is not None:
        open_run(run, given)
    path = write_report(run, parts=given)
    if as_json:
        print_json({"run": str(run), "report": str(path)})
    else:
        print_text(str(path))
