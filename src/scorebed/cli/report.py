"""`scorebed report RUN`: the run as one HTML file."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from scorebed.cli._output import Json, print_json, print_text
from scorebed.cli._task import TaskOption, user_task


def report(
    run: Annotated[Path, Parameter(help="The folder of the run.")],
    /,
    *,
    task: TaskOption = None,
    as_json: Json = False,
) -> None:
    """Write RUN/report.html: bounds, curves, experiments, cost and settings in a single file."""
    from scorebed.report import write_report
    from scorebed.runs.folder import RunFolder
    from scorebed.runs.user_task import task_of

    named = user_task(task)
    if named is not None:
        task_of(RunFolder.open(run).config(), named)
    path = write_report(run, task=named)
    if as_json:
        print_json({"run": str(run), "report": str(path)})
    else:
        print_text(str(path))
