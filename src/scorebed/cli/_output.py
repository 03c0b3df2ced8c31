"""Answers on stdout: a table for a person, or one JSON document for a program. Everything else goes
to stderr.

When stdout is no terminal nothing is coloured, wrapped or cut, whatever the environment says about
colours and widths."""

import json
import logging
import math
import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, TypeAlias

from cyclopts import Parameter
from rich.console import Console
from rich.table import Table

WIDE = 10_000

Column: TypeAlias = Literal["left", "right", "text"]
LEFT: Column = "left"
RIGHT: Column = "right"
TEXT: Column = "text"  # the only kind that a narrow terminal wraps

Json = Annotated[
    bool,
    Parameter(
        name="--json",
        negative="",
        show_default=False,
        help="Print the result alone, as one JSON document.",
    ),
]


def log_to_stderr() -> None:
    """What our modules log while a command runs, from INFO up, as plain lines on stderr."""
    logger = logging.getLogger("scorebed")
    logger.handlers[:] = [logging.StreamHandler(sys.stderr)]
    logger.setLevel(logging.INFO)


def stdout_console() -> Console:
    """Plain text on what is stdout now; square brackets are text, not markup."""
    terminal = sys.stdout.isatty()
    width = None if terminal else WIDE
    return Console(force_terminal=terminal, width=width, markup=False, highlight=False, emoji=False)


def print_json(document: Any) -> None:
    """One JSON document of plain Python values; numbers that are not finite become null."""
    sys.stdout.write(json.dumps(_finite(document), indent=2, allow_nan=False) + "\n")


def print_text(text: str) -> None:
    """Lines for a person."""
    stdout_console().print(text)


def print_progress(text: str) -> None:
    """A sign of life for a person who waits at a terminal; nothing anywhere else."""
    if sys.stderr.isatty():
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()


def print_table(columns: Mapping[str, Column], rows: Sequence[Sequence[str]]) -> None:
    """Aligned columns; `columns` maps their headings to their kinds. Names and numbers are never
    cut.
    """
    console = stdout_console()
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading, kind in columns.items():
        table.add_column(
            heading, justify="right" if kind == RIGHT else "left", no_wrap=kind != TEXT
        )
    for row in rows:
        table.add_row(*row)
    if console.measure(table).minimum >= console.width:
        console.width = WIDE
    with console.capture() as capture:
        console.print(table)
    sys.stdout.write("".join(line.rstrip() + "\n" for line in capture.get().splitlines()))


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
