"""`scorebed sweep create|work|status|best|report STUDY`: policies searched for on one score."""

import math
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from scorebed.cli._many import require_room_for
from scorebed.cli._numbers import Count, FromZero, Positive
from scorebed.cli._output import (
    LEFT,
    RIGHT,
    TEXT,
    Json,
    print_json,
    print_table,
    print_text,
    stdout_console,
)
from scorebed.cli._parts import RunParts

if TYPE_CHECKING:
    from scorebed.sweeps.status import SweepStatus
    from scorebed.sweeps.winner import Winner

sweep = App(
    name="sweep",
    help="Search policies on one trained score, by any number of workers.",
    help_format="plaintext",
)

LOOK_AGAIN = 2.0  # seconds between two looks of `status --live`
AT_ONCE = 2.0  # seconds within which signals count as one
Study = Annotated[Path, Parameter(help="Folder of the study.")]


@sweep.command
def create(
    study: Study,
    /,
    *,
    score: Annotated[Path, Parameter(help="A run whose trained score, or density, is taken in.")],
    space: Annotated[
        Path | None,
        Parameter(help="A TOML file of what is searched; the task's own space if left out."),
    ] = None,
    trials: Annotated[
        Count | None, Parameter(help="Number of trials; 30, or all points of a grid.")
    ] = None,
    preset: Annotated[
        str | None, Parameter(help="What is not searched; the score's preset if left out.")
    ] = None,
    sampler: Annotated[
        str | None, Parameter(help="How settings are suggested: tpe, cmaes, random, grid.")
    ] = None,
    halvings: Annotated[
        FromZero, Parameter(help="Times that the worse half of the trials is stopped on the way.")
    ] = 0,
    seed: Annotated[FromZero, Parameter(help="Seed of the study.")] = 0,
    storage: Annotated[
        str, Parameter(help="URL of a database for the trials; a file in the study if left out.")
    ] = "",
    task: Annotated[
        str | None, Parameter(help="FILE.py:NAME, if the score's task is yours.")
    ] = None,
    set_: Annotated[
        list[str],
        Parameter(name="--set", negative="", help="A value of all trials, as key=value."),
    ] = [],  # noqa: B006 (cyclopts reads the default, nothing changes it)
    as_json: Json = False,
) -> None:
    """A new study: it takes in the score of a run, and a space to search."""
    from scorebed.sweeps.creation import create_study, read_space_file
    from scorebed.sweeps.searches import DEFAULT_SEARCH

    made = create_study(
        study,
        score,
        space=None if space is None else read_space_file(space),
        trials=trials,
        preset=preset,
        sampler=sampler or DEFAULT_SEARCH,
        halvings=halvings,
        seed=seed,
        storage=storage,
        overrides=set_,
        parts=RunParts(task=task).read(),
    )
    if as_json:
        print_json({"study": str(study), "trials": made.trials, "files": dict(made.files)})
        return
    print_text(
        f"{study}: {made.trials} trials of {made.task}. Run them: scorebed sweep work {study}"
    )


@sweep.command
def work(
    study: Study,
    /,
    *,
    trials: Annotated[
        Count | None, Parameter(help="Stop after so many trials; go on to the last if left out.")
    ] = None,
    workers: Annotated[
        Count, Parameter(help="Number of workers on this machine, each a process of its own.")
    ] = 1,
    dask: Annotated[
        str | None,
        Parameter(help="Address of a Dask scheduler: one worker on each of its workers."),
    ] = None,
    slurm: Annotated[
        bool,
        Parameter(
            negative="",
            help="Run nothing: write a script for a SLURM array of so many workers.",
        ),
    ] = False,
    lease: Annotated[
        Positive,
        Parameter(help="Seconds after which a worker that gives no sign counts as dead."),
    ] = 60.0,
    task: Annotated[
        str | None, Parameter(help="FILE.py:NAME, if the study's task is yours.")
    ] = None,
    as_json: Json = False,
) -> None:
    """A worker: it carries trials out until none is left. Start any number of them, on any machine
    that shares the folder.
    """
    from scorebed.sweeps.study import open_study

    if not slurm:
        require_room_for(workers)
    opened = open_study(study)
    options = ["--lease", f"{lease:g}", *(["--task", task] if task else [])]
    if slurm:
        from scorebed.sweeps.many import write_array_script

        path = write_array_script(opened, workers, options)
        if as_json:
            print_json({"script": str(path)})
        else:
            print_text(f"{path}: look at its time and memory, then: sbatch {path}")
        return
    _stop_on_signals()
    if dask is not None:
        from scorebed.sweeps.on_dask import run_on_dask

        _require_all(trials, workers, task)
        run_on_dask(opened, dask, lease_seconds=lease, say=_say)
        status(study, as_json=as_json)
        return
    if workers > 1:
        from scorebed.sweeps.many import run_workers

        _require_all(trials)
        run_workers(opened, workers, options)
        status(study, as_json=as_json)
        return

    from scorebed.cli._progress import Bars
    from scorebed.sweeps.worker import Worker

    bars = Bars()
    try:
        worker = Worker(
            opened,
            parts=RunParts(task=task).read(),
            progress=bars,
            lease_seconds=lease,
        )
        ended = worker.work(at_most=trials)
    except KeyboardInterrupt:
        bars.close()
        sys.stderr.write(f"stopped; the state is kept. Go on with: scorebed sweep work {study}\n")
        raise
    if as_json:
        print_json({"study": str(study), "worker": worker.owner, "ended": ended})
        return
    print_text(f"{ended} trials ended by this worker; see: scorebed sweep status {study}")


