"""What an item shows: tables, remarks and pictures, before anybody has chosen a format."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from scorebed.plots.reproduction import Figure


class PageTable(NamedTuple):
    """Cells as text, one row per row; `bold` are places of cells, by row and column. The first
    `left` columns are words.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    bold: frozenset[tuple[int, int]] = frozenset()
    left: int = 1


class Section(NamedTuple):
    """A part of a page: a table if there is one, and remarks below it."""

    title: str
    table: PageTable | None = None
    notes: Sequence[str] = ()


class PagePicture(NamedTuple):
    """A figure with its caption; `name` is the end of its file's name, empty for the only one."""

    figure: "Figure"
    caption: str
    name: str = ""


class Page(NamedTuple):
    """An item as it stands, finished or not. `data` are the lines of its CSV file: the same keys in
    every one.
    """

    title: str
    lead: Sequence[str]
    sections: Sequence[Section]
    pictures: Sequence[PagePicture]
    data: Sequence[Mapping[str, Any]]
