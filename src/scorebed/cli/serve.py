"""`scorebed serve RUN`: the experiment at the bench, as a web page and a JSON interface for
instruments.
"""

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from scorebed.cli._numbers import Count, FromZero
from scorebed.cli._output import Json, print_json, print_progress, print_text
from scorebed.cli._parts import RunParts
from scorebed.cli._worth import PricePerNat, StopBelow


def serve(
    run: Annotated[Path, Parameter(help="The folder of the run.")],
    /,
    *,
    port: Annotated[
        FromZero, Parameter(help="The port to listen on; 0 takes any that is free.")
    ] = 8321,
    host: Annotated[
        str, Parameter(help="The address to listen on; others than this machine can then connect.")
    ] = "127.0.0.1",
    db: Annotated[
        Path | None, Parameter(help="The file of experiments; RUN/live.sqlite if left out.")
    ] = None,
    parallel: Annotated[
        Count,
        Parameter(help="Instruments that measure at once: so many designs wait for outcomes."),
    ] = 1,
    price_per_nat: PricePerNat = None,
    stop_below: StopBelow = None,
    parts: RunParts = RunParts(),  # noqa: B008 (cyclopts reads the default, nothing changes it)
    as_json: Json = False,
) -> None:
    """Run experiments with a trained policy on a web page, shared by people and instruments.

    Open the link that is printed. Everything is stored at once: stop with Ctrl-C and give the same
    command to continue. With --json the link and the token are printed as JSON before serving.
    """
    from scorebed.errors import InvalidValueError, ScorebedError

    if port > 65535:
        raise InvalidValueError(
            "--port", got=f"'{port}'", expected="0 to 65535", fix="for example 8321."
        )
    try:
        from scorebed.web import server
    except ModuleNotFoundError as missing:
        if (missing.name or "").startswith("scorebed"):
            raise
        raise ScorebedError(
            f"the web page, got no package '{missing.name}', expected fastapi and uvicorn. Fix: "
            f"pip install 'scorebed[web]'."
        ) from missing
    from scorebed.runs.load import load
    from scorebed.session.stopping import StoppingRule

    def ready(link: str, token: str) -> None:
        if as_json:
            print_json({"link": link, "token": token})
        else:
            print_text(f"Open {link}\nStop by Ctrl-C; everything is stored.")
            if not server.is_loopback(host):
                print_text(
                    f"Listening on {host}: whoever has this link can enter outcomes, and it is "
                    f"not encrypted on its way."
                )
        sys.stdout.flush()

    server.serve(
        load(run, **parts.read()._asdict()),
        host=host,
        port=port,
        db=db,
        at_once=parallel,
        rule=StoppingRule.of(price_per_nat, stop_below),
        on_compiling=lambda: print_progress("compiling what the next design needs ..."),
        on_ready=ready,
    )
