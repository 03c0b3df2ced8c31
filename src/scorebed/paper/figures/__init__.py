"""The figures of the paper, re-run, by the names that `scorebed paper` takes.

Each is a `PaperItem` in a file of its own; its title and settings are a table of `items.toml`, its
description is in `published.toml`.
"""

from scorebed.paper.item import PaperItem

FIGURES: dict[str, PaperItem] = {}