@sweep.command
def status(
    study: Study,
    /,
    *,
    live: Annotated[
        bool, Parameter(negative="", help="Show it again and again, until all trials are over.")
    ] = False,
    as_json: Json = False,
) -> None:
    """How far a study is: the best so far, the rate, the time left, who runs what."""
    from scorebed.sweeps.status import study_status
    from scorebed.sweeps.study import open_study

    opened = open_study(study)
    loaded = opened.load(brief=True)
    found = study_status(opened, loaded)
    while live and not as_json and not found.over:
        stdout_console().clear()
        _show_status(found)
        time.sleep(LOOK_AGAIN)
        found = study_status(opened, loaded)
    if as_json:
        print_json(found.values())
        return
    _show_status(found)


@sweep.command
def best(
    study: Study,
    /,
    *,
    task: Annotated[
        str | None, Parameter(help="FILE.py:NAME, if the study's task is yours.")
    ] = None,
    as_json: Json = False,
) -> None:
    """The best policy so far, judged on draws that chose nothing."""
    from scorebed.cli._progress import Bars
    from scorebed.sweeps.study import open_study
    from scorebed.sweeps.winner import judge_winner

    found = judge_winner(open_study(study), parts=RunParts(task=task).read(), progress=Bars())
    if as_json:
        print_json(found.values())
        return
    _show_winner(found)


@sweep.command
def report(
    study: Study,
    /,
    *,
    task: Annotated[
        str | None, Parameter(help="FILE.py:NAME, if the study's task is yours.")
    ] = None,
    as_json: Json = False,
) -> None:
    """A study as one HTML page: the winner, history, importance of settings, bounds and costs."""
    from scorebed.cli._progress import Bars
    from scorebed.sweeps.page import write_sweep_report
    from scorebed.sweeps.study import open_study

    path = write_sweep_report(open_study(study), parts=RunParts(task=task).read(), progress=Bars())
    if as_json:
        print_json({"report": str(path)})
        return
    print_text(str(path))


def _stop_on_signals() -> None:
    """End as by Ctrl-C when a scheduler says so. A terminal's Ctrl-C reaches a worker and whoever
    started it, who then tells the worker too: the second must not interrupt the giving back of a
    trial.
    """
    import signal

    last = -math.inf

    def stop(*_: object) -> None:
        nonlocal last
        before, last = last, time.monotonic()
        if last - before > AT_ONCE:
            raise KeyboardInterrupt

    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, stop)


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")


def _require_all(trials: int | None, workers: int = 1, task: str | None = None) -> None:
    """Refuse options that several workers do not share."""
    from scorebed.errors import require

    given = {"--trials": trials is not None, "--workers": workers > 1, "--task": task is not None}
    names = [name for name, there in given.items() if there]
    require(
        not names,
        " and ".join(names),
        got="workers elsewhere, or several of them",
        expected="one worker, here",
        fix="leave it out.",
    )


def _show_status(found: "SweepStatus") -> None:
    others = {"stopped early": found.pruned, "given up": found.failed}
    words = [f"{found.finished:,} of {found.trials:,} trials finished"]
    words += [f"{count:,} {what}" for what, count in others.items() if count]
    if found.per_hour is not None:
        words.append(f"{found.per_hour:.3g} an hour")
    if found.seconds_left:
        words.append(f"{_duration(found.seconds_left)} left")
    print_text(f"{found.study} ({found.task}): {', '.join(words)}")
    rows = []
    if found.best is not None:
        bound = f"{found.best['value']:.3f} ± {found.best['lower_se']:.3f}"
        rows.append(("best", found.best["trial"], bound, _settings(found.best["settings"])))
    for each in found.running:
        rows.append((each.owner, each.number, "", _settings(each.settings)))
    if rows:
        print_table(
            {"": LEFT, "trial": RIGHT, "lower bound": RIGHT, "settings": TEXT},
            [(who, str(number), bound, words) for who, number, bound, words in rows],
        )
    for number, error in found.errors.items():
        print_text(f"trial {number} was given up: {error}")


def _show_winner(found: "Winner") -> None:
    rows = [
        ("chosen by", f"{found.selection:.3f} ± {found.selection_se:.3f}"),
        ("on draws that chose nothing", f"{found.independent:.3f} ± {found.independent_se:.3f}"),
        ("the difference is luck", f"{found.luck:+.3f} ± {found.luck_se:.3f}"),
    ]
    if found.tight is not None:
        rows += [
            (f"tight {side} bound", f"{found.tight[side]:.3f} ± {found.tight[f'{side}_se']:.3f}")
            for side in ("lower", "upper")
        ]
    print_text(f"trial {found.trial} of {found.candidates:,}: {_settings(found.settings)}")
    print_table({"lower bound": LEFT, "nats": RIGHT}, rows)
    print_text(f"its run: {found.run}")


def _settings(settings: dict[str, Any]) -> str:
    return ", ".join(
        f"{key.rpartition('.')[2]} {value:.3g}"
        if isinstance(value, float)
        else f"{key.rpartition('.')[2]} {value}"
        for key, value in settings.items()
    )


def _duration(seconds: float) -> str:
    for unit, size in (("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"
