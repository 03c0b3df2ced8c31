"""Steps of an experiment that are over when its training begins: read from a CSV file, kept in the
configuration of the run.

The file has a column for every design and every outcome of the task, by name, with or without its
unit, and a row for every step:

    time [h],concentration [mg/l]
    1.5,11.2
    4.0,9.7

What those steps taught is computed once, when the run is made (`inference/history.py`), and stands
in `config.toml` as numbers: whoever reads the run has the same prior."""

import csv
import io
import math
from pathlib import Path
from typing import Any, NamedTuple

from scorebed.errors import InvalidValueError, require
from scorebed.runs.durable import explained
from scorebed.runs.sections import HistoryConfig, Row
from scorebed.tasks.base import Task
from scorebed.tasks.continued import continued
from scorebed.tasks.declare import quantity
from scorebed.tasks.sample_prior import LatentMixture, Mixture

LARGEST = 2**24  # bytes of a file
LONGEST_LINE = 2**14  # characters
SHOWN = 200  # characters of the file in a message


class Past(NamedTuple):
    """Designs and outcomes of steps that are over."""

    designs: tuple[Row, ...]
    outcomes: tuple[Row, ...]


def read_history(path: Path, task: Task) -> Past:
    """The steps of a CSV file, by the names of a task's designs and outcomes."""
    text = _text(path)
    lines = [line for line in csv.reader(io.StringIO(text)) if any(cell.strip() for cell in line)]
    wanted = [q.name for q in (*task.designs.quantities, *task.outcomes)]
    header = [quantity(_short(cell)).name if cell.strip() else "" for cell in (lines or [[]])[0]]
    missing = [name for name in wanted if header.count(name) != 1]
    require(
        not missing,
        f"the columns of {path}",
        got=_short(", ".join(header)) or "none",
        expected=", ".join(wanted),
        fix=f"give it one column named {missing[0] if missing else ''}.",
    )
    require(
        len(lines) > 1,
        f"the history {path}",
        got="no steps",
        expected="a row for every step that is over",
        fix="leave --history out for a whole experiment.",
    )
    rows = []
    for number, line in enumerate(lines[1:], 1):
        cells = dict(zip(header, line, strict=False))
        rows.append(tuple(_number(cells.get(name, ""), path, number, name) for name in wanted))
    split = task.designs.dim
    return Past(tuple(row[:split] for row in rows), tuple(row[split:] for row in rows))


def _text(path: Path) -> str:
    """The text of a file, refused if it is none, or too long for a table of steps."""
    with explained("reading the history", path), path.open("rb") as file:
        data = file.read(LARGEST + 1)
    fix = "write a CSV file with a column for every design and outcome, and a row for every step."
    try:
        # A file that is cut off here may end inside a character.
        text = data.decode("utf-8-sig", "ignore" if len(data) > LARGEST else "strict")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise InvalidValueError(
            f"the history {path}", got="a binary file", expected="text in UTF-8", fix=fix
        )
    longest = max(map(len, text.splitlines()), default=0)
    require(
        longest <= LONGEST_LINE,
        f"the history {path}",
        got=f"a line of {longest} characters",
        expected=f"lines of at most {LONGEST_LINE}",
        fix=fix,
    )
    require(
        len(data) <= LARGEST,
        f"the history {path}",
        got=f"more than {LARGEST} bytes",
        expected="a row for every step of one experiment",
        fix=fix,
    )
    return text


def _short(text: str) -> str:
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"


def _number(text: str, path: Path, row: int, name: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise InvalidValueError(
            f"{path}, step {row}, '{name}'",
            got=repr(_short(text)),
            expected="a finite number",
            fix="write it like 1.5; leave a step that was not carried out away.",
        )
    return value


def with_history(past: Past, mixture: Mixture) -> dict[str, Any]:
    """The section of a configuration."""
    return {
        "designs": past.designs,
        "outcomes": past.outcomes,
        "weights": mixture.weights,
        "means": mixture.means,
        "factors": mixture.factors,
    }


def after_history(task: Task, history: HistoryConfig) -> Task:
    """What is left of a task; itself if nothing is over."""
    if not history.designs:
        return task
    k = task.prior.dim
    fits = (
        len(history.weights) == len(history.means) == len(history.factors) > 0
        and all(len(mean) == k for mean in history.means)
        and all(
            len(factor) == k and all(len(row) == k for row in factor) for factor in history.factors
        )
    )
    require(
        fits,
        "the history of the run",
        got=f"a mixture of {len(history.weights)} components",
        expected=f"weights, means and factors for {k} parameters",
        fix="make the run again with --history.",
    )
    mixture = Mixture(history.weights, history.means, history.factors)
    return continued(task, LatentMixture(task.prior, mixture), history.designs, history.outcomes)
