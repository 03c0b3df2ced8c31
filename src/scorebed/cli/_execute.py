"""What `train` and `resume` share: carry a run out, keep it on Ctrl-C, answer."""

import sys
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from scorebed.cli._output import LEFT, RIGHT, print_json, print_table, print_text
from scorebed.cli._parts import RunParts
from scorebed.cli._progress import Bars
from scorebed.diagnostics import REMEDY, Coverage, uncovered
from scorebed.report import write_report
from scorebed.runs.config import RunConfig
from scorebed.runs.evaluation import CONTRASTIVE, ceiling_sentence, in_words, tighter
from scorebed.runs.execution import Execution
from scorebed.runs.folder import RunFolder
from scorebed.runs.user_parts import UserParts
from scorebed.tasks.base import Task


def execute(
    folder: RunFolder,
    config: RunConfig,
    task: Task,
    *,
    parts: RunParts,
    given: UserParts,
    as_json: bool,
    context: AbstractContextManager[Any] | None = None,
) -> None:
    """Carry out what is left of a run that this process owns.

    `parts` and `given` are what of it is the user's, as named and as read. `context` is that of
    several devices (`_sharding.device_mesh`).
    """
    bars = Bars()
    try:
        with context or nullcontext():
            record = Execution(folder, config, task, progress=bars).run()
    except KeyboardInterrupt:
        bars.close()
        sys.stderr.write(
            f"stopped; the state is kept. Go on with: scorebed resume {folder.path}{parts}\n"
        )
        raise
    write_report(folder.path, parts=given)
    if as_json:
        print_json(record.values() | {"run": str(folder.path)})
    else:
        show(record.values(), str(folder.path))


def show(record: dict[str, Any], path: str) -> None:
    """The bounds of a run and of its references, for a person."""
    rows = [("policy " + record["policy"], record)] + [
        (n, b) for n, b in record["references"].items()
    ]
    costs = ("cost", "in nats") if "cost" in record else ()
    contrastive = record["bound"] == CONTRASTIVE
    print_table(
        {"designs": LEFT} | dict.fromkeys(("lower bound", "upper bound", *costs, "N", "M"), RIGHT),
        [
            [
                name,
                f"{b['lower']:.3f} ± {b['lower_se']:.3f}",
                f"{b['upper']:.3f} ± {b['upper_se']:.3f}" if contrastive else "none",
                *(
                    [f"{b['cost']:.4g} ± {b['cost_se']:.2g}", f"{b['cost_nats']:.3f}"]
                    if costs
                    else []
                ),
                f"{b['outer']:,}",
                f"{b['inner']:,}" if contrastive else "none",
            ]
            for name, b in rows
        ],
    )
    if "lower_se_repeats" in record:
        sides = ("lower", "upper") if contrastive else ("lower",)
        errors = [
            f"{side} {record[side]:.3f} ± {record[f'{side}_se_repeats']:.3f}" for side in sides
        ]
        print_text(f"across {len(record['repeats'])} repeats: {', '.join(errors)}")
    if not contrastive or "interest" in record:
        print_text(f"bounds: {in_words(record)}")
    saturated = ceiling_sentence(record, "the policy", tighter(record, path))
    if saturated:
        print_text(saturated)
    if "coverage" in record and (
        far := uncovered(Coverage(np.asarray(record["coverage"]["outside_by_step"])))
    ):
        print_text(f"{far}. {REMEDY} The plot: scorebed diagnose {path}")
    print_text(
        f"{record['nle']:,} NLE of training{_a_repeat(record)}, {record['nle_selection']:,} of "
        f"selection, {record['nle_evaluation']:,} of evaluation; "
        f"{record['seconds']['total']:.0f} s in all; report: {path}/report.html"
    )


def _a_repeat(record: dict[str, Any]) -> str:
    """What one of several repeats costs in full."""
    return f" ({record['nle_per_repeat']:,} a repeat)" if "nle_per_repeat" in record else ""
