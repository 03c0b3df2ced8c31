"""`scorebed resume RUN`: go on after any interruption."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from scorebed.cli._output import Json


def resume(run: Annotated[Path, Parameter(help="The folder of the run.")], /, *, as_json: Json = False) -> None:
    """Go on with a run after any interruption; a finished run answers at once."""
    from scorebed.cli._execute import execute
    from scorebed.runs.folder import RunFolder

    with RunFolder.open(run).own() as folder:
        execute(folder, as_json=as_json)
