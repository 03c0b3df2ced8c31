"""Particles of the posterior, two parameters at a time: a triangle of all pairs, or the most
informative ones.

A pair is informative if knowing one parameter narrows the other: it is ranked by mutual
information, from counts in eight by eight cells of equal marginal mass. That sees what a
correlation does not, such as two places either of which may be the right one."""

import itertools
from collections.abc import Sequence

import numpy as np
from markupsafe import Markup

from scorebed.tasks.spaces import Quantity
from scorebed.web.rendering import number
from scorebed.web.svg import Range, padded, short, ticks

ALL = 6  # up to so many parameters all pairs are drawn
MOST = 6  # pairs drawn of more parameters
SHOWN = 300  # particles of a pair
CELLS = 8
WIDTH, LEFT, GAP, BOTTOM, TOP = 440.0, 68.0, 8.0, 40.0, 6.0
NAME = 56.0  # from a panel to the name at its left, past numbers like −20000


def draw_pairs(quantities: Sequence[Quantity], prior: np.ndarray, posterior: np.ndarray) -> Markup:
    """One picture, on the axes of the marginals; empty for a single parameter."""
    count = len(quantities)
    if count < 2:
        return Markup("")
    ranges = [shared_range(prior[:, i], posterior[:, i]) for i in range(count)]
    if count <= ALL:
        return _triangle(quantities, ranges, posterior)
    return _row(quantities, ranges, posterior, most_informative(posterior, MOST))


def shared_range(prior: np.ndarray, posterior: np.ndarray) -> Range:
    """The axis of a parameter: nearly all of the prior, and nearly all of the posterior."""
    low = min(float(np.quantile(prior, 0.005)), float(np.quantile(posterior, 0.005)))
    high = max(float(np.quantile(prior, 0.995)), float(np.quantile(posterior, 0.995)))
    return padded((low, high))


def most_informative(theta: np.ndarray, count: int) -> list[tuple[int, int]]:
    """The pairs with the largest mutual information, the largest first."""
    cells = [_cells(column) for column in theta.T]
    pairs = list(itertools.combinations(range(theta.shape[1]), 2))
    return sorted(pairs, key=lambda pair: -_shared(cells[pair[0]], cells[pair[1]]))[:count]


def caption(quantities: Sequence[Quantity]) -> str:
    """The caption of the picture."""
    if len(quantities) <= ALL:
        return "Each dot is a particle of the posterior. The number is the correlation."
    return (
        f"The {MOST} most informative pairs of {len(quantities)} parameters. The number is the "
        f"correlation."
    )


def _cells(column: np.ndarray) -> np.ndarray:
    """The cell of equal mass that each value is in."""
    ranks = np.argsort(np.argsort(column, kind="stable"), kind="stable")
    return ranks * CELLS // len(column)


def _shared(first: np.ndarray, second: np.ndarray) -> float:
    """Mutual information of two columns of cells, in nats. Its bias in small samples is the same
    for every pair.
    """
    joint = np.bincount(first * CELLS + second, minlength=CELLS**2).reshape(CELLS, CELLS) / len(
        first
    )
    flat = joint.sum(0)[None, :] * joint.sum(1)[:, None]
    filled = joint > 0
    return float((joint[filled] * np.log(joint[filled] / flat[filled])).sum())


def _correlation(x: np.ndarray, y: np.ndarray) -> float:
    spread = float(x.std() * y.std())
    return 0.0 if spread == 0 else float(((x - x.mean()) * (y - y.mean())).mean()) / spread


def _triangle(quantities: Sequence[Quantity], ranges: Sequence[Range], theta: np.ndarray) -> Markup:
    """Columns are all parameters but the last, rows all but the first; names and numbers are at the
    edges only.
    """
    n = len(quantities) - 1
    side = (WIDTH - LEFT - GAP * n) / n
    side, height = min(side, 190.0), TOP + n * (min(side, 190.0) + GAP) + BOTTOM
    marks, descriptions = [], []
    for row in range(n):
        y = TOP + row * (side + GAP)
        for column in range(row + 1):
            x = LEFT + column * (side + GAP)
            mark, words = _panel(quantities, ranges, theta, (column, row + 1), x, y, side)
            marks.append(mark)
            descriptions.append(words)
        marks.append(_up(quantities[row + 1], ranges[row + 1], LEFT, y, side))
    for column in range(n):
        x = LEFT + column * (side + GAP)
        marks.append(_across(quantities[column], ranges[column], x, height - BOTTOM - GAP, side))
    return _whole(marks, descriptions, LEFT + n * (side + GAP), height)


