"""One small finished run, its task and its live experiment, for the parts that are about files."""

import contextlib
import io
from pathlib import Path

from chaos.training_kills import METHODS, SHARED

NAMED = ["train", "linear-gaussian", "--method", "score", "--policy", "dad", "--policies", "2"]

# What a sweep of seconds searches.
SPACE = """policy = "static"
[policy_training]
learning_rate = {low = 1e-3, high = 1e-1, log = true}
steps = 10
batch = 4
monitor_every = 5
monitor_inner = 8
[evaluation]
outer = 16
inner = 32
"""


def command(arguments: list[str]) -> tuple[int, str]:
    """One command line in this process: its exit code and what it said on stderr."""
    from scorebed.cli._app import run
    from scorebed.runs import stage

    stage.CHECKPOINT_SECONDS = 0.0  # a checkpoint after every block
    said = io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(said):
        try:
            code = run(arguments)
        except SystemExit as end:
            code = int(end.code or 0)
    return code, said.getvalue()


def finished_run(work: Path) -> Path:
    """A run with a score, two policies and their choice; made once in a folder."""
    path = work / "run"
    if not (path / "record.json").exists():
        settings = [*METHODS["score"], *SHARED, "evaluation.references=false"]
        words = [word for setting in settings for word in ("--set", setting)]
        code, said = command([*NAMED, *words, "--out", str(path)])
        assert code == 0, said
    return path


def finished_study(work: Path) -> Path:
    """A sweep that is over, with its winner; made once in a folder."""
    path, space = work / "study", work / "space.toml"
    if not (path / "report.html").exists():
        space.write_text(SPACE)
        made = ["create", str(path), "--score", str(finished_run(work)), "--space", str(space)]
        for arguments in (
            [*made, "--trials", "1", "--sampler", "random"],
            ["work", str(path)],
            ["best", str(path)],
            ["report", str(path)],
        ):
            code, said = command(["sweep", *arguments])
            assert code == 0, said
    return path
