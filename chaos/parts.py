"""Parts, their pieces, and their records."""

import dataclasses
import datetime
import json
import random
import resource
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

from scorebed.runs.durable import replace_file

RECORDS = Path(__file__).parents[1] / "docs" / "reliability"
MOST_FAULTS = 20  # kept in a record in full


@dataclasses.dataclass
class Found:
    """What a piece came to: counts that add up, and every promise that was broken, in words."""

    counts: Counter[str] = dataclasses.field(default_factory=Counter)
    faults: list[str] = dataclasses.field(default_factory=list)

    def expect(self, holds: bool, fault: str) -> None:
        """Note a broken promise unless it `holds`."""
        if not holds:
            self.faults.append(fault)


@dataclasses.dataclass(frozen=True)
class Part:
    """One kind of fault.

    `piece(work, number, cases)` tries that many cases in the folder `work`, which a part may keep
    between its pieces. `pieces` of `cases` each make the full count; `small` is how many cases are
    enough to see that the part works. `counted` is the figure that is counted.
    """

    name: str
    title: str
    promise: str
    counted: str
    piece: Callable[[Path, int, int], Found]
    pieces: int
    cases: int
    small: int


@dataclasses.dataclass
class PartRecord:
    """What all finished pieces of a part came to."""

    part: str
    pieces: int = 0
    counts: dict[str, int] = dataclasses.field(default_factory=dict)
    broken: int = 0
    faults: list[str] = dataclasses.field(default_factory=list)
    cpu_seconds: float = 0.0
    date: str = ""

    @classmethod
    def read(cls, name: str, folder: Path = RECORDS) -> "PartRecord":
        """The record of a part; an empty one if there is none."""
        path = folder / f"{name}.json"
        values: Mapping = json.loads(path.read_text()) if path.exists() else {"part": name}
        return cls(**values)

    def write(self, folder: Path = RECORDS) -> None:
        """Keep it."""
        folder.mkdir(parents=True, exist_ok=True)
        text = json.dumps(dataclasses.asdict(self), indent=2) + "\n"
        replace_file(folder / f"{self.part}.json", text.encode())

    def add(self, found: Found, cpu_seconds: float) -> None:
        """One more piece."""
        self.pieces += 1
        self.counts = dict(sorted((Counter(self.counts) + found.counts).items()))
        self.broken += len(found.faults)
        self.faults = (self.faults + found.faults)[:MOST_FAULTS]
        self.cpu_seconds = round(self.cpu_seconds + cpu_seconds, 1)
        self.date = datetime.date.today().isoformat()


def carry_out(
    part: Part, work: Path, *, until: float, folder: Path = RECORDS, say: Callable[[str], object]
) -> PartRecord:
    """The pieces of a part that are left, until a time of the monotonic clock."""
    record = PartRecord.read(part.name, folder)
    work.mkdir(parents=True, exist_ok=True)
    while record.pieces < part.pieces and time.monotonic() < until:
        before = cpu_seconds()
        found = part.piece(work, record.pieces, part.cases)
        record.add(found, cpu_seconds() - before)
        record.write(folder)
        say(
            f"{part.name}: {record.pieces} of {part.pieces} pieces, "
            f"{record.counts.get(part.counted, 0):,} {part.counted}, {record.broken} broken"
        )
        for fault in found.faults[:MOST_FAULTS]:
            say(f"  {fault}")
    return record


def dice(part: str, number: int) -> random.Random:
    """The random numbers of a piece."""
    return random.Random(f"{part} {number}")


def cpu_seconds() -> float:
    """Processor time of this process and of its children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)
