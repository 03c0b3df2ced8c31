"""A page of an item in its formats: Markdown, CSV, PNG, and HTML that needs no other file."""

import csv
import io
import math
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import jinja2

from scorebed.paper.page import Page, PagePicture, PageTable
from scorebed.paper.study import Study
from scorebed.runs.durable import explained, make_folder, replace_file

DPI = 130
TEMPLATE = "paper.html"


def write_page(page: Page, stem: str, study: Study, *, command: str) -> list[Path]:
    """Write an item into the study's folder, over what was there, and give the files."""
    make_folder(study.out)
    pngs = [(study.out / picture_file(stem, picture), picture) for picture in page.pictures]
    for path, picture in pngs:
        replace_file(path, _png(picture))
    texts = {
        f"{stem}.md": markdown(page, stem, command=command),
        f"{stem}.csv": comma_separated(page),
        f"{stem}.html": html(page, stem, command=command),
    }
    for name, text in texts.items():
        replace_file(study.out / name, text.encode())
    return [*(study.out / name for name in texts), *(path for path, _ in pngs)]


def insert(page: Page, stem: str, study: Study, file: Path, *, command: str) -> bool:
    """Put an item into a Markdown file, between its lines <!-- STEM --> and <!-- end STEM -->;
    whether the file has them.
    """
    with explained("reading", file):
        text = file.read_text("utf-8")
    begin, end = f"<!-- {stem} -->\n", f"<!-- end {stem} -->"
    before, found, rest = text.partition(begin)
    _, ended, after = rest.partition(end)
    if not (found and ended):
        return False
    where = os.path.relpath(study.out, file.parent)
    body = markdown(page, stem, command=command, folder=f"{where}/")
    replace_file(file, f"{before}{begin}\n{body}\n{end}{after}".encode())
    return True


def picture_file(stem: str, picture: PagePicture) -> str:
    """The name of a picture's file."""
    return f"{stem}-{picture.name}.png" if picture.name else f"{stem}.png"


def markdown(page: Page, stem: str, *, command: str, folder: str = "") -> str:
    """The page in Markdown; pictures are in `folder`."""
    parts = [f"## {page.title}", f"`{command}`", *page.lead]
    for section in page.sections:
        parts.append(f"### {section.title}")
        if section.table is not None:
            parts.append(_markdown_table(section.table))
        parts += section.notes
    parts += [f"![{each.caption}]({folder}{picture_file(stem, each)})" for each in page.pictures]
    return "\n\n".join(parts) + "\n"


def comma_separated(page: Page) -> str:
    """The page's data as CSV; numbers that are not known are empty."""
    text = io.StringIO()
    if page.data:
        writer = csv.DictWriter(text, list(page.data[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows({key: _plain(value) for key, value in row.items()} for row in page.data)
    return text.getvalue()


def html(page: Page, stem: str, *, command: str) -> str:
    """The page as one HTML file."""
    from scorebed.plots.svg import svg_element

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("scorebed"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    pictures = [
        (svg_element(each.figure, f"{stem}-{each.name}"), each.caption) for each in page.pictures
    ]
    return environment.get_template(TEMPLATE).render(page=page, pictures=pictures, command=command)


def _markdown_table(table: PageTable) -> str:
    rules = ["---" if place < table.left else "---:" for place in range(len(table.columns))]
    body = [
        [
            f"**{cell}**" if (i, j) in table.bold and cell else cell.replace("*", r"\*")
            for j, cell in enumerate(row)
        ]
        for i, row in enumerate(table.rows)
    ]
    return "\n".join(_line(row) for row in (table.columns, rules, *body))


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |"


def _png(picture: PagePicture) -> bytes:
    from scorebed.plots.layout import lay_out

    buffer = io.BytesIO()
    lay_out(picture.figure).savefig(
        buffer, format="png", dpi=DPI, facecolor="white", metadata={"Software": None}
    )
    return buffer.getvalue()


def _plain(value: Any) -> Any:
    return "" if value is None or (isinstance(value, float) and math.isnan(value)) else value
