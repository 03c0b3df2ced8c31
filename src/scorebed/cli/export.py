"""`scorebed export RUN`: the policy for a bench computer."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from scorebed.cli._output import Json, print_json, print_text
from scorebed.cli._parts import RunParts


def export(
    run: Annotated[Path, Parameter(help="The folder of the run.")],
    /,
    *,
    out: Annotated[
        Path | None, Parameter(help="The folder to make; RUN/export if left out.")
    ] = None,
    parts: RunParts = RunParts(),  # noqa: B008 (cyclopts reads the default, nothing changes it)
    as_json: Json = False,
) -> None:
    """Write the policy of a run to a folder that works without scorebed.

    The folder has the weights, programs (jax.export and ONNX) and a client. One that exists is
    never overwritten. With --json the manifest is printed.
    """
    from scorebed.export.folder import export_policy
    from scorebed.runs.load import load

    path = run / "export" if out is None else out
    manifest = export_policy(load(run, **parts.read()._asdict()), path)
    if as_json:
        print_json({"folder": str(path), **manifest})
        return
    onnx = manifest["onnx"]
    print_text(str(path))
    print_text(
        "jax.export and ONNX"
        if onnx["programs"]
        else f"jax.export; no ONNX, because {onnx['reason']}"
    )
