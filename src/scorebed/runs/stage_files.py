"""What is kept of stages and choices that are over, for the ledger and the record of a run that is
resumed after them, and for whoever loads it.

STAGE.json has the steps that every restart took, who was not stopped early, and the NLE;
choice-R.json which policy of repeat R was the best, by which bounds, and what trained it.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from scorebed.methods.base import Job, Method
from scorebed.runs.checkpoint import Checkpoints
from scorebed.runs.folder import RunFolder
from scorebed.training.stage import Stage


class StageFiles:
    """The files of the stages of one run."""

    def __init__(self, folder: RunFolder):
        self.folder = folder

    def write(self, stage: Stage, watched: Any, survivors: Sequence[int]) -> None:
        """What a stage came to."""
        values = {
            "steps": np.atleast_1d(watched.state.step).tolist(),
            "survivors": list(survivors),
            "nle": stage.nle(watched),
        }
        self.folder.write_json_atomic(f"{stage.name}.json", values)

    def spent(self, stage: Stage, count: int) -> int:
        """NLE of a stage that is over: training may have ended before its last step."""
        written = self._read(stage.name)
        if "nle" in written:
            return int(written["nle"])
        return stage.nle_of(self.steps(stage.name, count))

    def steps(self, name: str, count: int) -> list[int]:
        """The steps that each restart of a stage has taken."""
        written = self._read(name)
        return written["steps"] if "steps" in written else [self._last_step(name)] * count

    def survivors(self, name: str, count: int) -> list[int]:
        """The numbers of the restarts that were not stopped early."""
        return self._read(name).get("survivors", list(range(count)))  # type: ignore[no-any-return]

    def _read(self, name: str) -> dict[str, Any]:
        """What was written of a stage; an earlier version wrote less, or nothing."""
        if not (self.folder.path / f"{name}.json").exists():
            return {}
        values: Any = self.folder.read_json(f"{name}.json")
        return values  # type: ignore[no-any-return]

    def _last_step(self, name: str) -> int:
        """Of a stage that wrote nothing: by its checkpoints too, since a line of metrics may be
        lost.
        """
        metrics: Any = self.folder.read_metrics(name)
        saved = Checkpoints(self.folder.checkpoint_folder(name)).steps()
        return max([0, *saved, *(int(line["step"]) for line in metrics)])


class PolicyChoice(NamedTuple):
    """The chosen policy of a repeat, by its number among all, and the number of what was learned
    upfront for it.
    """

    policy: int
    upfront: int


def write_choice(
    folder: RunFolder, repeat: int, lower: Sequence[float], choice: PolicyChoice, upfront: str
) -> None:
    """The bounds of all policies of a repeat, the best of them, and what trained it: the stem of
    its file, or nothing.
    """
    values: dict[str, Any] = {"lower": list(lower), "best": choice.policy, "index": choice.upfront}
    folder.write_json_atomic(
        f"choice-{repeat}.json", values | ({"upfront": upfront} if upfront else {})
    )


def read_choice(folder: RunFolder, repeat: int, method: Method, job: Job) -> PolicyChoice:
    """The choice of a repeat; a single policy needs none. Where a choice was written without what
    trained it, that follows from how policies are shared out.
    """
    name, parts = f"choice-{repeat}.json", method.parts(job)
    values: Any = folder.read_json(name) if (folder.path / name).exists() else {}
    policy = int(values.get("best", 0))
    index = job.upfront_index(repeat, job.part_of(policy, parts), parts)
    return PolicyChoice(policy, int(values.get("index", index)))
