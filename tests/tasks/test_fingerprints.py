"""Fingerprints of tasks, committed: saved scores, policies and sessions are refused when that of
their task changes, so renaming a class or a field that is part of a task's value shows here.
"""

import pathlib

import pytest

from scorebed.runs.artifacts import fingerprint
from scorebed.runs.user_task import read_task
from scorebed.tasks import ORACLE_TASKS, TASKS
from scorebed.tasks.base import IID, Gaussian
from scorebed.tasks.constraints import ordered, steps_at_most
from scorebed.tasks.continued import continued
from scorebed.tasks.declare import measured, ranges
from scorebed.tasks.library.gravimetry import Gravimetry
from scorebed.tasks.sample_prior import LatentMixture, Mixture, SamplesPrior
from scorebed.tasks.spaces import Quantity

EXAMPLES = pathlib.Path(__file__).parents[2] / "examples" / "tasks"

BUILT_IN = {
    "location-finding": "549a7bea0e69a845",
    "location-finding-3d": "bb199d065ca933ae",
    "pendulum": "91fcd916be02073f",
    "cart-pole": "50b7ff51a6a45a8f",
    "double-link": "f68ad51f534082a0",
    "gravimetry": "c39d9e076f82f85f",
    "linear-gaussian": "f8896e3eb6ace618",
    "linear-gaussian-2d": "5cce7a0a2ba8e9f1",
    "linear-gaussian-3d": "4b4243b99e3f0948",
    "projection": "b58ae5c335b567da",
    "linear-markov": "aa209154e7496e40",
    "sign": "3c54da97ede41aec",
    "fading-noise": "e7b7131ef5cefd48",
}
FILES = {
    "controlled_system.py:ControlledSystem": "b2c1815bd0d1c67d",
    "dosing.py:Dosing": "eef888d0c7371864",
    "sampling_times.py:SamplingTimes": "c886fded51354093",
    "sensor_placement.py:SensorPlacement": "274875689186a188",
    "washout.py:Washout": "9fefb9cdae96f469",
}


def test_every_built_in_task_has_one():
    assert set(BUILT_IN) == {*TASKS, *ORACLE_TASKS}


@pytest.mark.parametrize("name", BUILT_IN)
def test_that_of_a_built_in_task_stays(name):
    assert fingerprint({**TASKS, **ORACLE_TASKS}[name]()) == BUILT_IN[name]


def test_that_of_another_size_stays():
    assert fingerprint(Gravimetry(dim=2)) == "5b6664304769996b"


@pytest.mark.parametrize("name", FILES)
def test_that_of_an_example_stays(name):
    assert fingerprint(read_task(f"{EXAMPLES / name}").task) == FILES[name]


MIXTURE = Mixture((1.0,), ((0.25,),), (((0.5,),),))


class Sampled(IID, Gaussian):
    """A prior from samples, and both kinds of constraint."""

    horizon = 2
    prior = SamplesPrior((Quantity("rate", "1/h"),), (True,), (0.5,), (2.0,), MIXTURE)
    designs = ranges({"time [h]": (0.0, 1.0), "dose [mg]": (0.0, 9.0)})
    constraint = ordered("time", gap=0.1) & steps_at_most({"dose": 2.0}, start={"dose": 1.0})
    outcomes = measured("y")
    additive_noise = True

    def mean(self, theta, state, xi):
        del state
        return theta * xi[0]

    def scale(self, theta, state, xi):
        del theta, state, xi
        return [1.0]


def test_that_of_a_prior_from_samples_under_constraints_stays():
    assert fingerprint(Sampled()) == "8eb0fb2c3516fe04"


@pytest.mark.parametrize(
    ("name", "golden"),
    [("linear-gaussian", "e739c89027a65171"), ("pendulum", "aaafadf495192720")],
)
def test_that_of_a_continued_task_stays(name, golden):
    task = TASKS[name]()
    prior = LatentMixture(task.prior, MIXTURE)
    past = [[0.5] * task.designs.dim], [[0.25] * task.outcome_dim]
    assert fingerprint(continued(task, prior, *past)) == golden
