"""Templates of this package, everything escaped, and how numbers and times look on a page."""

import functools
import math
from typing import Any

import jinja2

from scorebed.tasks.spaces import Quantity


def number(value: float, digits: int = 6) -> str:
    """Six significant digits, with a minus sign that is read aloud as one."""
    return f"{value:.{digits}g}".replace("-", "\N{MINUS SIGN}") if math.isfinite(value) else "–"


def shown(value: float, quantity: Quantity, digits: int = 6) -> str:
    """A value of a quantity: its name if it has one."""
    return quantity.label(value) or number(value, digits)


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
    environment.filters |= {"number": number, "shown": shown, "moment": moment}
    return environment


def render(template: str, **values: Any) -> str:
    """One page, or a part of one."""
    return _environment().get_template(template).render(**values)
