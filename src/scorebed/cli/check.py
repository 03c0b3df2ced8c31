"""`scorebed check FILE.py:NAME`: is this task sound? What is wrong, how to fix it, and pictures."""

import io
import re
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from scorebed.cli._numbers import FromZero
from scorebed.cli._output import Json, print_json, print_text
from scorebed.cli._task import named_task


def check(
    task: Annotated[str, Parameter(help="FILE.py:NAME, or a built-in task.")],
    /,
    *,
    out: Annotated[Path | None, Parameter(help="The picture; NAME-check.png if left out.")] = None,
    seed: Annotated[FromZero, Parameter(help="Seed of the draws.")] = 0,
    as_json: Json = False,
) -> None:
    """Look for anything that would make training on a task go wrong, and say how to fix it.

    It finds wrong shapes, gradients that are NaN or zero, designs without effect, a sampler that
    disagrees with its density, and more. For a sound task it draws what the prior predicts,
    experiments with random designs, and where one step is most informative."""
    import time

    import jax.random as jr

    from scorebed.check import ERROR, check_task
    from scorebed.errors import InvalidValueError, require
    from scorebed.keys import named
    from scorebed.plots.check import draw_check
    from scorebed.plots.layout import lay_out
    from scorebed.runs.durable import replace_file

    require(
        out is None or not (out.is_dir() or out.name in ("", "..")),
        "--out",
        got=f"{out}, a folder",
        expected="the file of the picture",
        fix="name a file, such as check.png.",
    )
    key = named(jr.key(seed), "check")
    start = time.monotonic()
    model, _ = named_task(task)
    findings = check_task(model, key=named(key, "findings"))
    faults = [finding for finding in findings if finding.severity == ERROR]
    path = out or Path(re.sub(r"[^A-Za-z0-9_-]", "-", task.rpartition(":")[2]) + "-check.png")
    if not faults:
        picture = io.BytesIO()
        figure = draw_check(model, task, key=named(key, "pictures"))
        lay_out(figure).savefig(picture, format="png", dpi=110)
        replace_file(path, picture.getvalue())
    seconds = time.monotonic() - start
    if as_json:
        print_json(
            {
                "task": task,
                "sound": not faults,
                "findings": [finding._asdict() for finding in findings],
                "picture": None if faults else str(path),
                "seconds": round(seconds, 2),
            }
        )
    else:
        for finding in findings:
            print_text(f"{finding.severity}: {finding}")
        if not faults:
            print_text(f"{task} is sound ({seconds:.1f} s); pictures: {path}")
    if faults:
        raise InvalidValueError(
            task,
            got=f"{len(faults)} fault{'s' if len(faults) > 1 else ''}",
            expected="a sound task",
            fix=faults[0].fix + ".",
        )
