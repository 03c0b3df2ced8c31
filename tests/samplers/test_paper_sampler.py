"""The paper's choice of sampler for every task."""

import jax
import jax.random as jr
import pytest

from scorebed.samplers import (
    AR1,
    DesignSampler,
    RandomScaleGaussian,
    SamplerMixture,
    Switching,
    UniformBox,
    paper_sampler,
)
from scorebed.tasks import TASKS, make_task


def settings(sampler: DesignSampler) -> object:
    match sampler:
        case AR1():
            return "ar1", sampler.low, sampler.high, sampler.rho_low, sampler.rho_high
        case RandomScaleGaussian():
            return "random-scale", sampler.low, sampler.high, sampler.space.scale
        case Switching():
            rates = sampler.rate_low, sampler.rate_high
            return "switching", *rates, sampler.level, sampler.jitter
        case SamplerMixture():
            return sampler.weights, tuple(settings(c) for c in sampler.components)
        case UniformBox():
            return "uniform"
    return None


LOCATION = ("ar1", 0.2, 5.0, 0.7, 1.0)
DYNAMICAL = ((0.5, 0.5), ("uniform", ("switching", 0.02, 0.1, 5.0, 1.5)))
EXPECTED = {
    "location-finding": LOCATION,
    "location-finding-3d": LOCATION,
    "pendulum": DYNAMICAL,
    "cart-pole": DYNAMICAL,
    "double-link": DYNAMICAL,
    "gravimetry": ("random-scale", 0.3, 1.2, 40.0),
}


@pytest.mark.parametrize("name", EXPECTED)
def test_sampler_of_every_task_of_the_paper(name: str):
    task = make_task(name)
    assert settings(paper_sampler(task)) == EXPECTED[name]


@pytest.mark.parametrize("name", TASKS)
def test_every_built_in_task_has_a_sampler(name: str):
    task = make_task(name)
    draw = jax.eval_shape(lambda key: paper_sampler(task).sample(key=key), jr.key(0))
    assert draw.shape == (task.horizon, task.designs.dim)
