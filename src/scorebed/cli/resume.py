"""`scorebed resume RUN`: go on after any interruption."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from scorebed.cli._output import Json
from scorebed.cli._task import TaskOption, user_task


def resume(
    run: Annotated[Path, Parameter(help="The folder of the run.")],
    /,
    *,
    task: TaskOption = None,
    devices: Annotated[
        str, Parameter(help="Number of devices among which every batch is shared out.")
    ] = "1",
    as_json: Json = False,
) -> None:
    """Go on with a run after any interruption; a finished run answers at once."""
    from scorebed._sharding import device_mesh
    from scorebed.cli._execute import execute
    from scorebed.cli._numbers import whole
    from scorebed.runs.folder import RunFolder

    context = device_mesh(whole("--devices", devices, 1))
    own = user_task(task)
    with RunFolder.open(run).own() as folder:
        execute(folder, task=own, as_json=as_json, context=context)
