"""Axes, lines and dots as inline SVG. Colours are classes of the style sheet, so that pictures
follow the light and the dark theme.

There is no `style` attribute and no script, since the content security policy allows neither.
Everything variable goes through `Markup.format`, which escapes it."""

import math
from collections.abc import Sequence
from typing import TypeAlias

from markupsafe import Markup

Range: TypeAlias = tuple[float, float]
Points: TypeAlias = Sequence[tuple[float, float]]

MINUS = "\N{MINUS SIGN}"


class Plot:
    """One pair of axes over the data ranges `x` and `y`. Marks are drawn in the order of the
    calls.
    """

    def __init__(
        self,
        x: Range,
        y: Range,
        *,
        width: int = 440,
        height: int = 260,
        x_label: str = "",
        y_label: str = "",
        y_ticks: bool = True,
        whole_x: bool = False,
    ):
        self.x, self.y, self.width, self.height = padded(x), padded(y), width, height
        self.left, self.top = 52.0 if y_ticks else 10.0, 24.0 if y_label else 10.0
        self.right, self.bottom = width - 12.0, height - (42.0 if x_label else 26.0)
        self._marks: list[Markup] = []
        self._axes(x_label, y_label, y_ticks, whole_x)

    def px(self, x: float) -> float:
        """Horizontal position of a value."""
        share = (x - self.x[0]) / (self.x[1] - self.x[0])
        return round(self.left + min(max(share, -1.0), 2.0) * (self.right - self.left), 2)

    def py(self, y: float) -> float:
        """Vertical position of a value."""
        share = (y - self.y[0]) / (self.y[1] - self.y[0])
        return round(self.bottom - min(max(share, -1.0), 2.0) * (self.bottom - self.top), 2)

    def line(self, points: Points, kind: str) -> None:
        """Straight segments from point to point."""
        self._marks.append(
            Markup('<polyline class="{}" points="{}"/>').format(kind, self._places(points))
        )

    def area(self, points: Points, kind: str) -> None:
        """A closed shape."""
        self._marks.append(
            Markup('<polygon class="{}" points="{}"/>').format(kind, self._places(points))
        )

    def dot(self, x: float, y: float, kind: str, *, r: float = 4.0, title: str = "") -> None:
        """A circle, with a tooltip."""
        tooltip = Markup("<title>{}</title>").format(title) if title else ""
        self._marks.append(
            Markup('<circle class="{}" cx="{}" cy="{}" r="{}">{}</circle>').format(
                kind, self.px(x), self.py(y), r, tooltip
            )
        )

    def cross(self, x: float, y: float, kind: str, *, title: str) -> None:
        """A ring with crosshairs: the next design."""
        cx, cy = self.px(x), self.py(y)
        self._marks.append(
            Markup(
                '<g class="{}"><title>{}</title><circle cx="{}" cy="{}" r="9"/>'
                '<path d="M{} {}h26M{} {}v26"/></g>'
            ).format(kind, title, cx, cy, cx - 13, cy, cx, cy - 13)
        )

    def text(
        self, x: float, y: float, content: str, kind: str, *, dx: float = 0.0, dy: float = 0.0
    ) -> None:
        """Text at a position of the data."""
        self._marks.append(
            Markup('<text class="{}" x="{}" y="{}">{}</text>').format(
                kind, self.px(x) + dx, self.py(y) + dy, content
            )
        )

    def render(self, title: str) -> Markup:
        """The picture; `title` is its description for screen readers."""
        return Markup(
            '<svg viewBox="0 0 {} {}" role="img" aria-label="{}" '
            'preserveAspectRatio="xMidYMid meet">{}</svg>'
        ).format(self.width, self.height, title, Markup("").join(self._marks))

    def _places(self, points: Points) -> str:
        return " ".join(f"{self.px(x)},{self.py(y)}" for x, y in points)

    def _axes(self, x_label: str, y_label: str, y_ticks: bool, whole_x: bool) -> None:
        add = self._marks.append
        for value in ticks(self.x, 6 if self.width > 300 else 3, whole=whole_x):
            at = self.px(value)
            add(
                Markup('<line class="grid" x1="{0}" x2="{0}" y1="{1}" y2="{2}"/>').format(
                    at, self.top, self.bottom
                )
            )
            add(
                Markup('<text class="tick middle" x="{}" y="{}">{}</text>').format(
                    at, self.bottom + 16, short(value)
                )
            )
        for value in ticks(self.y, 5) if y_ticks else ():
            at = self.py(value)
            add(
                Markup('<line class="grid" x1="{1}" x2="{2}" y1="{0}" y2="{0}"/>').format(
                    at, self.left, self.right
                )
            )
            add(
                Markup('<text class="tick end" x="{}" y="{}">{}</text>').format(
                    self.left - 6, at + 4, short(value)
                )
            )
        add(
            Markup('<line class="axis" x1="{0}" x2="{1}" y1="{2}" y2="{2}"/>').format(
                self.left, self.right, self.bottom
            )
        )
        if x_label:
            middle = (self.left + self.right) / 2
            add(
                Markup('<text class="label middle" x="{}" y="{}">{}</text>').format(
                    middle, self.height - 6, x_label
                )
            )
        if y_label:
            add(
                Markup('<text class="label" x="{}" y="14">{}</text>').format(
                    4 if y_ticks else self.left, y_label
                )
            )


def padded(range_: Range) -> Range:
    """A range of positive width, also if all values are equal or none is finite."""
    low, high = range_
    if not (math.isfinite(low) and math.isfinite(high)):
        return -1.0, 1.0
    if high - low <= 1e-9 * max(abs(low), abs(high), 1e-300):
        half = abs(low) * 0.1 or 1.0
        return low - half, high + half
    return low, high


def spread(values: Sequence[float], share: float = 0.08) -> Range:
    """From the smallest to the largest value, and a margin on both sides."""
    low, high = (min(values), max(values)) if values else (-1.0, 1.0)
    more = share * (high - low)
    return padded((low - more, high + more))


def ticks(range_: Range, count: int, *, whole: bool = False) -> list[float]:
    """About `count` round numbers within a range."""
    low, high = range_
    rough = (high - low) / max(count, 1)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * 0.999)
    if whole:
        step = max(1.0, float(round(step)))
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [i * step for i in range(first, min(last, first + 50) + 1)]


def short(value: float) -> str:
    """The number at a tick."""
    text = f"{value:.4g}" if abs(value) > 1e-12 else "0"
    return text.replace("-", MINUS)
