"""The TOML files of this folder, each read once."""

import functools
import tomllib
from importlib import resources
from typing import Any, NamedTuple

Values = dict[str, Any]


class PrintedMean(NamedTuple):
    """A number of the paper: a mean and its standard error over the paper's repeats."""

    mean: float
    se: float


class PublishedRow(NamedTuple):
    """A row of a table of the paper, in nats; the NLE where the paper prints what was spent."""

    lower: PrintedMean
    upper: PrintedMean
    best: bool
    nle: PrintedMean | None


@functools.cache
def read(name: str) -> Values:
    """The contents of NAME.toml, to be read only: all callers share them."""
    return tomllib.loads(resources.files(__package__).joinpath(f"{name}.toml").read_text("utf-8"))


def published_rows(item: str, task: str) -> dict[str, PublishedRow]:
    """The paper's rows of an item on a task, by label."""
    return {
        label: PublishedRow(
            PrintedMean(*row["lower"]),
            PrintedMean(*row["upper"]),
            row.get("best", False),
            PrintedMean(*row["nle"]) if "nle" in row else None,
        )
        for label, row in read("published")[item][task].items()
    }


def published_repeats() -> int:
    """Over how many repeats the paper's standard errors are."""
    return int(read("published")["repeats"])


def described(item: str) -> str:
    """What a figure of the paper shows, in words."""
    return " ".join(str(read("published")["figures"][item]).split())


def item_names() -> tuple[str, ...]:
    """The items, without importing any: tables, then figures."""
    items = read("items")
    return (*items["tables"], *items["figures"])