def _row(
    quantities: Sequence[Quantity],
    ranges: Sequence[Range],
    theta: np.ndarray,
    pairs: Sequence[tuple[int, int]],
) -> Markup:
    """Panels with separate axes, two side by side."""
    side = (WIDTH - 2 * (LEFT + GAP)) / 2
    pitch = side + TOP + BOTTOM + GAP
    marks, descriptions = [], []
    for k, (i, j) in enumerate(pairs):
        x, y = LEFT + k % 2 * (side + LEFT + GAP), TOP + k // 2 * pitch
        mark, words = _panel(quantities, ranges, theta, (i, j), x, y, side)
        marks += [
            mark,
            _up(quantities[j], ranges[j], x, y, side),
            _across(quantities[i], ranges[i], x, y + side, side),
        ]
        descriptions.append(words)
    return _whole(marks, descriptions, WIDTH, TOP + (len(pairs) + 1) // 2 * pitch)


def _panel(
    quantities: Sequence[Quantity],
    ranges: Sequence[Range],
    theta: np.ndarray,
    pair: tuple[int, int],
    x: float,
    y: float,
    side: float,
) -> tuple[Markup, str]:
    i, j = pair
    some = theta[:: max(1, len(theta) // SHOWN)]
    inner = 3.0  # so that dots at the edge stay inside
    across = _place(some[:, i], ranges[i], side - 2 * inner) + x + inner
    up = y + side - inner - _place(some[:, j], ranges[j], side - 2 * inner)
    # One path for all points: a dot is a line of zero length with round ends.
    dots = "".join(f"M{a:.1f} {b:.1f}h0" for a, b in zip(across, up, strict=True))
    correlation = _correlation(theta[:, i], theta[:, j])
    words = f"{quantities[j].name} and {quantities[i].name}: correlation {number(correlation, 2)}"
    mark = Markup(
        "<g><title>{}</title>"
        '<rect class="panel" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}"/>'
        '<path class="pair" d="{}"/><text class="over end" x="{:.1f}" y="{:.1f}">{}</text></g>'
    ).format(words, x, y, side, side, dots, x + side - 4, y + 13, number(round(correlation, 2), 2))
    return mark, words


def _place(values: np.ndarray, range_: Range, length: float) -> np.ndarray:
    return np.clip((values - range_[0]) / (range_[1] - range_[0]), 0.0, 1.0) * length


def _across(quantity: Quantity, range_: Range, x: float, y: float, side: float) -> Markup:
    """Numbers and name beneath a panel whose lower edge is at y."""
    each = [
        Markup('<text class="tick middle" x="{:.1f}" y="{:.1f}">{}</text>').format(
            x + _place(np.asarray([value]), range_, side).item(), y + 15, short(value)
        )
        for value in _few(range_, side)
    ]
    each.append(
        Markup('<text class="label middle" x="{:.1f}" y="{:.1f}">{}</text>').format(
            x + side / 2, y + 32, quantity
        )
    )
    return Markup("").join(each)


def _up(quantity: Quantity, range_: Range, x: float, y: float, side: float) -> Markup:
    """Numbers and name at the left of a panel whose upper edge is at y."""
    each = [
        Markup('<text class="tick end" x="{:.1f}" y="{:.1f}">{}</text>').format(
            x - 5, y + side - _place(np.asarray([value]), range_, side).item() + 4, short(value)
        )
        for value in _few(range_, side)
    ]
    middle = y + side / 2
    each.append(
        Markup(
            '<text class="label middle" x="{0:.1f}" y="{1:.1f}" '
            'transform="rotate(-90 {0:.1f} {1:.1f})">{2}</text>'
        ).format(x - NAME, middle, quantity)
    )
    return Markup("").join(each)


def _few(range_: Range, side: float) -> list[float]:
    """Round numbers, away from the ends, which are close to those of the next panel."""
    low, high = range_
    margin = 0.1 * (high - low)
    return [
        tick
        for tick in ticks(range_, 3 if side > 90 else 2)
        if low + margin <= tick <= high - margin
    ]


def _whole(
    marks: Sequence[Markup], descriptions: Sequence[str], width: float, height: float
) -> Markup:
    label = f"Pairs of parameters. {'; '.join(descriptions)}."
    return Markup('<svg viewBox="0 0 {:.0f} {:.0f}" role="img" aria-label="{}">{}</svg>').format(
        width, height, label, Markup("").join(marks)
    )
