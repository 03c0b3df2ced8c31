"""Policies by name."""

import jax.random as jr
import pytest

from scorebed.errors import UnknownNameError
from scorebed.policies import make_policy
from scorebed.policies.random import RandomDesigns
from scorebed.presets.reader import policy_for
from scorebed.tasks import TASKS, make_task
from scorebed.tasks.library.pendulum import Pendulum

PAPER = {
    "location-finding": "dad",
    "location-finding-3d": "dad",
    "pendulum": "gru",
    "cart-pole": "gru",
    "double-link": "gru",
    "gravimetry": "attention",
}


def test_each_task_of_the_paper_has_the_papers_policy():
    assert {name: policy_for("paper", make_task(name)) for name in PAPER} == PAPER
    assert set(PAPER) <= set(TASKS)


def test_random_designs_come_from_the_papers_sampler():
    assert isinstance(make_policy("random", Pendulum(), key=jr.key(0)), RandomDesigns)


def test_an_unknown_name_is_answered_with_the_nearest():
    with pytest.raises(UnknownNameError, match="did you mean 'attention'"):
        make_policy("atention", Pendulum(), key=jr.key(0))
