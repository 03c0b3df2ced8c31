"""`scorebed train TASK`: both stages of ScoreBED, bounds and record."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from scorebed.cli._output import Json
from scorebed.cli._task import named_task

if TYPE_CHECKING:
    from scorebed.runs.folder import RunFolder
    from scorebed.runs.terms import Terms
    from scorebed.runs.user_task import UserTask
    from scorebed.tasks.base import Task


def train(
    task: Annotated[
        str, Parameter(help="A built-in task (`scorebed tasks` lists them), or FILE.py:NAME.")
    ],
    /,
    *,
    preset: Annotated[str, Parameter(help="quick, laptop or paper.")] = "quick",
    method: Annotated[
        str,
        Parameter(
            help="score; jointscore: the score goes on learning on the policy's own designs; "
            "pce; nmc; mlmc; varmarg; varpost; "
            "jointvarpost; iosmc; static; random; myopic."
        ),
    ] = "score",
    policy: Annotated[
        str | None,
        Parameter(
            help="modes, plan, dad, gru, attention or static; the best for the task if left out."
        ),
    ] = None,
    policies: Annotated[
        str | None, Parameter(help="Number of restarts, of which the best is kept.")
    ] = None,
    repeats: Annotated[
        str | None, Parameter(help="Repeat the whole choice, for a standard error across policies.")
    ] = None,
    budget: Annotated[
        str | None,
        Parameter(help="Likelihood evaluations of training; sizes are chosen to use them."),
    ] = None,
    minutes: Annotated[
        str | None, Parameter(help="Minutes of training; steps are chosen to use them.")
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
    seed: Annotated[str | None, Parameter(help="Seed of all random numbers.")] = None,
    devices: Annotated[
        str, Parameter(help="Number of devices among which every batch is shared out.")
    ] = "1",
    out: Annotated[
        Path | None, Parameter(help="Folder of the run; runs/TASK-METHOD-N if left out.")
    ] = None,
    config: Annotated[Path | None, Parameter(help="A TOML file laid over the preset.")] = None,
    set_: Annotated[
        list[str],
        Parameter(name="--set", negative="", help="A single value, as key=value: score.steps=500."),
    ] = [],  # noqa: B006 (cyclopts reads the default, nothing changes it)
    as_json: Json = False,
) -> None:
    """Train a score and a policy on it, bound its information gain, and keep everything in a run
    folder.
    """
    from scorebed._sharding import device_mesh
    from scorebed.cli._execute import execute
    from scorebed.cli._numbers import whole

    context = device_mesh(whole("--devices", devices, 1))
    given = {"policy": policy, "policies": policies, "repeats": repeats, "seed": seed}
    overrides = [f"{key}={value}" for key, value in given.items() if value is not None] + list(set_)
    allowed = _allowed(budget, match, minutes)
    named, own = named_task(task)
    with _begin(
        task, named, own, preset, method, policy, score, history, out, config, overrides, allowed
    ) as folder:
        execute(folder, task=own, as_json=as_json, context=context)


def _allowed(budget: str | None, match: Path | None, minutes: str | None) -> "Terms | None":
    """What a run may spend, from the three ways of saying so."""
    from scorebed.cli._numbers import positive, whole
    from scorebed.errors import require
    from scorebed.runs.folder import RunFolder
    from scorebed.runs.terms import Terms

    given = {"--budget": budget, "--match": match, "--minutes": minutes}
    names = [name for name, value in given.items() if value is not None]
    require(
        len(names) < 2,
        " and ".join(names),
        got=f"{len(names)} limits",
        expected="one of them",
        fix="leave the others out.",
    )
    if minutes is not None:
        return Terms(minutes=positive("--minutes", minutes))
    if match is not None:
        record: dict[str, Any] = RunFolder.open(match).read_json("record.json")  # type: ignore[assignment]
        return Terms(budget=int(record["nle"]))
    return None if budget is None else Terms(budget=whole("--budget", budget, 1))


def _after(task: "Task", path: Path) -> "tuple[Task, dict[str, Any]]":
    """What is left of a task after the steps in a file, and the section of the configuration that
    says so.
    """
    import jax.random as jr

    from scorebed.inference.history import learn_history
    from scorebed.runs.history import after_history, read_history, with_history
    from scorebed.runs.sections import HistoryConfig
    from scorebed.tasks.continued import continued

    past = read_history(path, task)
    continued(
        task, task.prior, *past
    )  # a history that does not fit is refused before anything is computed
    # The same file gives the same prior, whatever the seed of the run: a score can be taken over by
    # another run.
    section = with_history(past, learn_history(task, *past, key=jr.key(0)))
    return after_history(task, HistoryConfig(**section)), section


def _begin(
    name: str,
    task: "Task",
    own: "UserTask | None",
    preset: str,
    method: str,
    policy: str | None,
    score: Path | None,
    history: Path | None,
    out: Path | None,
    config: Path | None,
    overrides: list[str],
    terms: "Terms | None",
) -> "RunFolder":
    """A new run folder with its configuration, and with the score that is taken over. Nothing is
    written on bad input.
    """
    from scorebed.errors import UnknownNameError, require
    from scorebed.policies import POLICIES
    from scorebed.presets.values import preset_values
    from scorebed.runs.artifacts import check_upfront, copy_upfront
    from scorebed.runs.config import METHODS, make_config
    from scorebed.runs.folder import RunFolder
    from scorebed.runs.methods import UNTRAINED, UPFRONT, require_fit, require_method
    from scorebed.runs.user_task import compare_source

    if method not in METHODS:
        raise UnknownNameError("method", method, METHODS)
    require_method(method, task)
    values = preset_values(preset, name, task, method=method, policy=policy)
    if history is not None:
        task, values["history"] = _after(task, history)
    if score is not None:
        require(
            method in UPFRONT,
            "--score",
            got=f"method {method}",
            expected=" or ".join(UPFRONT),
            fix="leave it out: this method learns nothing upfront.",
        )
        values |= check_upfront(score, method, task)
        if own is not None:
            compare_source(RunFolder.open(score).config(), own, strict=False)
    source = [] if own is None else [f"task_source={own.digest!r}"]
    resolved = make_config(values, [*overrides, *source], config)
    if resolved.policy not in POLICIES and method not in UNTRAINED:
        raise UnknownNameError("policy", resolved.policy, POLICIES)
    require(
        method != "iosmc" or resolved.policy == "gru",
        "the policy of iosmc",
        got=resolved.policy,
        expected="gru, whose designs have a density",
        fix="add --policy gru.",
    )
    require_fit(resolved, task)
    resolved = resolved if terms is None else terms.apply(resolved, task, own)
    folder = (
        RunFolder.create(out, resolved)
        if out is not None
        else RunFolder.create_next(Path("runs"), resolved)
    )
    if score is not None:
        copy_upfront(score, folder)
    return folder
