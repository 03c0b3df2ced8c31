"""`scorebed resume RUN`: go on after any interruption."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from scorebed.cli._numbers import Count
from scorebed.cli._output import Json
from scorebed.cli._parts import RunParts


def resume(
    run: Annotated[Path, Parameter(help="The folder of the run.")],
    /,
    *,
    parts: RunParts = RunParts(),  # noqa: B008 (cyclopts reads the default, nothing changes it)
    devices: Annotated[
        Count, Parameter(help="Number of devices among which every batch is shared out.")
    ] = 1,
    as_json: Json = False,
) -> None:
    """Go on with a run after any interruption; a finished run answers at once."""
    from scorebed._sharding import device_mesh
    from scorebed.cli._execute import execute
    from scorebed.runs.load import open_run

    context = device_mesh(devices)
    given = parts.read()
    found = open_run(run, given, strict=True)
    with found.folder.acquire() as folder:
        execute(
            folder,
            found.config,
            found.task,
            parts=parts,
            given=given,
            as_json=as_json,
            context=context,
        )
