"""Templates of this package, everything escaped, and how numbers and times look on a page."""

import functools
import math
from typing import Any

import jinja2


def number(value: float, digits: int = 6) -> str:
    """Six significant digits, with a minus sign that is read aloud as one."""
    return f"{value:.{digits}g}".replace("-", "\N{MINUS SIGN}") if math.isfinite(value) else "–"


def moment(iso: str) -> str:
    """A stored time without its fractions, in UTC."""
    return f"{iso[:10]} {iso[11:19]}"


@functools.cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("scorebed.web"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"number": number, "moment": moment}
    return environment


def render(template: str, **values: Any) -> str:
    """One page, or a part of one."""
    return _environment().get_template(template).render(**values)
