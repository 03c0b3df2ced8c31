"""`scorebed live RUN`: the experiment at the bench, in a terminal."""

import contextlib
import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from scorebed.cli._numbers import Count, FromZero
from scorebed.cli._output import Json, print_json
from scorebed.cli._parts import RunParts
from scorebed.cli._worth import PricePerNat, StopBelow


def live(
    run: Annotated[Path, Parameter(help="The folder of the run.")],
    /,
    *,
    db: Annotated[
        Path | None, Parameter(help="The file of experiments; RUN/live.sqlite if left out.")
    ] = None,
    experiment: Annotated[
        str | None,
        Parameter(
            help="A name, new or old; the newest that is not finished, or a new one, if left out."
        ),
    ] = None,
    seed: Annotated[
        FromZero | None, Parameter(help="Seed of a new experiment's designs; random if left out.")
    ] = None,
    steps: Annotated[
        Count | None,
        Parameter(
            help="Number of steps of a new experiment; as many as the policy was trained for if "
            "left out."
        ),
    ] = None,
    limits: Annotated[
        str | None,
        Parameter(
            allow_leading_hyphen=True,
            help="Tighter limits for the designs of a new experiment: low:high, a pair for every "
            "coordinate.",
        ),
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
    """Run an experiment with a trained policy: next design, measure, enter the outcome, repeat.

    Everything is stored at once. Leave at any time and give the same command to continue. With
    --json the dialogue is on stderr."""
    from scorebed.cli._dialogue import Dialogue
    from scorebed.runs.load import load
    from scorebed.session.session import Session
    from scorebed.session.validation import parse_limits

    loaded = load(run, **parts.read()._asdict())
    allowed = None if limits is None else parse_limits(loaded.task, limits)
    with Session.open(
        loaded,
        db=db,
        experiment=experiment,
        seed=seed,
        steps=steps,
        limits=allowed,
        price_per_nat=price_per_nat,
        stop_below=stop_below,
    ) as session:
        with contextlib.redirect_stdout(sys.stderr) if as_json else contextlib.nullcontext():
            kept = {
                "--parallel": None if parallel == 1 else parallel,
                "--price-per-nat": price_per_nat,
                "--stop-below": stop_below,
            }
            again = _again(run, db, parts, session.name, kept)
            Dialogue(session, resume=again, at_once=parallel).hold()
        if as_json:
            print_json(session.summary())


def _again(run: Path, db: Path | None, parts: RunParts, name: str, kept: dict[str, Any]) -> str:
    """The command that goes on with an experiment."""
    options = {"--db": db, **parts.options(), "--experiment": name, **kept}
    words = [
        word
        for option, value in options.items()
        if value is not None
        for word in (option, str(value))
    ]
    return shlex.join(["scorebed", "live", str(run), *words])
