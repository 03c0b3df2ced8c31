"""What the benchmarks share: the best of several rounds, and tables for docs/benchmarks.md."""

import argparse
import time
from collections.abc import Callable, Iterable
from typing import Any

import jax


def arguments(doc: str | None) -> argparse.ArgumentParser:
    """A parser with `--quick`."""
    parser = argparse.ArgumentParser(description=(doc or "").splitlines()[0])
    parser.add_argument(
        "--quick", action="store_true", help="tiny sizes, whose figures mean nothing: does it run?"
    )
    return parser


def seconds(work: Callable[[], Any], clock: Callable[[], float] = time.perf_counter) -> float:
    """Of one call, until its arrays are there."""
    begun = clock()
    jax.block_until_ready(work())
    return clock() - begun


def best_of(
    rounds: int, *works: Callable[[], Any], clock: Callable[[], float] = time.perf_counter
) -> list[float]:
    """The shortest time of each, taken turn by turn; each is called once before, to compile. With
    `time.process_time` it is the time of all cores, which other work on the machine hardly changes.
    """
    for work in works:
        jax.block_until_ready(work())
    times = [[seconds(work, clock) for work in works] for _ in range(rounds)]
    return [min(column) for column in zip(*times, strict=True)]


def table(columns: Iterable[str], rows: Iterable[Iterable[object]]) -> None:
    """Print a Markdown table: the first column is text, the others numbers."""
    columns = list(columns)
    lines = [
        columns,
        ["---", *["---:"] * (len(columns) - 1)],
        *([str(cell) for cell in row] for row in rows),
    ]
    print("\n" + "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n", flush=True)
