"""`--minutes X`: the time of a whole run, watched while it passes.

A forecast chooses the numbers of steps (`runs/spending.py`); on a busy machine it is wrong, so that
every stage of training also has an allotment of seconds, taken from what is left when it first
begins. A stage that has used its own up ends at the next block of steps. Allotments, the steps at
which stages ended and the sizes of the bounds are written down as they are decided: a run that is
resumed keeps to them, and the steps that were taken are those of any run of the same seed.

    upfront      UPFRONT_SHARE of the time left for training
    policies     the rest of it, less a third for static designs to compare with
    static       what is left then; a half of it where nothing else is trained
    evaluation   a quarter of all, and what training left: as many rounds of bounds as fit, at
                 least one

The watch begins with the command: planning and compilation count. Where they take most of the time,
on a busy machine or in a minute, every stage still has a twentieth of it once it is compiled, and
the run takes so much longer.
"""

import time
from typing import Any

from scorebed.runs.folder import RunFolder

FILE = "watch.json"
EVALUATION_SHARE = 0.25
UPFRONT_SHARE = 0.6
STATIC_SHARE = 1 / 3  # of the time for policies, spent on static designs to compare with
ALONE_SHARE = 0.5  # for static designs alone: what is not trained needs its time in the bounds
LEAST_SHARE = 0.05  # of the time that every stage has after its compilation
REPORT_SECONDS = 6.0  # kept back at the end
LEAST_INNER, LEAST_OUTER = 255, 64  # contrastive parameters and experiments of a round of bounds


class Watch:
    """The time of one run: what is left of it, and what was decided because of it."""

    def __init__(self, folder: RunFolder, minutes: float, *, begun: float, spent: float = 0.0):
        """`begun` is when this process began to work on the run, on the monotonic clock; `spent`
        are the seconds of earlier processes.
        """
        self.folder, self.seconds = folder, 60 * minutes
        self._begun, self._spent = begun, spent
        self._decided: dict[str, Any] = {"allotted": {}, "ended": {}}
        if (folder.path / FILE).exists():
            kept: Any = folder.read_json(FILE)
            self._decided = kept

    @staticmethod
    def start(folder: RunFolder) -> None:
        """Have a run watched from now on, in this process and others."""
        folder.write_json_atomic(FILE, {"allotted": {}, "ended": {}})

    @classmethod
    def of(cls, folder: RunFolder, minutes: float, *, begun: float) -> "Watch | None":
        """Of a run that may have been worked on before: the seconds of its stages count. None if
        its time is not watched, as in a comparison of methods.
        """
        if not minutes or not (folder.path / FILE).exists():
            return None
        metrics: Any = folder.read_metrics()
        seconds = {str(line["stage"]): float(line["seconds"]) for line in metrics}
        return cls(folder, minutes, begun=begun, spent=sum(seconds.values(), start=0.0))

    @property
    def elapsed(self) -> float:
        """Seconds since the run began, without pauses between its processes."""
        return self._spent + time.monotonic() - self._begun

    @property
    def least_seconds(self) -> float:
        """Of every stage, once it is compiled, however little time is left."""
        return LEAST_SHARE * self.seconds

    @property
    def left_for_training(self) -> float:
        """Seconds before evaluation is due."""
        return (1 - EVALUATION_SHARE) * self.seconds - self.elapsed

    @property
    def left(self) -> float:
        """Seconds before the report is due."""
        return self.seconds - min(REPORT_SECONDS, 0.1 * self.seconds) - self.elapsed

    def allot(self, stage: str, share: float) -> float:
        """Seconds of a stage: a share of what is left for training when it first begins."""
        if stage not in self._decided["allotted"]:
            self._decide("allotted", stage, max(0.0, share * self.left_for_training))
        return float(self._decided["allotted"][stage])

    def ended(self, stage: str) -> int | None:
        """The step at which a stage was ended by the clock; None if it was not."""
        found = self._decided["ended"].get(stage)
        return None if found is None else int(found)

    def end(self, stage: str, step: int) -> None:
        """Write down that a stage ends here."""
        self._decide("ended", stage, step)

    @property
    def ends(self) -> dict[str, int]:
        """The steps at which stages were ended by the clock."""
        return {str(stage): int(step) for stage, step in self._decided["ended"].items()}

    @property
    def sizes(self) -> tuple[int, int] | None:
        """Outer and inner sizes of a round of bounds, once they are decided."""
        found = self._decided.get("sizes")
        return None if found is None else (int(found[0]), int(found[1]))

    def decide_sizes(self, outer: int, inner: int) -> None:
        """Write them down."""
        self._decided["sizes"] = [outer, inner]
        self.folder.write_json_atomic(FILE, self._decided)

    def _decide(self, what: str, stage: str, value: float | int) -> None:
        self._decided[what][stage] = value
        self.folder.write_json_atomic(FILE, self._decided)


def affordable_sizes(
    outer: int, inner: int, *, designs: float = 0.0, rate: float, seconds: float
) -> tuple[int, int]:
    """The sizes of one round of bounds that takes no longer than `seconds`, given contrastive
    likelihoods of whole experiments per second, and how many of these the designs of an experiment
    cost: fewer experiments first, then fewer parameters, though no fewer than cost as much as the
    designs.
    """
    most = max(1.0, rate * seconds)
    if outer * (inner + 1 + designs) <= most:
        return outer, inner
    fewer = int(most / (inner + 1 + designs))
    if fewer >= LEAST_OUTER:
        return fewer, inner
    least = min(outer, LEAST_OUTER)
    affordable = int(most / least - 1 - designs)
    return least, min(inner, max(LEAST_INNER, int(designs), affordable))
