"""The option of commands that train: who else is told of the metrics."""

from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

if TYPE_CHECKING:
    from scorebed.runs.folder import RunFolder

Log = Annotated[
    str | None,
    Parameter(
        help="tensorboard: keep a copy of the metrics in RUN/tensorboard, which `tensorboard "
        "--logdir RUN/tensorboard` shows. A run that has one goes on with it."
    ),
]


def require_log(log: str | None) -> None:
    """Refuse a log that cannot be kept, before there is a run."""
    if log is not None:
        from scorebed.runs.tracking import LOGS

        LOGS.find(log).require()


def keep_log(folder: "RunFolder", log: str | None) -> None:
    """Let the folder tell the log of its metrics; one that it has already, if none is named."""
    from scorebed.runs.tracking import LOGS

    kept = (name for name in LOGS if (folder.path / name).is_dir())
    name = log or next(kept, None)
    if name is not None:
        folder.log = LOGS.find(name)(folder)
