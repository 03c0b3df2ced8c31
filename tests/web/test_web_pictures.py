"""Pictures are well-formed, for every shape of task, and stay so for values that nobody expects."""

import math
import xml.etree.ElementTree as ET

import numpy as np
import pytest

pytest.importorskip("fastapi", reason="the web page needs fastapi: pip install 'scorebed[web]'")

from scorebed.session.events import ExperimentState, ProposedDesign, StepRecord
from scorebed.session.posterior import MarginalSummary, Posterior
from scorebed.session.what_if import Expectation
from scorebed.tasks import TASKS, make_task
from scorebed.tasks.spaces import Quantity
from scorebed.web.pairs import draw_pairs, most_informative
from scorebed.web.pictures import Curve, draw_information, draw_marginal, draw_space
from scorebed.web.svg import Plot, padded, spread, ticks


def parsed(svg):
    return ET.fromstring(f"<figure>{svg}</figure>")


def numbers(root):
    for element in root.iter():
        for name in ("cx", "cy", "x", "y", "x1", "x2", "y1", "y2"):
            if name in element.attrib:
                yield float(element.attrib[name])
        for pair in element.attrib.get("points", "").split():
            yield from map(float, pair.split(","))


def experiment(task, y=0.3, x=0.1):
    dx, dy = task.designs.dim, task.outcome_dim
    taken = tuple(
        StepRecord(
            t,
            ProposedDesign(t, t, (x * t,) * dx, ""),
            None if t == 2 else (x * t,) * dx,
            None if t == 2 else (y * t,) * dy,
            "",
            t,
        )
        for t in (1, 2, 3)
    )
    return ExperimentState(task.horizon, 9, taken, (ProposedDesign(9, 4, (0.2,) * dx, ""),))


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize("y", [0.3, 1e30, 0.0])
def test_every_task_has_a_picture_of_its_steps(name, y):
    task = make_task(name)
    state = experiment(task, y)
    theta = np.random.default_rng(0).normal(size=(64, task.prior.dim))
    posterior = Posterior(2, task.prior.quantities, theta, 0.0, 1.0, 64.0, 0.5)
    predicted = tuple(
        MarginalSummary(q, 0.0, 1.0, (-2.0, -1.0, 0.0, 1.0, 2.0)) for q in task.outcomes
    )
    grid = Curve.grid(task, state)
    curve = Curve(grid, (-1.0,) * len(grid), (1.0,) * len(grid))
    for known in (posterior, None):
        picture = draw_space(
            task, state, known, predicted if known else (), curve if known else Curve()
        )
        root = parsed(picture.svg)
        assert all(math.isfinite(value) for value in numbers(root))
        assert picture.caption
        titles = [e.text for e in root.iter() if e.tag == "title"]
        assert (
            sum((t or "").startswith("step ") for t in titles) >= 2
        )  # two were measured, one was skipped


def test_dots_lie_where_their_values_are():
    plot = Plot((0.0, 10.0), (-1.0, 1.0))
    assert plot.px(0.0) == plot.left
    assert plot.px(10.0) == plot.right
    assert plot.py(-1.0) == plot.bottom
    assert plot.py(1.0) == plot.top
    assert plot.px(5.0) == pytest.approx((plot.left + plot.right) / 2)


def test_ticks_are_round_and_inside():
    for low, high in ((0.0, 1.0), (-3.7, 11.2), (1e-9, 3e-9), (-1e30, 1e30), (0.0, 3.0)):
        found = ticks((low, high), 5)
        assert 2 <= len(found) <= 12
        assert all(low - 1e-9 * abs(low) <= tick <= high * (1 + 1e-9) for tick in found)
        steps = np.diff(found)
        assert np.allclose(steps, steps[0])
    assert all(tick == round(tick) for tick in ticks((0.0, 3.0), 6, whole=True))
    for value in ((1.0, 1.0), (0.0, 0.0), (math.nan, 1.0), (math.inf, math.inf)):
        low, high = padded(value)
        assert low < high
    assert spread([]) == (-1.16, 1.16)


