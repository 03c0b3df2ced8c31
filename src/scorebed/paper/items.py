"""The tables and figures of the paper by the names that `scorebed paper` takes."""

from scorebed.paper.data import read
from scorebed.paper.figures import FIGURES
from scorebed.paper.item import PaperItem
from scorebed.paper.tables import TableItem

ITEMS: dict[str, PaperItem] = {name: TableItem(name) for name in read("items")["tables"]} | FIGURES


def chosen_items(name: str) -> tuple[PaperItem, ...]:
    """The item of a name, or all of them."""
    return tuple(ITEMS.values()) if name == read("items")["all"] else (ITEMS[name],)
