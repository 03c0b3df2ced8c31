"""`scorebed export RUN`: the policy for a bench computer."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from scorebed.cli._numbers import Count, FromTwo
from scorebed.cli._output import Json, print_json, print_text
from scorebed.cli._parts import RunParts


def export(
    run: Annotated[Path, Parameter(help="The folder of the run.")],
    /,
    *,
    out: Annotated[
        Path | None, Parameter(help="The folder to make; RUN/export if left out.")
    ] = None,
    distil: Annotated[
        str | None,
        Parameter(
            help="plan, gru, attention, dad: a network of this kind that imitates the policy, for "
            "computers that cannot run it."
        ),
    ] = None,
    experiments: Annotated[
        Count, Parameter(help="Of --distil: simulated experiments to imitate.")
    ] = 512,
    outer: Annotated[
        FromTwo, Parameter(help="Of --distil: experiments in which its loss is measured.")
    ] = 256,
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
    opened = load(run, **parts.read()._asdict())
    manifest = export_policy(opened, path, distil=distil, experiments=experiments, outer=outer)
    if as_json:
        print_json({"folder": str(path), **manifest})
        return
    onnx = manifest["onnx"]
    print_text(str(path))
    if distil is not None and manifest["distilled"]["outer"]:
        lost = manifest["distilled"]
        print_text(
            f"{distil} is behind {lost['of']} by {lost['behind']:.3f} ± {lost['behind_se']:.3f} "
            f"nats in {lost['outer']} experiments"
        )
    print_text(
        "jax.export and ONNX"
        if onnx["programs"]
        else f"jax.export; no ONNX, because {onnx['reason']}"
    )
