"""Drawings of the paper's figures, on made-up numbers: what is drawn is what was given."""

import io

import numpy as np
import pytest

from scorebed.plots.paper_curves import CurvePanel, PaperCurve, draw_curves
from scorebed.plots.paper_errors import (
    BiasPanel,
    BiasPoint,
    ConditionCloud,
    ConditionPanel,
    ErrorCurve,
    ErrorPanel,
    draw_conditioning,
    draw_eig_against_bias,
    draw_gradient_mse,
)


def drawn(figure) -> bytes:
    png = io.BytesIO()
    figure.savefig(png, format="png", dpi=40)
    return png.getvalue()


def test_curves_are_drawn_in_the_order_of_x_with_their_errors():
    curve = PaperCurve("made up", [300.0, 100.0, 200.0], [3.0, 1.0, 2.0], [0.3, 0.1, np.nan])
    figure = draw_curves([CurvePanel("made up", "NLE", [curve]), CurvePanel("none", "NLE", [])])
    first, second = figure.axes
    assert first.containers[0].lines[0].get_xydata().tolist() == [[100, 1], [200, 2], [300, 3]]
    assert first.get_xscale() == "log"
    assert [text.get_text() for text in second.texts] == ["no records yet"]
    assert drawn(figure)


def test_an_error_curve_is_bias_plus_variance_over_n():
    curve = ErrorCurve("made up", 0.5, 0.1, 8.0)
    assert curve.mse(np.array([1.0, 4.0])).tolist() == [8.5, 2.5]
    assert ErrorCurve("made up", -0.5, 0.1, 8.0).mse(np.array([4.0])).tolist() == [2.0]


@pytest.mark.parametrize(("se", "lines"), [(0.1, 2), (0.4, 1)])
def test_an_asymptote_is_drawn_where_the_bias_is_told_from_zero(se, lines):
    figure = draw_gradient_mse([ErrorPanel("made up", [ErrorCurve("score", 0.5, se, 8.0, 1.0)])])
    (ax,) = figure.axes
    assert len(ax.lines) == lines
    told = "not told" in ax.get_legend().get_texts()[0].get_text()
    assert told == (lines == 1)
    assert drawn(figure)


def test_an_unknown_bias_is_an_arrow_at_its_upper_limit():
    points = [BiasPoint(1.0, 0.1, 5.0, main=True), BiasPoint(0.1, 0.1, 6.0)]
    figure = draw_eig_against_bias([BiasPanel("made up", [("score", points)])])
    _, known, unknown = figure.axes[0].lines
    assert known.get_xydata().tolist() == [[1.0, 5.0]]
    assert known.get_marker() == "x"
    assert unknown.get_xydata() == pytest.approx(np.array([[0.3, 6.0]]))
    assert "leftarrow" in unknown.get_marker()
    assert drawn(figure)


def test_conditioning_leaves_out_what_has_no_place_on_a_log_scale():
    cloud = ConditionCloud(
        "made up", np.array([1.0, 10.0, np.inf, 100.0]), np.array([1.0, -1.0, 2.0])
    )
    figure = draw_conditioning([ConditionPanel("made up", [cloud])])
    histogram, scatter = figure.axes
    assert sum(patch.get_height() > 0 for patch in histogram.patches) == 3
    assert scatter.lines[0].get_xydata().tolist() == [[1.0, 1.0]]
    assert drawn(figure)
