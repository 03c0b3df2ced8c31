"""Sketches: every task has one, which fits it; a user's task may give its own."""

import pytest

from scorebed.errors import InvalidValueError
from scorebed.tasks import TASKS, make_task
from scorebed.tasks.continued import continued
from scorebed.tasks.library.gravimetry import Gravimetry
from scorebed.tasks.library.location import LocationFinding
from scorebed.tasks.oracles.linear_gaussian import LinearGaussian
from scorebed.tasks.sketch import (
    HiddenObjects,
    Positions,
    Profile,
    Sketch,
    TimeSeries,
    check_sketch,
)

KINDS = {
    "location-finding": Positions,
    "location-finding-3d": Positions,
    "pendulum": TimeSeries,
    "cart-pole": TimeSeries,
    "double-link": TimeSeries,
    "gravimetry": Profile,
    "linear-gaussian": Profile,
}


def test_the_kind_follows_from_the_structure_or_the_task_itself():
    assert {name: type(make_task(name).sketch()) for name in TASKS} == KINDS


def test_the_sketch_of_every_task_fits_it(name, task):
    del name
    check_sketch(task)


def test_the_structure_has_a_name():
    assert {make_task(name).structure for name, kind in KINDS.items() if kind is TimeSeries} == {
        "markov"
    }
    assert {
        make_task(name).structure for name, kind in KINDS.items() if kind is not TimeSeries
    } == {"iid"}


def test_hidden_objects_are_where_theta_says():
    task = LocationFinding(dim=3, sources=2)
    names = [q.name for q in task.prior.quantities]
    places = task.sketch().hidden.coordinates
    assert [[names[i] for i in place] for place in places] == [
        [f"source {k} {axis}" for axis in "xyz"] for k in (1, 2)
    ]
    assert str(task.sketch().hidden) == "sources"
    assert str(LocationFinding(sources=1).sketch().hidden) == "source"

    line = Gravimetry()
    sketch = line.sketch()
    assert line.prior.quantities[sketch.hidden.coordinates[0][0]].name == "void x"
    assert line.prior.quantities[sketch.depth].name == "depth"


def test_a_continued_task_is_drawn_like_its_beginning():
    task = LocationFinding()
    rest = continued(task, task.prior, [[0.0, 1.0]], [[0.5]])
    assert rest.sketch() == task.sketch()


@pytest.mark.parametrize(
    ("sketch", "words"),
    [
        ("a map", "got a str"),
        (Positions(), "Positions of 1 design"),
        (Profile(HiddenObjects("peak", ((0, 1),))), "1 of the parameters 0 to 0"),
        (Profile(HiddenObjects("peak", ((1,),))), "1 of the parameters 0 to 0"),
        (Profile(HiddenObjects("peak", ((0,),)), depth=1), "at depth 1"),
    ],
)
def test_a_sketch_that_does_not_fit_is_refused(sketch, words):
    class Drawn(LinearGaussian):
        def sketch(self):
            return sketch

    with pytest.raises(InvalidValueError, match=rf"the sketch of Drawn, .*{words}.*Fix:"):
        check_sketch(Drawn())


def test_a_profile_needs_one_design_and_one_outcome():
    class Drawn(Gravimetry):
        def sketch(self) -> Sketch:
            return Profile()

    with pytest.raises(InvalidValueError, match="a Profile of 2 designs and 1 outcomes"):
        check_sketch(Drawn(dim=2))
