"""Figures are placed once, as `savefig` would place them, and drawn once."""

import io

import numpy as np
import pytest
from matplotlib.figure import Figure

from scorebed.plots.layout import lay_out


def figure(layout):
    made = Figure(figsize=(6, 3), layout=layout)
    left, right = made.subplots(1, 2)
    left.set_ylabel("two\nlines", fontsize=20)
    image = right.imshow(np.eye(4), label="a picture")
    made.colorbar(image, ax=right)
    return made


@pytest.mark.parametrize("layout", ["constrained", "compressed", None])
def test_a_figure_is_drawn_once_and_lies_where_it_would(layout, monkeypatch):
    theirs, ours, drawn = figure(layout), figure(layout), []
    theirs.savefig(io.BytesIO(), format="svg")
    draw = Figure.draw
    monkeypatch.setattr(Figure, "draw", lambda *args: (drawn.append(1), draw(*args)))
    lay_out(ours).savefig(io.BytesIO(), format="svg")
    assert len(drawn) == 1
    for one, other in zip(theirs.axes, ours.axes, strict=True):
        np.testing.assert_allclose(one.get_position(), other.get_position(), atol=0.01)
