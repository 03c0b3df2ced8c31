"""Distributions of designs, by the names that the command line knows."""

from collections.abc import Callable

from scorebed.errors import UnknownNameError
from scorebed.samplers.ar1 import AR1
from scorebed.samplers.base import DesignSampler
from scorebed.samplers.bounded import Switching, UniformBox
from scorebed.samplers.gaussian import IsotropicGaussian, RandomScaleGaussian
from scorebed.samplers.low_rank import LowRank
from scorebed.samplers.mixture import Mixture
from scorebed.samplers.paper import paper_sampler, uniform_or_switching
from scorebed.tasks.spaces import Space

__all__ = [
    "AR1",
    "SAMPLERS",
    "DesignSampler",
    "IsotropicGaussian",
    "LowRank",
    "Mixture",
    "RandomScaleGaussian",
    "Switching",
    "UniformBox",
    "make_sampler",
    "paper_sampler",
]

SAMPLERS: dict[str, Callable[[int, Space], DesignSampler]] = {
    "gaussian": IsotropicGaussian,
    "random-scale": RandomScaleGaussian,
    "ar1": AR1,
    "low-rank": LowRank,
    "uniform": UniformBox,
    "switching": Switching,
    "uniform-switching": uniform_or_switching,
}


def make_sampler(name: str, horizon: int, space: Space) -> DesignSampler:
    """A design sampler with the paper's settings. `uniform`, `switching` and `uniform-switching`
    need a box.
    """
    if name not in SAMPLERS:
        raise UnknownNameError("design sampler", name, SAMPLERS)
    return SAMPLERS[name](horizon, space)
