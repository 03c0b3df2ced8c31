"""What `train` and `resume` share: carry a run out, keep it on Ctrl-C, answer."""

import sys
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np

from scorebed.cli._log import keep_log
from scorebed.cli._many import HERE, ManyOptions
from scorebed.cli._output import LEFT, RIGHT, print_json, print_table, print_text
from scorebed.cli._parts import RunParts
from scorebed.cli._progress import Bars
from scorebed.diagnostics import REMEDY, Coverage, uncovered
from scorebed.report import write_report
from scorebed.runs.config import RunConfig
from scorebed.runs.evaluation import (
    CONTRASTIVE,
    advantage,
    ceiling_sentence,
    headline,
    in_words,
    tight_in_words,
    tighter,
    undecided,
)
from scorebed.runs.execution import RECORD, Execution
from scorebed.runs.folder import RunFolder
from scorebed.runs.user_parts import UserParts
from scorebed.runs.watch import Watch
from scorebed.tasks.base import Task

if TYPE_CHECKING:
    from scorebed.runs.host_team import Team


def execute(
    folder: RunFolder,
    config: RunConfig,
    task: Task,
    *,
    parts: RunParts,
    given: UserParts,
    as_json: bool,
    begun: float,
    context: AbstractContextManager[Any] | None = None,
    team: "Team | None" = None,
    many: ManyOptions = HERE,
    log: str | None = None,
) -> None:
    """Carry out what is left of a run that this process owns.

    `parts` and `given` are what of it is the user's, as named and as read. `begun` is when the
    command began, from which the minutes of a run count. `context` is that of several devices
    (`_sharding.device_mesh`), `team` the hosts that learn with this one, and `many` says who trains
    policies. `log` is who else is told of the metrics.
    """
    keep_log(folder, log)
    if many.slurm:
        command = ["resume", str(folder.path), *parts.words()]
        many.write_script(folder.path / "array.sh", command, as_json=as_json)
        return
    bars = Bars()
    watch = Watch.of(folder, config.minutes, begun=begun)
    try:
        if team is not None:
            from scorebed.runs.host_team import quiet_stdout
            from scorebed.runs.hosts import lead

            with quiet_stdout():
                lead(team, folder, config, task, progress=bars)
        with context or nullcontext():
            if not (folder.path / RECORD).exists():
                _share_policies(folder, config, task, parts, many, bars)
            record = Execution(folder, config, task, progress=bars, watch=watch).run()
            if folder.log is not None:
                folder.log.finish(record)
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


def _share_policies(
    folder: RunFolder,
    config: RunConfig,
    task: Task,
    parts: RunParts,
    many: ManyOptions,
    bars: Bars,
) -> None:
    """Let workers train the policies, if there are any."""
    with many.pool() as pool:
        if pool is not None:
            from scorebed.runs.shared_policies import train_shared

            execution = Execution(folder, config, task, progress=bars)
            train_shared(execution, pool, parts.names().anywhere())


def show(record: dict[str, Any], path: str) -> None:
    """The bounds of a run and of its references, for a person."""
    contrastive, tight = record["bound"] == CONTRASTIVE, "tight_lower" in record
    costs = ("cost", "in nats") if "cost" in record else ()
    if tight:
        _show_tight(record)
    rows = [("policy " + record["policy"], record), *record["references"].items()]
    ahead = ("policy ahead by",) if any("advantage" in b for _, b in rows) else ()
    if not tight or costs:
        print_table(
            {"designs": LEFT}
            | dict.fromkeys(("lower bound", "upper bound", *ahead, *costs, "N", "M"), RIGHT),
            [
                [
                    name,
                    f"{b['lower']:.3f} ± {b['lower_se']:.3f}",
                    f"{b['upper']:.3f} ± {b['upper_se']:.3f}" if contrastive else "none",
                    *([advantage(b)] if ahead else []),
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
    for sentence in undecided(record):
        print_text(sentence)
    if not contrastive or "interest" in record:
        print_text(f"bounds: {in_words(record)}")
    saturated = ceiling_sentence(record, "the policy", tighter(record, path))
    if saturated and not tight:
        print_text(saturated)
    for stage, step in record.get("ended_by_clock", {}).items():
        print_text(f"{stage} ended at step {step:,}: its share of --minutes was over.")
    for stage, count in record.get("dropped", {}).items():
        print_text(
            f"{count:,} trajectories of {stage} were not finite and left out; "
            f"`scorebed check` shows where the model overflows."
        )
    if "coverage" in record and (
        far := uncovered(Coverage(np.asarray(record["coverage"]["outside_by_step"])))
    ):
        print_text(f"{far}. {REMEDY} The plot: scorebed diagnose {path}")
    if record.get("trained") is False:
        print_text("The policy has nothing to train: it stands as it was made.")
    print_text(
        f"{record['nle']:,} NLE of training{_a_repeat(record)}, {record['nle_selection']:,} of "
        f"selection, {record['nle_evaluation']:,} of evaluation; "
        f"{record['seconds']['total']:.0f} s in all; report: {path}/report.html"
    )


def _show_tight(record: dict[str, Any]) -> None:
    """Tight bounds of the policy and of what it is compared with in the same experiments."""
    lead = headline(record)
    rows = [("policy " + record["policy"], lead), *record["paired"].items()]
    columns = dict.fromkeys(("lower bound", "upper bound", "policy ahead by", "N"), RIGHT)
    print_table(
        {"designs": LEFT} | columns,
        [
            [
                name,
                f"{b['lower']:.3f} ± {b['lower_se']:.3f}",
                f"{b['upper']:.3f} ± {b['upper_se']:.3f}",
                advantage(b),
                f"{b['outer']:,}",
            ]
            for name, b in rows
        ],
    )
    print_text(tight_in_words(record))


def _a_repeat(record: dict[str, Any]) -> str:
    """What one of several repeats costs in full."""
    return f" ({record['nle_per_repeat']:,} a repeat)" if "nle_per_repeat" in record else ""
