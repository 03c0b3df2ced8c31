"""`scorebed resume RUN`: go on after any interruption."""

import time
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from scorebed.cli._hosts import HostOptions, leading
from scorebed.cli._log import Log, require_log
from scorebed.cli._many import HERE, ManyOptions
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
    hosts: HostOptions = HostOptions(),  # noqa: B008 (as above)
    many: ManyOptions = HERE,
    log: Log = None,
    as_json: Json = False,
) -> None:
    """Go on with a run after any interruption; a finished run answers at once."""
    team = hosts.join(devices, parts.read)  # first: JAX has to know of it

    from scorebed._sharding import device_mesh
    from scorebed.cli._execute import execute
    from scorebed.runs.load import open_run

    begun = time.monotonic()
    with leading(team):
        context, given = device_mesh(devices), parts.read()
        found = open_run(run, given, strict=True)
        require_log(log)
        many.require_own_clock(found.config.minutes, hosts=hosts.hosts)
        with found.folder.acquire() as folder:
            execute(
                folder,
                found.config,
                found.task,
                parts=parts,
                given=given,
                as_json=as_json,
                begun=begun,
                context=context,
                team=team,
                many=many,
                log=log,
            )
