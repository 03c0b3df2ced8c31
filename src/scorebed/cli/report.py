"""`scorebed report RUN`: the run as one HTML file."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from scorebed.cli._output import Json, print_json, print_text


def report(run: Annotated[Path, Parameter(help="The folder of the run.")], /, *, as_json: Json = False) -> None:
    """Write RUN/report.html: bounds, curves, experiments, cost and settings in one file that needs nothing else."""
    from scorebed.report import write_report

    path = write_report(run)
    if as_json:
        print_json({"run": str(run), "report": str(path)})
    else:
        print_text(str(path))
