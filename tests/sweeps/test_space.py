"""Spaces: typed against the configuration, refused with the nearest right key."""

import re
import tomllib

import pytest

from scorebed.errors import ScorebedError
from scorebed.runs.config import known_settings
from scorebed.sweeps.creation import SPACES, default_space
from scorebed.sweeps.space import read_space
from scorebed.tasks import TASKS


def known():
    return known_settings({"method": "score", "score": {"kind": "particles"}})


def read(text):
    return read_space(tomllib.loads(text), known(), taken_over=["score"])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[policy_training]\nlerning_rate = [1e-3, 1e-2]", "policy_training.learning_rate"),
        ("polcy = ['dad', 'gru']", "policy"),
        ("[policy_trainin]\nsteps = [1, 2]", "policy_training.steps"),
        ("[policy_training]\nlearning_rate = [1e-3, -1.0]", "a finite positive number"),
        ("[policy_training]\nschedule = ['cosine', 'cosin']", "did you mean 'cosine'"),
        ("[policy_training]\nsteps = { low = 1.5, high = 3 }", "a whole number"),
        ("[policy_training]\nlearning_rate = { low = 1e-2, high = 1e-3 }", "the lower one first"),
        ("[policy_training]\nlearning_rate = { low = 0.0, high = 1, log = true }", "above 0"),
        ("[policy_training]\nschedule = { low = 1, high = 2 }", "a list of values"),
        ("[policy_training]\nsteps = [5]", "several different ones"),
        ("[policy_training]\nsteps = 5", "at least one to search"),
        ("seed = [1, 2]", "a setting that a study fixes"),
        ("score.steps = [1, 2]", "a setting that a study fixes"),
        ("[policy_training]\nsteps = { low = 1, high = 9, points = 3 }", "points for others"),
    ],
)
def test_a_fault_is_one_line_with_the_way_out(text, words):
    with pytest.raises(ScorebedError, match=re.escape(words)) as error:
        read(text)
    assert "Fix: " in str(error.value)


def test_numbers_choices_and_fixed_values_are_told_apart():
    space = read(
        "[policy_training]\nlearning_rate = { low = 1, high = 2 }\n"
        "steps = { low = 10, high = 30, step = 10 }\nclip = 2.0\n"
    )
    real, whole = space.dimensions
    assert (real.low, real.high) == (1.0, 2.0)
    assert whole.grid == (10, 20, 30)
    assert space.fixed == {"policy_training.clip": 2.0}


def test_a_grid_has_every_point_once():
    space = read(
        "policy = ['dad', 'gru']\n[policy_training]\nsteps = [1, 2, 3]\n"
        "learning_rate = { low = 1e-4, high = 1e-2, log = true, points = 3 }\n"
    )
    points = [space.grid_point(number) for number in range(space.grid_size)]
    assert space.grid_size == 18
    assert len({tuple(sorted(point.items())) for point in points}) == 18
    middle = sorted({point["policy_training.learning_rate"] for point in points})[1]
    assert middle == pytest.approx(1e-3)


@pytest.mark.parametrize("task", TASKS)
def test_every_task_has_a_space_that_fits_the_configuration(task):
    space = read_space(default_space(task), known())
    assert any(each.key == "policy" for each in space.dimensions), SPACES