def test_a_histogram_encloses_all_particles_and_information_reaches_its_band():
    prior = np.random.default_rng(0).normal(size=500)
    root = parsed(draw_marginal(Quantity("depth <b>", "m"), prior, np.full(500, 0.25)))
    label = next(e.attrib["aria-label"] for e in root.iter() if "aria-label" in e.attrib)
    assert "depth <b> [m]" in label  # escaped once, and read back as it was
    assert "0.25" in label
    parsed(draw_marginal(Quantity("constant"), np.zeros(9), np.zeros(9)))
    root = parsed(draw_information([0.0, 0.7, 0.4], [0, 1, 3], 3, Expectation(2.0, 2.0)))
    circles = [e for e in root.iter() if e.tag == "circle"]
    assert len(circles) == 3
    (band,) = (e for e in root.iter() if e.attrib.get("class") == "expected")
    heights = {float(pair.split(",")[1]) for pair in band.attrib["points"].split()}
    assert max(heights) - min(heights) > 1  # bounds that coincide are still seen
    parsed(draw_information([0.0], [0], 30, None))
    parsed(draw_information([0.0, -0.2], [0, 1], 30, Expectation(-1.0, 0.5)))


def panels(root):
    return [e for e in root.iter() if e.attrib.get("class") == "panel"]


def dots(root):
    """The places of all particles, panel by panel."""
    paths = [e.attrib["d"] for e in root.iter() if e.attrib.get("class") == "pair"]
    return [
        np.asarray(
            [[float(v) for v in dot.removesuffix("h0").split()] for dot in path.split("M")[1:]]
        )
        for path in paths
    ]


@pytest.mark.parametrize(("count", "pictures"), [(1, 0), (2, 1), (4, 6), (6, 15), (9, 6)])
def test_pairs_are_all_drawn_up_to_six_parameters_and_the_telling_ones_beyond(count, pictures):
    rng = np.random.default_rng(0)
    theta = rng.normal(size=(500, count))
    theta[:, -1] = 3.0  # one that is known exactly
    quantities = [Quantity(f"a<{i}", "m") for i in range(count)]
    svg = draw_pairs(quantities, rng.normal(size=(500, count)), theta)
    if not pictures:
        assert not svg
        return
    root = parsed(svg)
    assert len(panels(root)) == pictures
    width, height = map(
        float, next(e for e in root.iter() if e.tag == "svg").attrib["viewBox"].split()[2:]
    )
    assert all(math.isfinite(value) for value in numbers(root))
    for panel, places in zip(panels(root), dots(root), strict=True):
        x, y, side = (float(panel.attrib[name]) for name in ("x", "y", "width"))
        assert 0 <= x <= x + side <= width
        assert 0 <= y <= y + side <= height
        assert (places >= (x, y)).all()
        assert (places <= (x + side, y + side)).all()
    label = next(e.attrib["aria-label"] for e in root.iter() if "aria-label" in e.attrib)
    assert label.count("correlation") == pictures


def test_a_pair_is_drawn_with_the_first_across_and_the_second_up():
    """The second parameter is the first one: dots lie on the rising diagonal; turned over, on the
    falling one.
    """
    x = np.random.default_rng(0).normal(size=500)
    for sign in (1, -1):
        theta = np.stack([x, sign * x], axis=1)
        (places,) = dots(parsed(draw_pairs([Quantity("a"), Quantity("b")], theta, theta)))
        assert np.corrcoef(places[:, 0], -places[:, 1])[0, 1] == pytest.approx(sign, abs=1e-3)


def test_the_telling_pairs_are_found_without_a_correlation():
    """Two modes on a diagonal cross have no correlation, and say more about each other than a weak
    linear dependence does.
    """
    rng = np.random.default_rng(0)
    theta = rng.normal(size=(2000, 8))
    theta[:, 5] = rng.choice([-1, 1], 2000) * theta[:, 2] + 0.1 * rng.normal(size=2000)
    theta[:, 7] += 0.5 * theta[:, 0]
    assert abs(np.corrcoef(theta[:, 2], theta[:, 5])[0, 1]) < 0.1
    assert most_informative(theta, 2) == [(2, 5), (0, 7)]
