"""`scorebed resume RUN`: go on after any interruption."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from scorebed.cli._output import Json
from scorebed.cli._task import TaskOption, own_task


def resume(
    run: Annotated[Path, Parameter(help="The folder of the run.")],
    /,
    *,
    task: TaskOption = None,
    as_json: Json = False,
) -> None:
    """Go on with a run after any interruption; a finished run answers at once."""
    from scorebed.cli._execute import execute
    from scorebed.runs.folder import RunFolder

    own = own_task(task)
    with RunFolder.open(run).own() as folder:
        execute(folder, task=own, as_json=as_json)
