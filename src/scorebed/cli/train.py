"""`scorebed train TASK`: what is learned upfront, policies, bounds and record."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from scorebed.cli._hosts import HostOptions, leading
from scorebed.cli._log import Log, require_log
from scorebed.cli._many import HERE, ManyOptions
from scorebed.cli._numbers import Count, FromZero, Positive
from scorebed.cli._output import Json
from scorebed.cli._parts import RunParts
from scorebed.presets import DEFAULT_PRESET

if TYPE_CHECKING:
    from scorebed.runs.spending import Spending

FROM_FILE = "or FILE.py:NAME"


def train(
    task: Annotated[
        str, Parameter(help=f"A built-in task (`scorebed tasks` lists them), {FROM_FILE}.")
    ],
    /,
    *,
    preset: Annotated[str, Parameter(help="quick, laptop or paper.")] = DEFAULT_PRESET,
    method: Annotated[
        str | None,
        Parameter(
            help="score, if left out, or predictive where outcomes are finitely many; jointscore: "
            "the score goes on learning on the policy's own designs; pce; nmc; mlmc; varmarg; "
            f"varpost; jointvarpost; iosmc; static; random; myopic; {FROM_FILE}."
        ),
    ] = None,
    policy: Annotated[
        str | None,
        Parameter(
            help=f"modes, belief, plan, dad, gru, attention, static, {FROM_FILE}; the best for the "
            "task if left out."
        ),
    ] = None,
    score_kind: Annotated[
        str | None,
        Parameter(
            help="particles, laplace, transformer, transformer-direct, "
            f"{FROM_FILE}; the preset's if left out."
        ),
    ] = None,
    sampler: Annotated[
        str | None,
        Parameter(
            help="Designs to learn from: gaussian, random-scale, ar1, low-rank, uniform, "
            f"switching, {FROM_FILE}; the paper's for the task if left out."
        ),
    ] = None,
    policies: Annotated[
        Count | None, Parameter(help="Number of restarts, of which the best is kept.")
    ] = None,
    repeats: Annotated[
        Count | None,
        Parameter(
            help="Repeat the whole choice, for a standard error across policies; 4 in preset paper."
        ),
    ] = None,
    fresh_scores: Annotated[
        bool,
        Parameter(
            negative="",
            help="Learn a score or density anew in every repeat; otherwise all repeats share it.",
        ),
    ] = False,
    budget: Annotated[
        Count | None,
        Parameter(
            help="Likelihood evaluations of the training of each repeat; sizes are chosen to use "
            "them."
        ),
    ] = None,
    minutes: Annotated[
        Positive | None,
        Parameter(
            help="Minutes in all: steps and bounds are chosen to use them, and the time is watched."
        ),
    ] = None,
    match: Annotated[
        Path | None, Parameter(help="A run whose likelihood evaluations are the budget.")
    ] = None,
    score: Annotated[
        Path | None, Parameter(help="A run whose trained score, or density, is taken over.")
    ] = None,
    history: Annotated[
        Path | None,
        Parameter(
            help="A CSV file of steps that are over: training is for those that are left, after "
            "what they taught."
        ),
    ] = None,
    seed: Annotated[FromZero | None, Parameter(help="Seed of all random numbers.")] = None,
    devices: Annotated[
        Count, Parameter(help="Number of devices among which every batch is shared out.")
    ] = 1,
    hosts: HostOptions = HostOptions(),  # noqa: B008 (cyclopts reads it, nothing changes it)
    many: ManyOptions = HERE,
    long: Annotated[
        bool, Parameter(negative="", help="Begin even if it takes more than a day.")
    ] = False,
    out: Annotated[
        Path | None, Parameter(help="Folder of the run; runs/TASK-METHOD-N if left out.")
    ] = None,
    config: Annotated[Path | None, Parameter(help="A TOML file laid over the preset.")] = None,
    set_: Annotated[
        list[str],
        Parameter(name="--set", negative="", help="A single value, as key=value: score.steps=500."),
    ] = [],  # noqa: B006 (cyclopts reads the default, nothing changes it)
    log: Log = None,
    as_json: Json = False,
) -> None:
    """Train a score and policies, choose the best, bound its information gain: all in a folder."""

    def named_parts() -> RunParts:
        from scorebed.runs.user_parts import is_from_file

        names = (task, method, policy, score_kind, sampler)
        return RunParts(*(name if name and is_from_file(name) else None for name in names))

    begun = time.monotonic()
    team = hosts.join(devices, lambda: named_parts().read())  # first: JAX has to know of it

    from scorebed._sharding import device_mesh
    from scorebed.cli._execute import execute
    from scorebed.presets.reader import default_method
    from scorebed.runs.begin import Request, plan
    from scorebed.runs.config import refuse_contradictions, sets_upfront
    from scorebed.runs.hosts import require_upfront
    from scorebed.runs.watch import Watch
    from scorebed.tasks import make_task

    with leading(team):
        require_log(log)
        refuse_contradictions(set_, {"task": task, "method": method})
        many.require_own_clock(minutes, hosts=hosts.hosts)
        named = named_parts()
        context = device_mesh(devices)
        spending = _spending(budget, match, minutes, begun)
        parts = named.read()
        user = parts.task
        model: Any = make_task(task) if user is None else user.task  # type: ignore[union-attr]
        given = {"policies": policies, "repeats": repeats, "seed": seed, "sampler": sampler}
        given |= {"fresh_scores": "true"} if fresh_scores else {}
        asked = (policies, budget, match, score, score_kind, sampler)
        trained = (
            fresh_scores or any(each is not None for each in asked) or sets_upfront(set_, config)
        )
        request = Request(
            task_name=task,
            task=model,
            preset=preset,
            method=method or default_method(preset, model, policy=policy, trained=trained),
            policy=policy,
            policies=policies,
            score_kind=score_kind,
            overrides=[*(f"{k}={v}" for k, v in given.items() if v is not None), *set_],
            file=config,
            score=score,
            history=history,
            spending=spending,
            parts=parts,
            devices=devices,
            long=long,
        )
        with device_mesh(devices):
            run = plan(request)
        if team is not None:
            require_upfront(run.config, run.task)
        with run.create(out) as folder:
            if run.config.minutes:
                Watch.start(folder)
            execute(
                folder,
                run.config,
                run.task,
                parts=named,
                given=parts,
                as_json=as_json,
                begun=begun,
                context=context,
                team=team,
                many=many,
                log=log,
            )


def _spending(
    budget: int | None, match: Path | None, minutes: float | None, begun: float
) -> "Spending | None":
    """What a run may spend, from the three ways of saying so."""
    from scorebed.errors import require
    from scorebed.runs.execution import RECORD
    from scorebed.runs.folder import RunFolder
    from scorebed.runs.record import Record
    from scorebed.runs.spending import Spending

    given = {"--budget": budget, "--match": match, "--minutes": minutes}
    names = [name for name, value in given.items() if value is not None]
    require(
        len(names) < 2,
        " and ".join(names),
        got=f"{len(names)} limits",
        expected="one of them",
        fix="leave the others out.",
    )
    if match is not None:
        record: Any = RunFolder.open(match).read_json(RECORD)
        budget = Record.read(record).budget_used
    return Spending(budget, minutes, begun) if names else None
