"""A figure as an SVG element, to stand inside a page."""

import io
import re

import matplotlib
from matplotlib.figure import Figure

from scorebed.plots.layout import lay_out


def svg_element(figure: Figure, name: str) -> str:
    """The `<svg>` element of a figure. Equal figures give equal elements, whose text matplotlib has
    escaped. Ids begin with `name`, because all figures of a page share its ids.
    """
    buffer = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": name, "svg.fonttype": "path"}):
        lay_out(figure).savefig(
            buffer, format="svg", dpi=150, facecolor="white", metadata={"Date": None}
        )
    text = buffer.getvalue()
    text = re.sub(
        r"<metadata>.*?</metadata>|<!--.*?-->", "", text[text.index("<svg") :], flags=re.DOTALL
    )
    return re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{name}-", text)


def literal(text: str) -> str:
    """Text that matplotlib draws as it is: a dollar would begin a formula, and a leading underscore
    hide an entry of a legend.
    """
    return "".join(c if c.isprintable() else " " for c in text).replace("$", r"\$").lstrip("_")
