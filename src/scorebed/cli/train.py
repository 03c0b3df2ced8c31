"""`scorebed train TASK`: both stages of ScoreBED, bounds and record."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from scorebed.cli._output import Json
from scorebed.cli._task import named_task

if TYPE_CHECKING:
    from scorebed.runs.folder import RunFolder
    from scorebed.runs.own import OwnTask
    from scorebed.runs.terms import Terms
    from scorebed.tasks.base import Task


def train(
    task: Annotated[str, Parameter(help="A built-in task (`scorebed tasks` lists them), or FILE.py:NAME.")],
    /,
    *,
    preset: Annotated[str, Parameter(help="quick, laptop or paper.")] = "quick",
    method: Annotated[
        str,
        Parameter(
            help="score; jointscore: the score goes on learning on the policy's own designs; pce; nmc; mlmc; varmarg; varpost; "
            "jointvarpost; iosmc; static; random; myopic."
        ),
    ] = "score",
    policy: Annotated[
        str | None, Parameter(help="dad, gru, attention or static; the paper's for the task if left out.")
    ] = None,
    policies: Annotated[str | None, Parameter(help="Number of restarts, of which the best is kept.")] = None,
    repeats: Annotated[
        str | None, Parameter(help="Repeat the whole choice, for a standard error across policies.")
    ] = None,
    budget: Annotated[
        str | None, Parameter(help="Likelihood evaluations of training; sizes are chosen to use them.")
    ] = None,
    minutes: Annotated[str | None, Parameter(help="Minutes of training; steps are chosen to use them.")] = None,
    match: Annotated[Path | None, Parameter(help="A run whose likelihood evaluations are the budget.")] = None,
    score: Annotated[Path | None, Parameter(help="A run whose trained score, or density, is taken over.")] = None,
    seed: Annotated[str | None, Parameter(help="Seed of all random numbers.")] = None,
    out: Annotated[Path | None, Parameter(help="Folder of the run; runs/TASK-METHOD-N if left out.")] = None,
    config: Annotated[Path | None, Parameter(help="A TOML file laid over the preset.")] = None,
    set_: Annotated[
        list[str], Parameter(name="--set", negative="", help="A single value, as key=value: score.steps=500.")
    ] = [],  # noqa: B006 (cyclopts reads the default, nothing changes it)
    as_json: Json = False,
) -> None:
    """Train a score and a policy on it, bound its information gain, and keep everything in a run folder."""
    from scorebed.cli._execute import execute

    given = {"policy": policy, "policies": policies, "repeats": repeats, "seed": seed}
    overrides = [f"{key}={value}" for key, value in given.items() if value is not None] + list(set_)
    allowed = _allowed(budget, match, minutes)
    named, own = named_task(task)
    with _begin(task, named, own, preset, method, score, out, config, overrides, allowed) as folder:
        execute(folder, task=own, as_json=as_json)


def _allowed(budget: str | None, match: Path | None, minutes: str | None) -> "Terms | None":
    """What a run may spend, from the three ways of saying so."""
    from scorebed.cli._numbers import positive, whole
    from scorebed.errors import require
    from scorebed.runs.folder import RunFolder
    from scorebed.runs.terms import Terms

    given = {"--budget": budget, "--match": match, "--minutes": minutes}
    names = [name for name, value in given.items() if value is not None]
    require(len(names) < 2, " and ".join(names), got=f"{len(names)} limits", expected="one of them",
            fix="leave the others out.")  # fmt: skip
    if minutes is not None:
        return Terms(minutes=positive("--minutes", minutes))
    if match is not None:
        record: dict[str, Any] = RunFolder.open(match).read_json("record.json")  # type: ignore[assignment]
        return Terms(budget=int(record["nle"]))
    return None if budget is None else Terms(budget=whole("--budget", budget, 1))


def _begin(
    name: str,
    task: "Task",
    own: "OwnTask | None",
    preset: str,
    method: str,
    score: Path | None,
    out: Path | None,
    config: Path | None,
    overrides: list[str],
    terms: "Terms | None",
) -> "RunFolder":
    """A new run folder with its configuration, and with the score that is taken over. Nothing is written on bad input."""
    from scorebed.bench.presets import preset_values
    from scorebed.errors import UnknownNameError, require
    from scorebed.policies import POLICIES
    from scorebed.runs.artifacts import check_upfront, copy_upfront
    from scorebed.runs.config import METHODS, make_config
    from scorebed.runs.folder import RunFolder
    from scorebed.runs.methods import UNTRAINED, UPFRONT
    from scorebed.runs.own import compare_source

    if method not in METHODS:
        raise UnknownNameError("method", method, METHODS)
    values = preset_values(preset, name, task, method=method)
    if score is not None:
        require(method in UPFRONT, "--score", got=f"method {method}", expected=" or ".join(UPFRONT),
                fix="leave it out: this method learns nothing upfront.")  # fmt: skip
        values |= check_upfront(score, method, task)
        if own is not None:
            compare_source(RunFolder.open(score).config(), own, strict=False)
    source = [] if own is None else [f"task_source={own.digest!r}"]
    resolved = make_config(values, [*overrides, *source], config)
    if resolved.policy not in POLICIES and method not in UNTRAINED:
        raise UnknownNameError("policy", resolved.policy, POLICIES)
    require(method != "iosmc" or resolved.policy == "gru", "the policy of iosmc", got=resolved.policy,
            expected="gru, whose designs have a density", fix="add --policy gru.")  # fmt: skip
    resolved = resolved if terms is None else terms.apply(resolved, task, own)
    folder = RunFolder.create(out, resolved) if out is not None else RunFolder.create_next(Path("runs"), resolved)
    if score is not None:
        copy_upfront(score, folder)
    return folder
