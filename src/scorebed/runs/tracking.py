"""TensorBoard's view of a run: `scorebed train TASK --log tensorboard`, then
`tensorboard --logdir RUN/tensorboard`.

It is a copy of `metrics.jsonl`, which stays the record: one folder for each stage, and in it one
for each policy where a stage trains several. Whoever goes on with a run writes the copy anew from
the record, so that no step is missing or there twice however often the run was stopped. Times are
seconds of training, counted back from when the copy was made.
"""

import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from scorebed.errors import InvalidValueError
from scorebed.registry import Registry
from scorebed.runs.durable import explained, make_folder
from scorebed.runs.folder import RunFolder
from scorebed.runs.record import Record

TENSORBOARD = "tensorboard"
NAME = "events.out.tfevents."  # what TensorBoard knows its files by
NO_CURVES = ("stage", "step", "seconds")


class MetricsLog(Protocol):
    """What a run folder tells of its metrics, after each is on the disk."""

    def add(self, record: Mapping[str, Any]) -> None:
        """A new line of metrics."""

    def begin(self, stage: str, records: Sequence[Mapping[str, Any]]) -> None:
        """These lines, and no others, are what is left of a stage."""

    def finish(self, record: Record) -> None:
        """The run is over."""


class TensorBoard:
    """Events of every stage of a run, in its folder `tensorboard`.

    Raises `InvalidValueError` if the package is missing.
    """

    @staticmethod
    def require() -> None:
        """Refuse to go on without the package."""
        try:
            import tensorboard.summary.writer.record_writer  # noqa: F401
        except ModuleNotFoundError as missing:
            raise InvalidValueError(
                "the log 'tensorboard'",
                got=f"no package '{missing.name}'",
                expected="tensorboard, which writes what it shows",
                fix="pip install 'scorebed[tracking]'.",
            ) from missing

    def __init__(self, folder: RunFolder):
        self.require()
        self.path, self._files = folder.path / TENSORBOARD, dict[str, _Events]()
        with explained("writing", self.path):
            make_folder(self.path)
        stages: dict[str, list[Mapping[str, Any]]] = {}
        for record in folder.read_metrics():
            stages.setdefault(str(record["stage"]), []).append(record)
        for stage, records in stages.items():
            self.begin(stage, records)

    def begin(self, stage: str, records: Sequence[Mapping[str, Any]]) -> None:
        for name in [name for name in self._files if _of(stage, name)]:
            del self._files[name]
        old = [path for path in self.path.rglob(f"{NAME}*") if _of(stage, self._name(path))]
        begun = time.time() - max((float(each["seconds"]) for each in records), default=0.0)
        for record in records:
            self._write(record, begun + float(record["seconds"]))
        with explained("writing", self.path):
            for path in old:
                path.unlink(missing_ok=True)

    def add(self, record: Mapping[str, Any]) -> None:
        self._write(record, time.time())

    def finish(self, record: Record) -> None:
        """Bounds of the policy and of what it is compared with, at the step 0."""
        each = {"policy": record.bounds, **record.references}
        for designs, bounds in each.items():
            name = f"bounds/{designs}"
            self._files.pop(name, None)
            old = list((self.path / name).glob(f"{NAME}*"))
            values = {
                f"bounds/{key}": float(value)
                for key, value in bounds.values().items()
                if key.endswith(("lower", "upper", "lower_se", "upper_se"))
            }
            self._events(name).write(0, time.time(), values)
            for path in old:
                path.unlink(missing_ok=True)

    def _write(self, record: Mapping[str, Any], when: float) -> None:
        stage, step = str(record["stage"]), int(record["step"])
        curves = {name: value for name, value in record.items() if name not in NO_CURVES}
        kind = stage.partition("-")[0]
        several = max((len(v) for v in curves.values() if isinstance(v, list)), default=1) > 1
        of_each: dict[str, dict[str, float]] = {}
        for name, value in curves.items():
            for number, one in enumerate(value if isinstance(value, list) else [value]):
                policy = f"{stage}/{number}" if several and isinstance(value, list) else stage
                if isinstance(one, int | float) and math.isfinite(one):
                    of_each.setdefault(policy, {})[f"{kind}/{name}"] = float(one)
        for name, values in of_each.items():
            self._events(name).write(step, when, values)

    def _events(self, name: str) -> "_Events":
        if name not in self._files:
            self._files[name] = _Events(self.path / name)
        return self._files[name]

    def _name(self, path: Path) -> str:
        return path.parent.relative_to(self.path).as_posix()


class _Events:
    """A file of events. It begins by saying that what came before it is void, so that a TensorBoard
    which is looking on drops it.
    """

    def __init__(self, folder: Path):
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog

        self.file = folder / f"{NAME}{time.time_ns()}.scorebed"
        with explained("writing", folder):
            folder.mkdir(parents=True, exist_ok=True)
        now = time.time()
        self._append(Event(wall_time=now, file_version="brain.Event:2"))
        self._append(Event(wall_time=now, session_log=SessionLog(status=SessionLog.START)))

    def write(self, step: int, when: float, values: Mapping[str, float]) -> None:
        """Values of one step, by their tags."""
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary

        each = [Summary.Value(tag=tag, simple_value=value) for tag, value in values.items()]
        self._append(Event(wall_time=when, step=step, summary=Summary(value=each)))

    def _append(self, event: Any) -> None:
        from tensorboard.summary.writer.record_writer import RecordWriter

        with explained("writing", self.file), self.file.open("ab") as file:
            RecordWriter(file).write(event.SerializeToString())


def _of(stage: str, name: str) -> bool:
    return name == stage or name.startswith(f"{stage}/")


LOGS: Registry[type[TensorBoard]] = Registry("log", {TENSORBOARD: TensorBoard}, made_by="a class")
